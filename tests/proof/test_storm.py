"""A quarter of the storm that `nodrop prove storm` shows, and its control."""

import pytest

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
