from pathlib import Path

import pytest

from nodrop.model.errors import NotInstalledError
from nodrop_proof.chaos import callers, failover, patroni
from nodrop_proof.chaos.plan import Plan

pytestmark = pytest.mark.timeout(300)  # real processes, on a machine that does other things too


async def test_what_was_acknowledged_survives_the_death_of_the_primary(tmp_path: Path) -> None:
    plan = Plan(fault="failover", count=1, seed=7, folder=tmp_path, open=10, nodes=2, callers=16)
    report = await failover.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.acknowledged >= 10 + failover.FLOW_ANSWERS
    [without_service_ms] = report.extras["without_service_ms"]
    assert without_service_ms > 0


async def test_a_primary_that_does_not_wait_for_its_standby_loses_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control. Callers whose handoffs are gone never hear of them again."""
    monkeypatch.setattr(callers, "FINISH_SECONDS_MAX", 5.0)
    plan = Plan(
        fault="failover",
        count=1,
        seed=7,
        folder=tmp_path,
        open=10,
        nodes=1,
        callers=8,
        controls=frozenset({failover.ASYNCHRONOUS}),
    )
    report = await failover.run(plan, lambda _done, _of: None)
    assert report.lost > 0, "the check could not fail"


async def test_without_patroni_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    plan = Plan(fault="patroni", count=1, seed=7, folder=tmp_path)
    with pytest.raises(NotInstalledError, match="etcd and patroni cannot be found") as refused:
        await patroni.run(plan, lambda _done, _of: None)
    assert "apt-get install patroni etcd-server" in refused.value.next_step
