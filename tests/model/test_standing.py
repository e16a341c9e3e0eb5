"""The arithmetic of standing: expectations were worked out by hand or by published tables."""

from math import inf

import pytest

from nodrop.model.limits import DEFAULT, SECOND
from nodrop.model.standing import UNPROVEN, Expectation, Presence, TrackRecord, cost, floor


@pytest.mark.parametrize(
    ("completed", "n", "least"),
    [(0, 0, 0.0), (20, 20, 0.839), (10, 20, 0.299), (0, 20, 0.0), (95, 100, 0.888), (1, 1, 0.207)],
)
def test_the_floor_is_the_lower_end_of_the_wilson_interval(
    completed: int, n: int, least: float
) -> None:
    assert floor(completed, n) == pytest.approx(least, abs=0.001)


def test_too_few_outcomes_are_not_judged_by() -> None:
    few, enough = TrackRecord(n=19, completed=19), TrackRecord(n=20, completed=20)
    assert (few.success(DEFAULT), few.score(DEFAULT)) == (None, UNPROVEN)
    assert (enough.success(DEFAULT), enough.score(DEFAULT) > UNPROVEN) == (1.0, True)
    assert TrackRecord(n=20, completed=10).score(DEFAULT) < UNPROVEN


def test_a_longer_queue_costs_more_and_the_more_the_less_is_delivered() -> None:
    assert cost(0, 0.9) < cost(1, 0.9) < cost(1, 0.4)
    assert cost(0, UNPROVEN) < cost(1, 0.9), "a newcomer gets work while others are busy"
    assert cost(0, 0.0) < inf


@pytest.mark.parametrize(
    ("expectation", "overdue"),
    [
        (Expectation(), 1_000 + DEFAULT.ghost_after_ms),
        (Expectation(heartbeat_ms=60 * SECOND), 1_000 + 180 * SECOND),
        (Expectation(heartbeat_ms=SECOND, next_active_at=50_000), 53_000),
        (Expectation(next_active_at=50_000), 50_000 + DEFAULT.ghost_after_ms),
        (Expectation(next_active_at=500), 1_000 + DEFAULT.ghost_after_ms),
        (Expectation(on_demand=True), inf),
        (Expectation(on_demand=True, heartbeat_ms=SECOND), 4_000),
    ],
)
def test_when_silence_makes_a_ghost(expectation: Expectation, overdue: float) -> None:
    assert expectation.overdue_at(1_000, DEFAULT) == overdue


def test_the_awake_are_asked_before_the_asleep_before_ghosts() -> None:
    order = [Presence.WORKING, Presence.IDLE, Presence.ASLEEP, Presence.GHOST]
    assert [presence.place for presence in order] == [0, 0, 1, 2]
