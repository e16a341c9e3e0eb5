"""The arithmetic, held against numbers worked out by hand."""

import pytest

from nodrop_proof.bench.figures import Spread, quantile, ratios

TEN = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 100.0]


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 5.0), (0.9, 9.0), (0.91, 100.0), (0.99, 100.0), (0.0, 1.0)]
)
def test_a_quantile_is_a_sample_that_so_many_do_not_exceed(share: float, expected: float) -> None:
    assert quantile(TEN, share) == expected


def test_the_99th_percentile_of_two_hundred_is_the_198th() -> None:
    assert quantile([float(n) for n in range(1, 201)], 0.99) == 198.0


def test_a_quantile_of_one_sample_is_that_sample() -> None:
    assert quantile([7.0], 0.5) == quantile([7.0], 0.99) == 7.0


def test_a_spread_is_the_median_and_the_extremes() -> None:
    assert Spread.of([30.0, 10.0, 25.0]) == Spread(median=25.0, low=10.0, high=30.0)


def test_the_median_of_an_even_number_lies_between_the_middle_two() -> None:
    assert Spread.of([1.0, 2.0, 4.0, 50.0]) == Spread(median=3.0, low=1.0, high=50.0)


def test_there_is_no_spread_of_nothing() -> None:
    assert Spread.of([]) is None


def test_ratios_are_taken_within_a_round() -> None:
    # 600/200 = 3, 100/50 = 2, 90/10 = 9. The ratio of the medians would be 100/50 = 2.
    found = ratios({1: 600.0, 2: 100.0, 3: 90.0}, {1: 200.0, 2: 50.0, 3: 10.0})
    assert found == Spread(median=3.0, low=2.0, high=9.0)


def test_a_round_that_only_one_side_finished_has_no_ratio() -> None:
    assert ratios({1: 10.0, 2: 99.0}, {1: 5.0, 3: 1.0}) == Spread(median=2.0, low=2.0, high=2.0)
    assert ratios({1: 10.0}, {2: 5.0}) is None
