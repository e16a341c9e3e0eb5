from pathlib import Path

import pytest

from nodrop_proof.chaos import node_kill
from nodrop_proof.chaos.callers import KEYLESS
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report

pytestmark = pytest.mark.timeout(300)  # real processes, on a machine that does other things too


async def killed(
    folder: Path,
    *,
    count: int,
    nodes: int,
    seed: int,
    callers: int = 16,
    control: str | None = None,
) -> Report:
    plan = Plan(
        fault="node-kill",
        count=count,
        seed=seed,
        folder=folder,
        open=20,
        nodes=nodes,
        callers=callers,
        controls=frozenset([control] if control else []),
    )
    return await node_kill.run(plan, lambda _done, _of: None)


@pytest.mark.parametrize(("nodes", "count"), [(2, 4), (3, 6)])
async def test_nothing_is_lost_or_duplicated_although_relays_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: int, count: int
) -> None:
    # What takes time is a relay's start, which callers slow down: few of them, and no rest.
    monkeypatch.setattr(node_kill, "DOWN_SECONDS", 0.1)
    report = await killed(tmp_path, count=count, nodes=nodes, seed=7, callers=4)
    assert report.ok, report.findings
    assert report.acknowledged >= 20 + count * node_kill.FLOW_ANSWERS
    assert report.extras["timers"] > 0
    assert report.restarts_ms is not None
    assert report.restarts_ms.count == count


async def test_without_keys_killed_relays_leave_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_kill, "UNHEARD_SHARE", 1.0)
    monkeypatch.setattr(node_kill, "UNHEARD_SECONDS", (2.0, 2.0))  # enough to commit what it got
    report = await killed(tmp_path, count=2, nodes=2, seed=7, control=KEYLESS)
    assert report.duplicated > 0, "the check could not fail"
    assert report.lost == 0
