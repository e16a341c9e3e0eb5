"""The file: its settings, who may open it, what it holds when it is opened again."""

import asyncio
import gc
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from weakref import WeakSet

import apsw
import pytest

from nodrop.log.port import Body, Changes, LogPage, Team, Token, Wanted
from nodrop.log.sqlite import SQLiteStore
from nodrop.log.sqlite.driver import Connection
from nodrop.log.sqlite.migrations import APPLICATION_ID, VERSION
from nodrop.model import events
from nodrop.model.errors import StoreCorruptError, StoreInUseError, StoreUnavailableError
from nodrop.protocol.entries import Head, hash_of
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, TEAM, handoff_id, offered, story

DEFAULT_TEAM = Team(id=TEAM, digest_key=b"k" * 32, created_at=T0)
DELIVERED = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)

# Opens the file named on the command line and says how that went.
OPEN = """
import asyncio, sys
from nodrop.model.errors import NodropError
from nodrop.log.sqlite import SQLiteStore
async def main():
    try:
        async with await SQLiteStore.open(sys.argv[1]):
            print("opened")
    except NodropError as error:
        print(error.code)
asyncio.run(main())
"""

# Reads it with Python's own SQLite, as any tool would.
READ = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0).execute("select * from team")
    print("read")
except sqlite3.OperationalError as error:
    print(error)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "nodrop.db"


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    """Every connection that is opened, for looking at what it is really set to."""
    opened: list[Any] = []
    apsw.connection_hooks.append(opened.append)
    yield opened
    apsw.connection_hooks.remove(opened.append)


async def commit(
    store: SQLiteStore,
    changes: Changes,
    *,
    before_it_ends: Callable[[], Awaitable[None]] | None = None,
) -> None:
    async with store.transaction() as tx:
        await tx.append(changes)
        if before_it_ends is not None:
            await before_it_ends()


def run(script: str, path: Path) -> str:
    command = [sys.executable, "-c", script, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout.strip()


# --- settings ---


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),  # FULL
        ("locking_mode", "exclusive"),
        ("fullfsync", 1),
        ("checkpoint_fullfsync", 1),
        ("busy_timeout", 0),
        ("page_size", 4_096),
        ("secure_delete", 1),
        ("application_id", APPLICATION_ID),
        ("user_version", VERSION),
    ],
)
async def test_the_settings_that_the_guarantees_rest_on_are_in_force(
    path: Path, connections: list[Connection], name: str, value: str | int
) -> None:
    for _ in ("made", "opened again"):
        async with await SQLiteStore.open(path):
            assert connections[-1].pragma(name) == value


async def test_only_its_owner_may_read_the_file(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        await store.create_team(DEFAULT_TEAM)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {"nodrop.db": 0o600, "nodrop.db-wal": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


# --- one relay at a time ---


async def test_a_second_opener_is_refused_until_the_first_has_closed(path: Path) -> None:
    first = await SQLiteStore.open(path)
    with pytest.raises(StoreInUseError):
        await SQLiteStore.open(path)
    await first.create_team(DEFAULT_TEAM)  # the refused one has not loosened its hold
    with pytest.raises(StoreInUseError):
        await SQLiteStore.open(path)
    await first.close()
    async with await SQLiteStore.open(path) as second:
        assert await second.teams() == [DEFAULT_TEAM]


async def test_another_process_is_refused_until_the_first_has_closed(path: Path) -> None:
    async with await SQLiteStore.open(path):
        assert run(OPEN, path) == "store_in_use"
        # Also when this process was refused in between: closing a file drops a process's locks.
        with pytest.raises(StoreInUseError):
            await SQLiteStore.open(path)
        assert run(OPEN, path) == "store_in_use"
    assert run(OPEN, path) == "opened"


async def test_another_program_cannot_even_read_it_meanwhile(path: Path) -> None:
    async with await SQLiteStore.open(path):
        assert run(READ, path) == "database is locked"
    assert run(READ, path) == "read"


async def test_an_opening_that_was_cancelled_holds_nothing(path: Path) -> None:
    opening = asyncio.create_task(SQLiteStore.open(path))
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    async with await SQLiteStore.open(path) as store:
        assert await store.teams() == []


# --- opening again ---


async def test_everything_is_there_when_the_file_is_opened_again(path: Path) -> None:
    told = story(offered(), DELIVERED, command_id="c1", bodies={1: b"offer"})
    token = Token(team=TEAM, id="t", secret_sha256="0" * 64, agent="a", role="agent", created_at=T0)
    async with await SQLiteStore.open(path) as store:
        await store.create_team(DEFAULT_TEAM)
        await commit(store, told.changes)
        await commit(store, Changes(tokens=[token]))
        log = await store.log(LogPage(team=TEAM, limit=10))
        inbox = await store.inbox(TEAM, RECIPIENT, after=0, limit=10)
    async with await SQLiteStore.open(path) as store:
        assert await store.handoffs([(TEAM, handoff_id(1))]) == [told.handoff]
        assert await store.log(LogPage(team=TEAM, limit=10)) == log
        assert await store.inbox(TEAM, RECIPIENT, after=0, limit=10) == inbox
        assert await store.entry_bodies(TEAM, [1]) == {1: Body(salt=b"", body=b"offer")}
        assert await store.tokens() == [token]
        assert await store.head(TEAM) == Head(seq=2, hash=log[-1].hash)
        async with store.transaction() as tx:
            loaded = await tx.load(Wanted(commands=frozenset({(TEAM, "inbox_monitor", "c1")})))
            assert [place.seq for place in loaded.commands[TEAM, "inbox_monitor", "c1"]] == [1, 2]
            assert await tx.append(story(offered(), number=2).changes) == [3]
        assert all(e.hash == hash_of(e) for e in await store.log(LogPage(team=TEAM, limit=10)))


async def test_closing_leaves_one_file(path: Path) -> None:
    async with await SQLiteStore.open(path) as store:
        await store.create_team(DEFAULT_TEAM)
        assert sorted(file.name for file in path.parent.iterdir()) == ["nodrop.db", "nodrop.db-wal"]
    assert [file.name for file in path.parent.iterdir()] == ["nodrop.db"]


async def test_a_closed_store_refuses(path: Path) -> None:
    store = await SQLiteStore.open(path)
    await store.create_team(DEFAULT_TEAM)
    with pytest.raises(StoreUnavailableError):
        await commit(store, story(offered()).changes, before_it_ends=store.close)
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await store.teams()
    async with await SQLiteStore.open(path) as again:
        assert await again.head(TEAM) == Head()


# --- files that are not for us ---


@pytest.fixture
def songs(path: Path) -> bytes:
    """A database of another program at `path`."""
    path.parent.mkdir()
    foreign = sqlite3.connect(path)
    foreign.execute("create table songs (title text)")
    foreign.close()
    return path.read_bytes()


def content(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.parent.iterdir()}


async def test_a_database_of_another_program_is_refused_and_left_alone(
    path: Path, songs: bytes
) -> None:
    with pytest.raises(StoreUnavailableError, match="another program"):
        await SQLiteStore.open(path)
    assert content(path) == {"nodrop.db": songs}


@pytest.fixture
def notes(path: Path) -> bytes:
    """A file at `path` that is no database at all."""
    path.parent.mkdir()
    path.write_bytes(b"These are my notes, not a database. " * 50)
    return path.read_bytes()


async def test_a_file_that_is_no_database_is_refused_and_left_alone(
    path: Path, notes: bytes
) -> None:
    with pytest.raises(StoreCorruptError, match="not a database"):
        await SQLiteStore.open(path)
    assert content(path) == {"nodrop.db": notes}


async def test_a_database_of_a_later_nodrop_is_refused_and_says_so(path: Path) -> None:
    async with await SQLiteStore.open(path):
        pass
    later = sqlite3.connect(path)
    later.execute(f"pragma user_version = {VERSION + 1}")
    later.close()
    with pytest.raises(StoreUnavailableError, match=f"schema {VERSION + 1}") as refused:
        await SQLiteStore.open(path)
    assert "later" in refused.value.next_step


async def test_a_path_that_cannot_be_opened_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be opened"):
        await SQLiteStore.open(tmp_path)  # a directory


class Step:
    """A migration that is not in the package."""

    def __init__(self, sql: str) -> None:
        self._sql = sql

    def read_text(self, encoding: str) -> str:
        assert encoding == "utf-8"
        return self._sql


async def test_a_migration_is_applied_once_and_only_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, connections: list[Connection]
) -> None:
    def next_step_is(sql: str) -> None:
        steps = [Step(""), Step(sql)]  # the first is the one that is in the package
        monkeypatch.setattr("nodrop.log.sqlite.migrations._STEPS", steps)
        monkeypatch.setattr("nodrop.log.sqlite.migrations.VERSION", VERSION + 1)

    async with await SQLiteStore.open(path) as store:
        await store.create_team(DEFAULT_TEAM)
    next_step_is("create table extra (x); create table team (y)")
    with pytest.raises(StoreUnavailableError, match="already exists"):
        await SQLiteStore.open(path)
    next_step_is("create table extra (x)")
    for _ in ("migrated", "opened again"):
        async with await SQLiteStore.open(path) as store:
            assert connections[-1].pragma("user_version") == VERSION + 1
            assert await store.teams() == [DEFAULT_TEAM]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_file_from_before_the_first_release_is_refused_and_says_what_to_do(
    path: Path, version: int
) -> None:
    async with await SQLiteStore.open(path):
        pass
    earlier = sqlite3.connect(path)
    earlier.execute(f"pragma user_version = {version}")
    earlier.close()
    with pytest.raises(StoreUnavailableError, match=f"schema {version}, from before") as refused:
        await SQLiteStore.open(path)
    assert "Name another file" in refused.value.next_step


async def test_visits_that_are_over_are_forgotten_though_all_were_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits: WeakSet[Future[Any]] = WeakSet()

    def submit(thread: ThreadPoolExecutor, call: Callable[..., Any], *args: Any) -> Future[Any]:
        visit = as_it_is(thread, call, *args)
        visits.add(visit)
        return visit

    as_it_is = ThreadPoolExecutor.submit
    monkeypatch.setattr(ThreadPoolExecutor, "submit", submit)
    async with await SQLiteStore.open(path) as store:
        await store.create_team(DEFAULT_TEAM)
        for _ in range(100):
            assert await store.log(LogPage(team=TEAM, after=0, limit=10)) == []
        gc.collect()
        assert 0 < len(visits) < 10
