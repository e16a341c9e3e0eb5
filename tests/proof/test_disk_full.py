"""Full disks under the real store and engine, in this process."""

from pathlib import Path
from random import Random

import apsw
import pytest

from nodrop_proof.chaos import disk_full
from nodrop_proof.chaos.in_process import ANSWER_BEFORE_SYNC
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.kit.powercut import PowerCutDisk

pytestmark = pytest.mark.timeout(240)  # seconds of work, which others may want to share

FILE = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_READWRITE


def plan(folder: Path, count: int, *controls: str) -> Plan:
    return Plan(fault="disk-full", count=count, seed=6, folder=folder, controls=frozenset(controls))


def unheard(done: int, of: int) -> None:
    assert done <= of


async def test_a_full_disk_refuses_loses_nothing_and_serves_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    report = await disk_full.run_in_process(plan(tmp_path, 40), unheard)
    assert report.ok, report.findings
    assert report.count == 40
    assert report.acknowledged > 100
    assert report.extras["refusals"]["store_full"] >= 40
    moments = report.extras["moments"]
    assert moments.keys() == {"served again", "full from the start", "power went too"}


async def test_a_relay_that_answers_before_its_commit_loses_what_there_was_no_room_for(
    tmp_path: Path,
) -> None:
    report = await disk_full.run_in_process(plan(tmp_path, 4, ANSWER_BEFORE_SYNC), unheard)
    assert report.lost > 0
    assert "store_full" not in report.extras["refusals"]


async def test_where_nothing_can_be_mounted_the_disk_is_in_memory_and_the_report_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # where there is no `mount`
    report = await disk_full.run(plan(tmp_path, 3), unheard)
    assert report.ok, report.findings
    assert report.extras["disk"].startswith("a disk in memory")


def test_a_disk_takes_as_much_of_a_write_as_it_has_room_for(tmp_path: Path) -> None:
    disk = PowerCutDisk("nodrop-test-room", Random(0))
    file = disk.xOpen(str(tmp_path / "file"), [FILE, 0])
    disk.room_bytes = 1_000
    file.xWrite(b"a" * 900, 0)
    with pytest.raises(apsw.FullError):
        file.xWrite(b"b" * 200, 900)
    assert file.xFileSize() == 1_000
    file.xWrite(b"c" * 1_000, 0)  # in place: no more than there is
    disk.room_bytes = None
    file.xWrite(b"d" * 200, 1_000)
    assert file.xRead(2_000, 0) == b"c" * 1_000 + b"d" * 200
    disk.unregister()
