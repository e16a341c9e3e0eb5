from pathlib import Path

import pytest

from nodrop.proof.chaos import slow_consumer
from nodrop.proof.chaos.plan import Plan

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too


async def test_what_waits_for_a_slow_reader_is_neither_lost_nor_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_consumer, "WORKERS", 10)
    monkeypatch.setattr(slow_consumer, "BURST", 40)  # as many bytes as ever, in fewer handoffs
    monkeypatch.setattr(slow_consumer, "SLOW_PADDING", 500_000)
    plan = Plan(fault="slow-consumer", count=1, seed=1, folder=tmp_path, seconds=3)
    report = await slow_consumer.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.acknowledged == report.extras["outcomes"] > 80
    assert report.extras["others_p99_ratio"] > 0
    assert report.extras["deliveries_lapsed"] > 0, "the slow one never had anything"
