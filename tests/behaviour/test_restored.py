"""Readers notice that an older copy of the database was put back: numbers are used again."""

from typing import Any

import pytest

from nodrop.client.client import Client
from nodrop.client.cursor import Cursor
from nodrop.model.errors import CursorUnknownError, InvalidRequestError

READS = ("log", "inbox", "messages")


@pytest.fixture
async def talk(office: Any) -> Any:
    """Say something to `me`: an entry of the log, an inbox item and a message in one."""

    async def say(*words: str) -> list[int]:
        agent = await office.join("inbox_monitor")
        return [(await agent("say", to="me", text=word))["seq"] for word in words]

    return say


async def _read(office: Any, operation: str, **cursor: Any) -> dict[str, Any]:
    everything = {"all": True} if operation == "inbox" else {}
    return await (await office.person())(operation, **cursor, **everything)


def _place(page: dict[str, Any]) -> dict[str, Any]:
    return {"after": page["after"], "after_hash": page["after_hash"]}


@pytest.mark.parametrize("operation", READS)
async def test_a_cursor_of_the_same_log_goes_on_where_it_was(
    office: Any, talk: Any, operation: str
) -> None:
    await talk("one", "two")
    first = _place(await _read(office, operation))
    await office.restart()
    [seq] = await talk("three")
    page = await _read(office, operation, **first)
    assert page["after"] == seq
    short = {"after": first["after"], "after_hash": first["after_hash"][:8]}
    assert (await _read(office, operation, **short))["after"] == seq


@pytest.mark.parametrize("operation", READS)
async def test_a_cursor_beyond_the_end_is_refused(office: Any, talk: Any, operation: str) -> None:
    await talk("kept")
    await office.keep_copy()
    await talk("lost", "lost too")
    ahead = (await _read(office, operation))["after"]
    await office.put_back()
    with pytest.raises(CursorUnknownError) as refused:
        await _read(office, operation, after=ahead)
    assert "after=0" in refused.value.next_step


@pytest.mark.parametrize("operation", READS)
async def test_a_cursor_that_the_restored_log_has_passed_is_refused_too(
    office: Any, talk: Any, operation: str
) -> None:
    await talk("kept")
    await office.keep_copy()
    await talk("lost")
    seen = _place(await _read(office, operation))
    await office.put_back()
    new = await talk("new one", "new two", "new three")
    assert new[-1] > seen["after"]
    with pytest.raises(CursorUnknownError):
        await _read(office, operation, **seen)
    # The control: the number alone is a place in this log, and what was new before it is skipped.
    page = await _read(office, operation, after=seen["after"])
    assert page["after"] == new[-1]
    assert new[0] <= seen["after"]


async def test_a_hash_that_is_none_is_refused(office: Any) -> None:
    me = await office.person()
    for wrong in ("", "1234567", "g" * 8, "0" * 65):
        with pytest.raises(InvalidRequestError) as refused:
            await me("log", after=1, after_hash=wrong)
        assert refused.value.errors[0].path == "after_hash"


async def test_the_beginning_of_a_log_is_a_place_in_every_log(office: Any) -> None:
    me = await office.person()
    page = await me("log", after=0, after_hash="0" * 64)
    assert page["entries"][0]["seq"] == 1
    empty = await me("messages")
    assert _place(empty) == {"after": 0, "after_hash": None}


async def test_a_client_reads_its_inbox_again_and_misses_nothing(
    office: Any, talk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await talk("kept")
    await office.keep_copy()
    await talk("lost")
    after = (await _client(await office.person()).inbox(everything=True)).after
    await office.put_back()
    await talk("new one", "new two")
    page = await _client(await office.person()).inbox(after, everything=True)
    assert [item.summary for item in page] == ["kept", "new one", "new two"]
    assert "reading the inbox from its beginning" in caplog.text
    # The control: a cursor that has lost its hash skips what is new.
    bare = await _client(await office.person()).inbox(int(after), everything=True)
    assert [item.summary for item in bare] == ["new two"]


async def test_a_client_that_follows_the_log_begins_again_and_misses_nothing(
    office: Any, talk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await talk("kept")
    await office.keep_copy()
    await talk("lost")
    entries = await _client(await office.person()).log(limit=500)
    await office.put_back()
    new = await talk("new one", "new two")
    followed = _client(await office.person()).follow_log(entries[-1].cursor)
    seen = [(await anext(followed)).seq for _ in range(new[-1])]
    await followed.aclose()
    assert seen == list(range(1, new[-1] + 1))
    assert "following the log from its beginning" in caplog.text


def test_a_cursor_is_a_number_that_knows_its_hash() -> None:
    cursor = Cursor(51, "ab" * 32)
    assert (cursor, cursor + 1, f"{cursor}") == (51, 52, "51")
    assert cursor.hash == "ab" * 32
    assert Cursor().hash is None


def _client(member: Any) -> Client:
    return Client(member.transport, agent=member.name)
