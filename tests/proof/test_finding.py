"""The measurement of finding measures finding: everybody who offers something is found."""

from nodrop.proof import finding


async def test_a_small_team_is_measured() -> None:
    measured = await finding.measure(agents=40, capabilities=5, names=10, queries=3)
    assert (measured.agents, measured.offering) == (40, 20)
    assert min(measured.find_ms, measured.find_again_ms, measured.route_ms) > 0
