from pathlib import Path

import pytest

from kit.unfenced import unfenced
from nodrop_proof.chaos import crew, worker_kill
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.relay_process import ServedRelay
from nodrop_proof.chaos.worker import UNASKED

pytestmark = pytest.mark.timeout(300)  # real processes, on a machine that does other things too

ROUNDS_MAX = 10


async def test_nothing_is_lost_or_run_again_although_workers_are_killed(tmp_path: Path) -> None:
    plan = Plan(fault="worker-kill", count=4, seed=3, folder=tmp_path)
    report = await worker_kill.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.acknowledged == report.extras["outcomes"] > 4 * worker_kill.FLOW_ANSWERS
    assert report.extras["deliveries_lapsed"] > 0, "nobody was killed in the middle of anything"
    assert report.extras["stalls"] > 0
    assert report.extras["queued_acks"] > 0, "nothing waited"


async def test_without_fencing_a_stalled_worker_acts_on_what_others_have(
    relay: ServedRelay, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_kill, "STALL_SHARE", 1.0)
    with unfenced():
        for seed in range(ROUNDS_MAX):
            folder = tmp_path_factory.mktemp("round")
            plan = Plan(fault="worker-kill", count=12, seed=seed, folder=folder, callers=24)
            report = await worker_kill.torment(
                plan, lambda _done, _of: None, relay, workers=3, name=f"round-{seed}"
            )
            if report.duplicated or report.steps_rerun:
                return
    pytest.fail(f"nothing found in {ROUNDS_MAX} rounds: the check could not fail either")


async def test_without_asking_first_a_stalled_worker_runs_recorded_steps_again(
    relay: ServedRelay, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_kill, "STALL_SHARE", 1.0)
    monkeypatch.setattr(crew, "STALL_SECONDS", (1.0, 2.0))
    for seed in range(ROUNDS_MAX):
        folder = tmp_path_factory.mktemp("round")
        controls = frozenset([UNASKED])
        plan = Plan(fault="worker-kill", count=6, seed=seed, folder=folder, controls=controls)
        report = await worker_kill.torment(
            plan, lambda _done, _of: None, relay, workers=3, name=f"round-{seed}"
        )
        assert (report.lost, report.duplicated) == (0, 0), report.findings
        if report.steps_rerun:
            return
    pytest.fail(f"nothing found in {ROUNDS_MAX} rounds: the check could not fail either")
