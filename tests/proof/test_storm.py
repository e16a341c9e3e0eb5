"""A quarter of the storm that `nodrop prove storm` shows, its control, and where storms begin."""

import pytest
from msgspec.structs import replace

from nodrop_proof import storm

pytestmark = pytest.mark.timeout(240)  # four seconds of one core each; not every core is ours

STORM = storm.Storm(offered=32, capacity=40, before=3, after=30)
CONTROL = storm.Storm(offered=32, capacity=40, before=3, after=20)


def test_after_an_outage_the_work_goes_on_within_30_seconds() -> None:
    curve = storm.run(STORM)
    assert curve.goodput(0, STORM.before - 2) == 1
    assert curve.goodput(STORM.before + 2, STORM.back_at - 5) < 0.5, "there was no outage"
    assert curve.goodput(STORM.back_at + 5, STORM.back_at + 28) >= 0.95
    # Retries stay a small part of the calls.
    assert max(curve.calls[STORM.back_at + 5 :]) <= STORM.capacity


def test_without_the_budget_the_storm_never_ends() -> None:
    curve = storm.run(CONTROL, budget=False)
    assert curve.goodput(0, CONTROL.before - 2) == 1
    assert curve.goodput(CONTROL.back_at + 5, CONTROL.back_at + 18) <= 0.05
    assert min(curve.calls[CONTROL.back_at + 5 :]) > 2 * CONTROL.capacity


SHORTER = replace(storm.SWEPT, capacity=20, after=75)


def test_a_storm_can_last_once_all_attempts_of_all_agents_are_more_than_the_capacity() -> None:
    assert storm.threshold(storm.SWEPT) == 50  # 40 calls/s of 0.2 handoffs/s with 4 attempts each
    assert storm.threshold(SHORTER) == 25


@pytest.mark.parametrize(("agents", "lasts"), [(19, False), (31, True)])
def test_below_the_threshold_a_storm_ends_by_itself_and_above_it_by_the_budget(
    agents: int, *, lasts: bool
) -> None:
    row = storm.sweep(agents, SHORTER)
    assert (row.pressure > 1) is lasts
    assert (row.without <= 0.1) is lasts
    assert (row.without >= 0.95) is not lasts
    assert row.budget >= 0.95
    assert row.as_predicted
