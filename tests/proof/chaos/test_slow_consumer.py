import os
from pathlib import Path

import pytest

from kit.one_line import one_line
from nodrop_proof.chaos import slow_consumer
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.relay_process import ServedRelay

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_consumer, "WORKERS", 10)
    monkeypatch.setattr(slow_consumer, "BURST", 40)  # as many bytes as ever, in fewer handoffs
    monkeypatch.setattr(slow_consumer, "SLOW_PADDING", 500_000)


async def test_what_waits_for_a_slow_reader_is_neither_lost_nor_in_the_way(tmp_path: Path) -> None:
    plan = Plan(fault="slow-consumer", count=1, seed=1, folder=tmp_path, seconds=3)
    report = await slow_consumer.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.acknowledged == report.extras["outcomes"] > 80
    assert report.extras["others_p99_ratio"] > 0
    assert report.extras["deliveries_lapsed"] > 0, "the slow one never had anything"


async def test_where_connections_wait_for_each_other_a_slow_reader_is_in_everybodys_way(
    relay: ServedRelay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_consumer, "PATIENCE_SECONDS", 3)
    plan = Plan(fault="slow-consumer", count=1, seed=1, folder=tmp_path, seconds=2)
    with one_line():
        report = await slow_consumer.endure(plan, lambda _done, _of: None, relay, pid=os.getpid())
    assert any("beside the slow reader" in finding for finding in report.findings)
