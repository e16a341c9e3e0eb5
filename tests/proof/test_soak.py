"""A short run of the soak, its control, and the line that it draws through what it measures."""

from pathlib import Path

import pytest

from nodrop_proof import soak
from nodrop_proof.soak import Line, Plan, growth

pytestmark = pytest.mark.timeout(180)  # 12 s of work by 40 agents; not every core is ours

AGENTS = 40
SECONDS = 12.0


async def test_a_relay_in_steady_use_loses_nothing_and_does_not_grow(tmp_path: Path) -> None:
    lines: list[Line] = []
    plan = Plan(folder=tmp_path, seconds=SECONDS, agents=AGENTS, every=3.0)
    result = await soak.run(plan, lines.append)
    assert result.ok, result
    assert result.report.acknowledged >= 50
    assert result.reconnects >= 5
    assert result.talk >= 10
    assert [line.lost + line.duplicated for line in lines] == [0] * len(lines)
    assert len(lines) >= 2
    assert all(line.memory_mb > 0 and line.descriptors > AGENTS // 2 for line in lines)


async def test_connections_that_nobody_closes_are_found(tmp_path: Path) -> None:
    """CONTROL: everything else is as it should be."""
    result = await soak.run(
        Plan(folder=tmp_path, seconds=SECONDS, agents=AGENTS, every=3.0, leak=True)
    )
    assert not result.descriptors.ok, result
    assert not result.ok
    assert result.report.ok


def test_a_line_tells_growth_from_noise_and_from_what_was_taken_at_the_start() -> None:
    begun = [(float(at), 100.0 + (50.0 if at > 5 else at)) for at in range(100)]
    assert growth(begun, allowed_min=1).ok, "it rose in the beginning, and stays"
    noisy = [(float(at), 100.0 + (at % 3) * 5) for at in range(100)]
    assert growth(noisy, allowed_min=1).ok
    leaking = [(float(at), 100.0 + at) for at in range(100)]
    found = growth(leaking, allowed_min=1)
    assert (round(found.gained), found.ok) == (49, False)
    with pytest.raises(ValueError, match="too few"):
        growth(begun[:5], allowed_min=1)


def test_what_is_not_in_the_log_is_lost_and_what_is_twice_is_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(soak.time, "monotonic", lambda: now)
    ledger = soak.Ledger()
    for number in range(3):
        ledger.stored(f"h{number}")
        ledger.see("handoff.offered.v1", f"h{number}", f"ask-{number}")
    ledger.stored("h3")
    assert (ledger.lost(), ledger.duplicated) == (0, 0), "it may still come"
    now = 31.0
    assert (ledger.lost(), ledger.duplicated) == (1, 0)
    ledger.see("handoff.offered.v1", "h4", "ask-0")
    assert ledger.duplicated == 1
    ledger.see("handoff.completed.v1", "h1", "ask-1")
    assert ledger.duplicated == 1
    ledger.see("handoff.completed.v1", "h1", "ask-1")
    assert ledger.duplicated == 2
