from pathlib import Path

import pytest

from nodrop_proof.chaos import mix
from nodrop_proof.chaos.callers import KEYLESS
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.kit.proxy import Trouble

ROUNDS_MAX = 5

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too


async def test_nothing_is_lost_or_duplicated_whatever_happens_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mix, "FAULT_SECONDS_MAX", 0.5)
    # Half-open connections are noticed by and by, and have a test of their own.
    monkeypatch.setattr(mix, "TROUBLES", (Trouble.CUT, Trouble.RESET))
    plan = Plan(fault="mix", count=1, seed=4, folder=tmp_path, seconds=3, callers=16)
    report = await mix.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.count == sum(report.extras["faults"].values()) > 0
    assert report.acknowledged == report.extras["outcomes"] > 60
    assert report.restarts_ms is not None


async def test_without_keys_answers_that_get_lost_leave_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mix, "FAULT_SECONDS_MAX", 0.2)
    monkeypatch.setattr(mix, "PAUSE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(mix, "STRIKES", ("network",))
    monkeypatch.setattr(mix, "TROUBLES", (Trouble.CUT, Trouble.RESET))
    for seed in range(ROUNDS_MAX):
        plan = Plan(
            fault="mix",
            count=1,
            seed=seed,
            folder=tmp_path / str(seed),
            seconds=3,
            callers=32,
            controls=frozenset([KEYLESS]),
        )
        if (await mix.run(plan, lambda _done, _of: None)).duplicated:
            return
    pytest.fail(f"nothing found in {ROUNDS_MAX} rounds: the check could not fail either")
