"""A busy worker in a process of its own, killed with -9 while handoffs wait in its queue."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from kit import mutations
from nodrop import app
from nodrop_proof.chaos import queue_kill, short_silence
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.relay_process import ServedRelay
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import UNQUEUED

pytestmark = pytest.mark.timeout(300)  # real processes, on a machine that does other things too


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[ServedRelay]:
    """A relay in this process, whose parts a test can take out."""
    up: asyncio.Future[app.Served] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    home, limits = tmp_path / "home", short_silence.bounds()
    serving = asyncio.create_task(
        app.serve(home, port=0, limits=limits, ready=up.set_result, stop=stop)
    )
    yield ServedRelay(home, (await up).url)
    stop.set()
    await serving


async def once(relay: ServedRelay, folder: Path, *controls: str) -> Report:
    plan = Plan(fault="queue-kill", count=1, seed=1, folder=folder, controls=frozenset(controls))
    return await queue_kill.torment(plan, lambda _done, _of: None, relay)


async def test_a_killed_agent_holds_nothing_by_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How quick it is on a quiet machine is what `nodrop prove chaos queue-kill` tells.
    monkeypatch.setattr(queue_kill, "ACK_MS_MAX", 30_000)
    plan = Plan(fault="queue-kill", count=2, seed=1, folder=tmp_path)  # of one process, and of two
    report = await queue_kill.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.extras["outcomes"] == 2 * queue_kill.BURST
    assert report.extras["queued_acks_void"] == 4 + 4
    assert report.restarts_ms is not None


async def test_control_where_it_is_never_void_the_dead_hold_on(
    relay: ServedRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_kill, "WAIT_SECONDS_MAX", 20.0)
    monkeypatch.setattr(queue_kill, "ACK_MS_MAX", 0)
    with mutations.never_void():
        report = await once(relay, tmp_path)
    held = [finding for finding in report.findings if "is gone, and still holds it" in finding]
    late = [finding for finding in report.findings if ": acknowledged after " in finding]
    assert (len(held), len(late)) == (4, 5), report.findings
    assert (report.lost, report.duplicated, report.steps_rerun, report.wrong) == (0, 0, 0, 9)


async def test_control_where_workers_leave_it_waiting_the_person_is_told(
    relay: ServedRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_kill, "WAIT_SECONDS_MAX", 10.0)
    report = await once(relay, tmp_path, UNQUEUED)
    assert "busy-0: 4 of 5 are not acknowledged" in report.findings
    assert sum("had it queued, and it went on" in finding for finding in report.findings) == 4
