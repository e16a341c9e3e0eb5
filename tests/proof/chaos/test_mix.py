from pathlib import Path

import pytest

from nodrop.proof.chaos import mix
from nodrop.proof.chaos.plan import Plan
from nodrop.testing.proxy import Trouble

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too


async def test_nothing_is_lost_or_duplicated_whatever_happens_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mix, "FILL", 100)
    monkeypatch.setattr(mix, "FAULT_SECONDS_MAX", 0.5)
    # Half-open connections are noticed by and by, and have a test of their own.
    monkeypatch.setattr(mix, "TROUBLES", (Trouble.CUT, Trouble.RESET))
    plan = Plan(fault="mix", count=1, seed=4, folder=tmp_path, seconds=3, callers=16)
    report = await mix.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.count == sum(report.extras["faults"].values()) > 0
    assert report.extras["open"] == 100
    assert report.restarts_ms is not None
