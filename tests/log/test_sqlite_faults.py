"""What goes wrong under a store: a full disk, a failing one, kill -9, a contradiction."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from nodrop.log.port import Changes, LogPage, Team
from nodrop.log.sqlite import SQLiteStore
from nodrop.model import events
from nodrop.model.errors import StoreFullError, StoreUnavailableError
from nodrop.protocol.entries import hash_of
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, handoff_id, offered, story

FIRST = (TEAM, handoff_id(1))
DELIVERED = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)


class FaultyFile(apsw.VFSFile):
    """A file that fails when its disk is told to."""

    def __init__(self, disk: "Disk", name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._disk = disk

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802  # SQLite's name
        if self._disk.is_full:
            raise apsw.FullError
        super().xWrite(data, offset)  # pyright: ignore[reportUnknownMemberType]  # stubs need 3.12

    def xSync(self, flags: int) -> None:  # noqa: N802  # SQLite's name
        self._disk.syncs += 1
        if self._disk.is_failing:
            raise apsw.IOError
        super().xSync(flags)

    def excepthook(self, etype: Any, evalue: Any, etraceback: Any) -> bool:
        """SQLite has the error; there is no need to print it as well."""
        del etype, evalue, etraceback
        return True


class Disk(apsw.VFS):
    """The machine's own disk with switches."""

    def __init__(self) -> None:
        super().__init__("nodrop-test-disk", "")
        self.is_full = False
        self.is_failing = False
        self.syncs = 0

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:  # noqa: N802  # SQLite's name
        return FaultyFile(self, name, flags)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nodrop.db"


@pytest.fixture
async def store(path: Path, disk: Disk) -> AsyncIterator[SQLiteStore]:
    del disk  # registered by being made
    async with await SQLiteStore.open(path, vfs="nodrop-test-disk") as store:
        await make_team(store)
        yield store


async def make_team(store: SQLiteStore) -> None:
    await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))


async def commit(store: SQLiteStore, changes: Changes) -> None:
    async with store.transaction() as tx:
        await tx.append(changes)


async def assert_log_is_whole(store: SQLiteStore, entries: int) -> None:
    log = await store.log(LogPage(team=TEAM, limit=10_000))
    assert [entry.seq for entry in log] == list(range(1, entries + 1))
    assert [entry.prev_hash for entry in log[1:]] == [entry.hash for entry in log[:-1]]
    assert all(entry.hash == hash_of(entry) for entry in log)
    assert (await store.head(TEAM)).seq == entries


def assert_file_is_whole(path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    connection.close()


# --- the disk ---


async def test_a_commit_is_synced_before_it_is_answered(store: SQLiteStore, disk: Disk) -> None:
    disk.syncs = 0
    await commit(store, story(offered()).changes)
    assert disk.syncs == 1


async def test_the_count_of_syncs_would_notice_a_store_that_does_not(
    path: Path, disk: Disk
) -> None:
    store = await SQLiteStore.open(path, vfs="nodrop-test-disk", synchronous="OFF")
    async with store:
        await make_team(store)
        disk.syncs = 0
        await commit(store, story(offered()).changes)
        assert disk.syncs == 0


async def test_a_full_disk_refuses_and_the_store_goes_on_when_there_is_room(
    store: SQLiteStore, disk: Disk, path: Path
) -> None:
    told = story(offered(), bodies={1: b"offer"})
    await commit(store, told.changes)
    later = story(DELIVERED, after=told.handoff, bodies={2: b"x" * 100_000})
    disk.is_full = True
    for _ in range(3):
        with pytest.raises(StoreFullError):
            await commit(store, later.changes)
    assert await store.handoffs([FIRST]) == [told.handoff]
    await assert_log_is_whole(store, 1)
    disk.is_full = False
    await commit(store, later.changes)
    assert await store.handoffs([FIRST]) == [later.handoff]
    await assert_log_is_whole(store, 2)
    await store.close()
    assert_file_is_whole(path)


async def test_a_disk_with_no_room_for_a_new_file_says_so(path: Path, disk: Disk) -> None:
    disk.is_full = True
    with pytest.raises(StoreFullError):
        await SQLiteStore.open(path, vfs="nodrop-test-disk")
    disk.is_full = False
    async with await SQLiteStore.open(path, vfs="nodrop-test-disk") as store:
        assert await store.teams() == []


async def test_a_file_that_may_grow_no_more_is_a_full_disk(path: Path) -> None:
    opened: list[Any] = []
    apsw.connection_hooks.append(opened.append)
    try:
        store = await SQLiteStore.open(path)
    finally:
        apsw.connection_hooks.remove(opened.append)
    async with store:
        await make_team(store)
        pages: int = opened[0].pragma("page_count")
        opened[0].pragma("max_page_count", pages + 10)
        big = story(offered(), bodies={1: b"x" * 1_000_000})
        with pytest.raises(StoreFullError):
            await commit(store, big.changes)
        await assert_log_is_whole(store, 0)
        opened[0].pragma("max_page_count", 1_000_000)
        await commit(store, big.changes)
        await assert_log_is_whole(store, 1)


async def test_a_commit_that_may_or_may_not_be_on_disk_is_unavailable(
    store: SQLiteStore, disk: Disk
) -> None:
    told = story(offered())
    await commit(store, told.changes)
    later = story(DELIVERED, after=told.handoff)
    disk.is_failing = True
    with pytest.raises(StoreUnavailableError):
        await commit(store, later.changes)
    disk.is_failing = False
    # Whichever it was: row and log agree, and the next commit follows the last that counts.
    [handoff] = await store.handoffs([FIRST])
    await assert_log_is_whole(store, handoff.version)
    await commit(store, story(events.Noted(), after=handoff).changes)
    await assert_log_is_whole(store, handoff.version + 1)


async def test_what_was_erased_is_in_no_file(store: SQLiteStore, path: Path) -> None:
    secret = b"jane@company.com" * 1_000  # longer than a page
    short = b"a short secret, inside of a page"
    await commit(store, story(offered(), number=1, bodies={1: secret}).changes)
    await commit(store, story(offered(), number=1_000, bodies={1: b"kept" * 10}).changes)

    def found(text: bytes) -> bool:
        return any(text in file.read_bytes() for file in path.parent.iterdir())

    await commit(store, story(offered(), number=2, bodies={1: short}).changes)
    assert found(secret[:16])
    assert found(short)
    assert await store.erase(TEAM, handoff_id(1)) == 1
    assert await store.erase(TEAM, handoff_id(2)) == 1
    assert not found(secret[:16])
    assert not found(short)
    assert found(b"kept" * 10)


# --- kill -9 ---

# Commits three handoffs, then stops inside the commit of the fourth: every statement has run, and
# only the write to the log file is missing.
STOPPED_IN_A_COMMIT = """
import asyncio, signal, sys
import apsw
from nodrop.log.port import Team
from nodrop.log.sqlite import SQLiteStore
from nodrop.testing.handoffs import TEAM, offered, story

def stop():
    print("committing", flush=True)
    signal.pause()

async def main():
    connections = []
    apsw.connection_hooks.append(connections.append)
    store = await SQLiteStore.open(sys.argv[1])
    await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=0))
    for number in range(1, 5):
        if number == 4:
            connections[0].set_commit_hook(stop)
        async with store.transaction() as tx:
            [seq] = await tx.append(story(offered(), number=number, bodies={1: b"x" * 9_000}).changes)
        print("committed", seq, flush=True)

asyncio.run(main())
"""

# Commits handoffs as fast as it can, and says so after each.
BUSY = """
import asyncio, sys
from nodrop.log.port import Team
from nodrop.log.sqlite import SQLiteStore
from nodrop.testing.handoffs import TEAM, offered, story

async def main():
    store = await SQLiteStore.open(sys.argv[1])
    await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=0))
    number = 0
    while True:
        async with store.transaction() as tx:
            for _ in range(10):
                number += 1
                seqs = await tx.append(story(offered(), number=number, bodies={1: b"x" * 900}).changes)
        print("committed", seqs[-1], flush=True)

asyncio.run(main())
"""


async def killed(script: str, path: Path, *, after: str) -> list[str]:
    """Run `script` until it prints `after`, kill -9 it, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(path), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    printed: list[str] = []
    async with asyncio.timeout(30):
        while after not in printed:
            line = await process.stdout.readline()
            assert line, "it ended by itself"
            printed.append(line.decode().strip())
        process.send_signal(signal.SIGKILL)
        printed.extend((await process.stdout.read()).decode().splitlines())
        assert await process.wait() == -signal.SIGKILL
    return printed


async def test_kill_9_in_the_middle_of_a_commit_loses_nothing_that_was_committed(
    path: Path,
) -> None:
    printed = await killed(STOPPED_IN_A_COMMIT, path, after="committing")
    assert printed == ["committed 1", "committed 2", "committed 3", "committing"]
    async with await SQLiteStore.open(path) as store:
        await assert_log_is_whole(store, 3)
        keys = [(TEAM, handoff_id(number)) for number in range(1, 5)]
        assert len(await store.handoffs(keys)) == 3
        assert sorted(await store.entry_bodies(TEAM, [1, 2, 3, 4])) == [1, 2, 3]
        await commit(store, story(offered(), number=4).changes)
        await assert_log_is_whole(store, 4)
    assert_file_is_whole(path)


async def test_kill_9_at_any_time_loses_nothing_that_was_answered(path: Path) -> None:
    printed = await killed(BUSY, path, after="committed 300")
    answered = int([line for line in printed if line.startswith("committed")][-1].split()[1])
    async with await SQLiteStore.open(path) as store:
        kept = (await store.head(TEAM)).seq
        assert kept >= answered
        assert kept % 10 == 0, "a transaction was kept in part"
        await assert_log_is_whole(store, kept)
    assert_file_is_whole(path)
