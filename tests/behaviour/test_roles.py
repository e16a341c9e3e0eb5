"""Who sees what: parties and operators the words and data, observers where everything stands."""

from typing import Any

import pytest

from nodrop.model.errors import ForbiddenError, NotFoundError


async def test_an_observer_sees_where_everything_stands_and_no_words(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="words", payload={"a": 1}))[
        "handoff"
    ]
    await code_agent("ack", offered["id"], status="more words")
    await code_agent("complete", offered["id"], attempt=1, result={"b": 2})
    watcher = await office.join("watcher", role="observer")
    seen = (await watcher("get_handoff", offered["id"]))["handoff"]
    assert (seen["state"], seen["withheld"], seen["payload"]) == ("completed", True, None)
    assert [r["rung"] for r in seen["receipts"]][:2] == ["stored", "delivered"]
    for shown in (
        seen,
        await watcher("list_handoffs"),
        await watcher("trace", named=offered["correlation_id"]),
        await watcher("log"),
    ):
        assert not any(word in str(shown) for word in ("words", "'a': 1", "'b': 2")), shown
    party = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert (party["withheld"], party["payload"]) == (False, {"a": 1})


async def test_an_observer_changes_nothing_not_even_by_looking(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent"))["handoff"]
    await code_agent("ack", offered["id"])
    await code_agent("complete", offered["id"], attempt=1, result=1)
    me = await office.person()
    minted = await me("create_token", agent="inbox_monitor", role="observer")
    assert minted["role"] == "observer"
    # The same name, and only an observer: what it looks at is not thereby delivered to the agent.
    itself = await office.join("inbox_monitor", role="observer", team="elsewhere")
    with pytest.raises(NotFoundError):
        await itself("get_handoff", offered["id"])
    watcher = await office.join("watcher", role="observer")
    before = (await watcher("log"))["after"]
    await watcher("get_handoff", offered["id"], wait="1s", until="finished")
    for operation, about, fields in (
        ("note_team", None, {"text": "hello"}),
        ("note", offered["id"], {"text": "hello"}),
        ("offer", None, {"to": "code_agent"}),
        ("take", None, {}),
        ("inbox", None, {}),
        ("settle", offered["id"], {}),
        ("create_token", None, {"agent": "watcher"}),
        ("refusals", None, {}),
    ):
        with pytest.raises(ForbiddenError):
            await watcher(operation, about, **fields)
    assert (await watcher("log"))["after"] == before


async def test_refusals_are_in_the_security_log_as_one_line_with_a_count(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="secret"))["handoff"]
    bystander = await office.join("bystander")
    for _ in range(5):
        with pytest.raises(NotFoundError):
            await bystander("cancel", offered["id"])
    with pytest.raises(ForbiddenError):
        await bystander("create_token", agent="me")
    with pytest.raises(ForbiddenError):
        await bystander("refusals")
    noted = (await (await office.person())("refusals"))["refusals"]
    told = [(r["actor"], r["operation"], r["code"], r["reason"], r["count"]) for r in noted]
    assert told == [
        ("bystander", "refusals", "forbidden", "forbidden", 1),
        ("bystander", "create_token", "forbidden", "forbidden", 1),
        ("bystander", "cancel", "not_found", "foreign_handoff", 5),
    ]
    assert {r["address"] for r in noted} == {None if office.door == "in-process" else "127.0.0.1"}
