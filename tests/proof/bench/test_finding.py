"""The measurement of finding measures finding: everybody who offers something is found."""

from pathlib import Path

from nodrop_proof.bench import finding
from nodrop_proof.bench.finding import FindingPlan


async def test_a_small_team_is_measured() -> None:
    measured = await finding.measure(agents=40, capabilities=5, names=10, queries=3)
    assert (measured.agents, measured.offering) == (40, 20)
    assert min(measured.find_ms, measured.find_again_ms, measured.route_ms) > 0


async def test_rare_and_common_capabilities_are_both_looked_at(tmp_path: Path) -> None:
    heard: list[str] = []
    plan = FindingPlan(folder=tmp_path, agents=200, queries=2)
    found = await finding.run(plan, lambda what, _, __: heard.append(what))
    assert [each.offering for each in found.timings] == [2, 200]
    assert len(heard) == 2
