from pathlib import Path

import pytest

from nodrop_proof.chaos import relay_kill
from nodrop_proof.chaos.callers import KEYLESS
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too


async def killed(folder: Path, *, count: int, seed: int, control: str | None = None) -> Report:
    plan = Plan(
        fault="relay-kill",
        count=count,
        seed=seed,
        folder=folder,
        open=100,
        controls=frozenset([control] if control else []),
    )
    return await relay_kill.run(plan, lambda _done, _of: None)


async def test_nothing_is_lost_or_duplicated_although_the_relay_is_killed(tmp_path: Path) -> None:
    report = await killed(tmp_path, count=2, seed=7)
    assert report.ok, report.findings
    assert report.acknowledged >= 100 + 2 * relay_kill.FLOW_ANSWERS
    assert report.extras["open"] == 100
    assert report.extras["outcomes"] == report.acknowledged - 100
    assert report.restarts_ms is not None
    assert report.restarts_ms.count == 2


async def test_without_keys_a_killed_relay_leaves_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_kill, "UNHEARD_SHARE", 1.0)
    monkeypatch.setattr(relay_kill, "UNHEARD_SECONDS", (2.0, 2.0))  # enough to commit what it got
    report = await killed(tmp_path, count=2, seed=7, control=KEYLESS)
    assert report.duplicated > 0, "the check could not fail"
    assert report.lost == 0
