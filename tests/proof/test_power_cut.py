"""Power cuts on the real store and engine; the disk that has them; what would notice a loss."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from kit import tampered
from nodrop.log.port import Store
from nodrop.model.errors import StoreUnavailableError
from nodrop.testing.clock import FakeClock
from nodrop_proof.chaos import power_cut
from nodrop_proof.chaos.colleagues import Desk, at_work, team
from nodrop_proof.chaos.in_process import ANSWER_BEFORE_SYNC, SYNCHRONOUS_NORMAL, Host
from nodrop_proof.chaos.memory import Memory
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.remains import Connection, examine
from nodrop_proof.chaos.report import Report
from nodrop_proof.kit.powercut import SECTOR_BYTES, Cut, PowerCutDisk

pytestmark = pytest.mark.timeout(240)  # seconds of work, which others may want to share

SEEDS = range(200)
RENAME = "update handoff set json = cast(replace(cast(json as text), 'worker', 'w') as blob)"
FILE = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE
LOG = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE


async def cut(folder: Path, *, count: int, seed: int, control: str | None = None) -> Report:
    controls = frozenset({control} if control else ())
    plan = Plan(fault="power-cut", count=count, seed=seed, folder=folder, controls=controls)
    heard: list[int] = []
    report = await power_cut.run(plan, lambda done, _: heard.append(done))
    assert heard[-1] == report.count == count
    return report


# --- the proof ---


async def test_nothing_that_was_answered_is_lost_in_a_power_cut(tmp_path: Path) -> None:
    report = await cut(tmp_path, count=100, seed=20_261_115)
    assert report.ok, report.findings
    assert report.acknowledged > 300
    assert report.extras["moments"].keys() == {"opening", "working", "closing", "sync failed"}


@pytest.mark.parametrize("control", [SYNCHRONOUS_NORMAL, ANSWER_BEFORE_SYNC])
async def test_the_same_cuts_take_answers_away_from_a_relay_that_answers_too_early(
    tmp_path: Path, control: str
) -> None:
    report = await cut(tmp_path, count=16, seed=20_261_115, control=control)
    assert report.lost > 0
    assert not report.ok


async def test_a_database_may_lose_power_at_any_moment_of_being_made(tmp_path: Path) -> None:
    """Not at random: at every single operation, before it and after it."""
    number = 1
    while await cut_while_made(tmp_path / "made.db", number, done=False):
        await cut_while_made(tmp_path / "made.db", number, done=True)
        number += 1
    assert number > 50


async def cut_while_made(path: Path, number: int, *, done: bool) -> bool:
    """Cut the power at an operation, make it again; return whether there was such an operation."""
    disk = PowerCutDisk("nodrop-test-made", Random(number))
    disk.cut_at(Cut(number=number, done=done))
    host = Host(path, disk, clock=FakeClock(), random=Random(0))
    try:
        async with host.opened() as (store, _), host.relay_on(store):
            pass
    except StoreUnavailableError:
        assert disk.off
    cut = disk.off
    if cut:
        disk.power_on()
        async with host.opened() as (store, connection), host.relay_on(store):
            assert (await examine(store, Memory(), connection)).wrong == ()
    disk.unregister()
    return cut


# --- the disk ---


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "file")


def cut_disk(seed: int, *writes: tuple[int, bytes], path: str, synced: bytes = b"") -> bytes:
    """Return what is left of a file after `writes` that were not synced."""
    disk = PowerCutDisk(f"nodrop-test-{seed}", Random(seed))
    file = disk.xOpen(path, [FILE, 0])
    log = disk.xOpen(path + "-wal", [LOG, 0])
    file.xWrite(synced, 0)
    file.xSync(0)
    log.xSync(0)  # makes the names durable
    for offset, data in writes:
        file.xWrite(data, offset)
    disk.cut()
    with pytest.raises(apsw.IOError):
        file.xRead(1, 0)
    disk.power_on()
    with pytest.raises(apsw.IOError):
        file.xRead(1, 0)  # it was opened in another life
    survived = disk.xOpen(path, [FILE, 0])
    left = survived.xRead(survived.xFileSize(), 0)
    disk.unregister()
    return left


def test_what_was_synced_is_there_whatever_comes_of_the_rest(path: str) -> None:
    synced = b"s" * 3 * SECTOR_BYTES
    for seed in SEEDS:
        rest = (len(synced), b"n" * SECTOR_BYTES)
        assert cut_disk(seed, rest, path=path, synced=synced).startswith(synced)


def test_what_was_not_synced_is_kept_dropped_and_torn(path: str) -> None:
    before, after = b"b" * 4 * SECTOR_BYTES, b"a" * 4 * SECTOR_BYTES
    left = [cut_disk(seed, (0, after), path=path, synced=before) for seed in SEEDS]
    sectors = {state[n : n + SECTOR_BYTES] for state in left for n in range(0, 2_048, SECTOR_BYTES)}
    assert sectors == {before[:SECTOR_BYTES], after[:SECTOR_BYTES]}, "no sector is torn"
    assert before in left
    assert after in left
    assert any(state not in {before, after} for state in left)


def test_two_writes_may_reach_the_disk_in_either_order(path: str) -> None:
    first, second = b"1" * SECTOR_BYTES, b"2" * SECTOR_BYTES
    left = {cut_disk(seed, (0, first), (0, second), path=path) for seed in SEEDS}
    assert left == {b"", first, second}


def test_a_later_write_may_survive_an_earlier_one_and_what_is_between_is_anything(
    path: str,
) -> None:
    first, second = b"1" * SECTOR_BYTES, b"2" * SECTOR_BYTES
    writes = ((0, first), (SECTOR_BYTES, second))
    left = {cut_disk(seed, *writes, path=path) for seed in SEEDS}
    without_the_first = {state[:SECTOR_BYTES] for state in left if state[SECTOR_BYTES:] == second}
    assert len(without_the_first - {first}) > 1


def test_a_seed_repeats_what_is_lost(path: str) -> None:
    write = (0, b"w" * 64 * SECTOR_BYTES)
    assert [cut_disk(n, write, path=path) for n in SEEDS] == [
        cut_disk(n, write, path=path) for n in SEEDS
    ]


def test_a_name_is_durable_only_once_its_directory_is_synced(path: str) -> None:
    kept: set[bool] = set()
    for seed in SEEDS:
        disk = PowerCutDisk("nodrop-test-names", Random(seed))
        file = disk.xOpen(path, [FILE, 0])
        file.xSync(0)
        disk.cut()
        disk.power_on()
        kept.add(disk.xAccess(path, 0))
        disk.unregister()
    assert kept == {True, False}


def test_what_a_failed_sync_left_behind_may_be_gone_though_later_syncs_succeed(path: str) -> None:
    left: set[bytes] = set()
    for seed in SEEDS:
        disk = PowerCutDisk("nodrop-test-failing", Random(seed))
        file, log = disk.xOpen(path, [FILE, 0]), disk.xOpen(path + "-wal", [LOG, 0])
        log.xSync(0)
        file.xWrite(b"abc", 0)
        disk.syncs_fail = 1.0
        with pytest.raises(apsw.IOError):
            file.xSync(0)
        disk.syncs_fail = 0.0
        file.xSync(0)
        assert file.xRead(3, 0) == b"abc"
        disk.cut()
        disk.power_on()
        left.add(disk.xOpen(path, [FILE, 0]).xRead(3, 0))
        disk.unregister()
    assert left == {b"", b"abc"}


def test_reads_see_what_is_not_synced_while_the_power_is_on(path: str) -> None:
    disk = PowerCutDisk("nodrop-test-reads", Random(0))
    file = disk.xOpen(path, [FILE, 0])
    file.xWrite(b"abc", 0)
    file.xTruncate(2)
    assert file.xRead(3, 0) == b"ab"
    assert file.xFileSize() == 2
    disk.unregister()


# --- what would notice ---


Database = tuple[Store, Connection, Memory]
Tamper = Callable[[Any], None]


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """Return a database that was worked on, and what was told about it."""
    disk = PowerCutDisk("nodrop-test-remains", Random(0))
    desk = Desk(FakeClock(), Random(0))
    host = Host(tmp_path / "worked-on.db", disk, clock=desk.clock, random=Random(0))
    colleagues = team(desk, Random(0), requesters=4, workers=2)
    async with (
        asyncio.timeout(60),
        host.opened() as (store, _),
        host.relay_on(store) as relay,
        at_work(colleagues),
    ):
        desk.serve(relay, store)
        await desk.answers(300)
        desk.close()
    async with host.opened() as (store, connection):
        yield store, connection, desk.memory
    disk.unregister()


async def test_a_database_that_was_left_alone_has_nothing_wrong_with_it(
    database: Database,
) -> None:
    store, connection, memory = database
    remains = await examine(store, memory, connection)
    assert (remains.lost, remains.duplicated, remains.wrong) == ((), (), ())
    assert remains.entries > 100


def statement(sql: str) -> Tamper:
    return lambda connection: connection.execute(sql)


def only(kept: Callable[[tampered.Line], bool]) -> Tamper:
    return lambda connection: tampered.entries(connection, lambda e: e if kept(e) else None)


def said(seq: int | None = None, **otherwise: Any) -> Tamper:
    def change(line: tampered.Line) -> tampered.Line:
        return {**line, **otherwise} if seq in {None, line["seq"]} else line

    return lambda connection: tampered.entries(connection, change)


def without_bodies(connection: Any) -> None:
    tampered.bodies(connection, lambda _seq, _body: None)


def other_bodies(connection: Any) -> None:
    tampered.bodies(connection, lambda _seq, _body: b"{}")


ROW = "the row is not"


@pytest.mark.parametrize(
    ("tamper", "kind", "finding"),
    [
        (statement("delete from handoff where id = (select min(id) from handoff)"), "wrong", ROW),
        (statement(RENAME), "wrong", ROW),
        (only(lambda line: line["seq"] < 100), "wrong", "the log ends at"),
        (only(lambda line: line["seq"] != 20), "wrong", "is missing"),
        (said(20, actor="mallory"), "wrong", "was changed"),
        (without_bodies, "wrong", "its body is gone"),
        (other_bodies, "wrong", "its body is another"),
        (said(command_id=None), "lost", "was answered"),
        (said(at=1), "lost", "was shown"),
        (only(lambda line: line["type"] != "handoff.offered.v1"), "lost", "the log has no offer"),
        (only(lambda line: line["type"] != "token.created.v1"), "lost", "was handed out"),
    ],
)
async def test_an_examination_notices(
    database: Database, tamper: Tamper, kind: str, finding: str
) -> None:
    store, connection, memory = database
    connection.pragma("ignore_check_constraints", 1)
    tamper(connection)
    remains = await examine(store, memory, connection)
    assert any(finding in found for found in getattr(remains, kind)), remains
