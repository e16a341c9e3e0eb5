"""The tail of a log in memory: what followers read there is what the table has, and no more is kept."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kit.inline import InlineSQLiteStore
from nodrop.log import journal as module
from nodrop.log.port import Changes, LogPage, Team
from nodrop.protocol.entries import Draft, Entry
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, handoff_id, offered, story

BODY = b'{"payload":{"secret":"plum"}}'


async def opened(path: Path) -> InlineSQLiteStore:
    made = InlineSQLiteStore(path)
    for team in (TEAM, "other"):
        await made.create_team(Team(id=team, digest_key=b"k" * 32, created_at=T0))
    return made


async def commit(into: InlineSQLiteStore, number: int) -> None:
    """Commit an offer with a body, and an entry of another team."""
    changes = story(offered(), number=number, bodies={1: BODY}).changes
    other = Draft(team="other", at=T0, type="said.v1", actor="ana")
    async with into.transaction() as tx:
        await tx.append(Changes(entries=[*changes.entries, other], rows=changes.rows))


async def read(store: InlineSQLiteStore, after: int, wanted: str | None = None) -> list[Entry]:
    return list(await store.log(LogPage(team=TEAM, after=after, limit=100, type=wanted)))


def read_from_table(monkeypatch: pytest.MonkeyPatch, store: InlineSQLiteStore) -> list[int]:
    """Return what grows with every page that the table is asked for."""
    asked: list[int] = []
    as_it_is = store.database.log

    def log(page: LogPage, fits: Callable[[Entry], bool]) -> tuple[list[Entry], int | None]:
        asked.append(page.after)
        return as_it_is(page, fits)

    monkeypatch.setattr(store.database, "log", log)
    return asked


async def test_a_follower_that_keeps_up_reads_what_the_table_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "nodrop.db")
    for number in range(1, 21):
        await commit(store, number)
    asked = read_from_table(monkeypatch, store)
    recent = {after: await read(store, after) for after in range(22)}
    typed = await read(store, 15, "handoff.offered.*")
    nothing = await read(store, 0, "said.v1")
    assert asked == []
    await store.shed()
    for after, entries in recent.items():
        assert entries == await read(store, after)
    assert typed == recent[15]
    assert nothing == []
    assert len(asked) == 22


async def test_a_page_ends_at_its_limit(tmp_path: Path) -> None:
    store = await opened(tmp_path / "nodrop.db")
    for number in range(1, 11):
        await commit(store, number)
    page = await store.log(LogPage(team=TEAM, after=3, limit=4))
    assert [entry.seq for entry in page] == [4, 5, 6, 7]


async def test_what_is_kept_is_bounded_in_bytes_over_all_teams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TAIL_BYTES_MAX", 3_000)
    store = await opened(tmp_path / "nodrop.db")
    for number in range(1, 31):
        await commit(store, number)
    asked = read_from_table(monkeypatch, store)
    assert [entry.seq for entry in await read(store, 29)] == [30]
    assert asked == []
    assert [entry.seq for entry in await read(store, 0)] == list(range(1, 31))
    assert asked == [0]


async def test_an_entry_that_memory_only_replayed_is_read_from_the_table(tmp_path: Path) -> None:
    store = await opened(tmp_path / "nodrop.db")
    await commit(store, 1)
    store.crash()
    again = await opened(tmp_path / "nodrop.db")
    await commit(again, 2)
    assert [entry.seq for entry in await read(again, 0)] == [1, 2]
    assert [entry.seq for entry in await read(again, 1)] == [2]


async def test_what_was_erased_is_not_kept_for_followers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path / "nodrop.db")
    await commit(store, 1)
    asked = read_from_table(monkeypatch, store)
    before = await read(store, 0)
    assert asked == []
    await store.erase(TEAM, handoff_id(1))
    assert await read(store, 0) == before
    assert asked == [0]
