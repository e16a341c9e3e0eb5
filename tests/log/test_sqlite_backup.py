"""Backups of an open file: commits go on, the copy is whole, and a failed one leaves nothing."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Team
from nodrop.log.sqlite import SQLiteStore, backup
from nodrop.log.sqlite.backup import Copying, verify
from nodrop.model.errors import InvalidRequestError, StoreCorruptError, StoreFullError
from nodrop.protocol.entries import GENESIS, Head
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, handoff_id, offered, story


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SQLiteStore]:
    """A store of some hundred pages, copied a few at a time."""
    monkeypatch.setattr(backup, "STEP_PAGES", 8)
    async with await SQLiteStore.open(tmp_path / "nodrop.db") as store:
        await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        for number in range(1, 101):
            await keep(store, number)
        yield store


async def keep(store: SQLiteStore, number: int) -> None:
    async with store.transaction() as tx:
        body = b"%d" % number * 4_000
        await tx.append(story(offered(), number=number, bodies={1: body}).changes)


def left(tmp_path: Path) -> list[str]:
    return sorted(file.name for file in (tmp_path / "backups").iterdir())


async def test_commits_between_the_steps_of_a_backup_are_in_it(
    store: SQLiteStore, tmp_path: Path
) -> None:
    """Pages that were copied already change while others are copied."""
    made = asyncio.create_task(store.backup("made.db"))
    number = 100
    while not made.done():
        number += 1
        await keep(store, number)
        await store.erase(TEAM, handoff_id(number - 50))
    copy = await made
    assert number > 110
    assert 100 < copy.heads[TEAM].seq <= number
    assert copy.heads == verify(tmp_path / "backups" / "made.db")
    assert left(tmp_path) == ["made.db"]
    assert copy.size_bytes == (tmp_path / "backups" / "made.db").stat().st_size


async def test_a_backup_without_room_leaves_nothing_and_the_store_goes_on(
    store: SQLiteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Copying) -> bool:
        raise apsw.FullError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(Copying, "step", full)
        with pytest.raises(StoreFullError):
            await store.backup("made.db")
    await keep(store, 101)
    assert left(tmp_path) == []
    await store.backup("made.db")


async def test_a_backup_that_was_cut_short_is_cleared_away_by_the_next(
    store: SQLiteStore, tmp_path: Path
) -> None:
    (tmp_path / "backups").mkdir()
    (tmp_path / "backups" / "killed.db.unfinished").write_bytes(b"half")
    await store.backup("made.db")
    assert left(tmp_path) == ["made.db"]


async def test_a_cancelled_backup_leaves_nothing(store: SQLiteStore, tmp_path: Path) -> None:
    made = asyncio.create_task(store.backup("made.db"))
    await keep(store, 101)
    made.cancel()
    await asyncio.gather(made, return_exceptions=True)
    assert made.cancelled()
    await keep(store, 102)
    assert not (tmp_path / "backups" / "made.db").exists()
    await store.backup("next.db")
    assert left(tmp_path) == ["next.db"]


async def test_a_copy_that_lacks_its_end_is_not_kept(
    store: SQLiteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(_: Path) -> dict[str, Head]:
        return {TEAM: Head(seq=99, hash=GENESIS)}

    monkeypatch.setattr(backup, "verify", short)
    with pytest.raises(StoreCorruptError, match="ends before 100"):
        await store.backup("made.db")
    await keep(store, 101)
    assert not (tmp_path / "backups" / "made.db").exists()


async def test_a_copy_is_held_to_the_heads_that_its_log_had(
    store: SQLiteStore, tmp_path: Path
) -> None:
    before = await store.head(TEAM)
    await keep(store, 101)
    await store.backup("made.db")
    made = tmp_path / "backups" / "made.db"
    assert verify(made, [(TEAM, before)])[TEAM].seq == 101
    with pytest.raises(StoreCorruptError, match="entry 100 of"):
        verify(made, [(TEAM, Head(seq=100, hash=GENESIS))])
    with pytest.raises(StoreCorruptError, match="the end is missing"):
        verify(made, [(TEAM, Head(seq=102, hash=GENESIS))])


async def test_memory_has_no_backup() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await MemoryStore().backup("made.db")
    assert refused.value.next_step == "Serve a file: `nodrop up`."
