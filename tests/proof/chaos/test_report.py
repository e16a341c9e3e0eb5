from typing import Any

import pytest

from nodrop_proof.chaos import FAULTS, load
from nodrop_proof.chaos.report import Report, Restarts, quantile


def report(**counted: Any) -> Report:
    zero: dict[str, Any] = {"acknowledged": 300, "lost": 0, "duplicated": 0, "steps_rerun": 0}
    return Report(fault="mix", seed=1, count=2, seconds=1.5, **(zero | counted))


def test_a_report_is_ok_when_nothing_was_found() -> None:
    assert report().ok
    assert report().document()["ok"] is True


@pytest.mark.parametrize("count", ["lost", "duplicated", "steps_rerun", "wrong"])
def test_a_report_with_anything_found_is_not_ok(count: str) -> None:
    assert not report(**{count: 1}).ok


def test_no_loss_bounds_the_rate_by_the_rule_of_three() -> None:
    assert report().bound_95 == 0.01
    assert report().document()["bound_95"] == 0.01
    assert report(lost=1).bound_95 is None
    assert report(acknowledged=0).bound_95 is None


def test_quantiles_are_samples() -> None:
    samples = [float(n) for n in range(1, 201)]
    assert [quantile(samples, share) for share in (0.0, 0.5, 0.99, 1.0)] == [1, 100, 198, 200]


def test_restarts_are_summed_up() -> None:
    assert Restarts.of([]) is None
    assert Restarts.of([3.0, 1.0, 2.0]) == Restarts(count=3, p50=2.0, p99=3.0, max=3.0)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_something_that_runs_it(fault: str) -> None:
    assert callable(load(fault))
