"""Our relay alone, for real, in small: on a store with a past, and with many who wait."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodrop.testing.clock import T0
from nodrop_proof.bench import growth, idle
from nodrop_proof.bench.driving import Window
from nodrop_proof.bench.growth import GrowthPlan
from nodrop_proof.bench.idle import IdlePlan
from nodrop_proof.bench.past import DATABASE
from nodrop_proof.bench.system import Load


async def test_the_cycle_goes_on_on_a_store_with_a_past(tmp_path: Path) -> None:
    plan = GrowthPlan(
        past=(40,),
        folder=tmp_path,
        now_ms=T0 + 10_000_000,
        loads=(Load(callers=3),),
        rounds=1,
        window=Window(warm_up_seconds=0.1, seconds=0.3),
    )
    heard: list[str] = []
    found = await growth.run(plan, lambda what, _, __: heard.append(what))
    assert found.ok
    (line,) = found.lines()
    assert line.past == 40
    assert line.rate is not None
    assert line.rate.low > 0
    assert heard == ["writing the past", "round 1: 40 past handoffs"]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that others may look into: the server may run as somebody else."""
    with tempfile.TemporaryDirectory(prefix="nodrop-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


async def test_the_cycle_goes_on_on_a_postgresql_with_a_past(open_folder: Path) -> None:
    plan = GrowthPlan(
        past=(40,),
        store=growth.POSTGRES,
        folder=open_folder,
        now_ms=T0 + 10_000_000,
        loads=(Load(callers=3),),
        rounds=1,
        window=Window(warm_up_seconds=0.1, seconds=0.3),
    )
    found = await growth.run(plan, lambda _, __, ___: None)
    assert found.ok
    (line,) = found.lines()
    assert line.rate is not None
    assert found.store == growth.POSTGRES
    assert found.megabytes[40] > 0
    home = open_folder / "past-40" / "node-0"
    assert not (home / DATABASE).exists(), "it is the server that has it"


async def test_an_idle_relay_is_looked_at_in_every_state(tmp_path: Path) -> None:
    plan = IdlePlan(
        folder=tmp_path,
        now_ms=T0 + 10_000_000,
        open=20,
        agents=6,
        waiting=5,
        deliveries=3,
        seconds=0.1,
    )
    found = await idle.run(plan, lambda _, __, ___: None)
    assert (found.open, found.agents, found.waiting, found.deliveries) == (20, 6, 5, 3)
    for megabytes in (found.idle_mb, found.open_mb, found.agents_mb, found.waiting_mb):
        assert megabytes > 10  # no Python is smaller
    assert 0 <= found.delivery_p50_ms <= found.delivery_p99_ms
    assert found.agents_cpu >= 0
    assert found.waiting_cpu >= 0
