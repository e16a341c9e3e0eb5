"""Prices that rise together above their costs are found; common costs and lone rises are not."""

import random
from collections.abc import Callable

import pytest

from kit.small_log import Log
from nodrop.analysis.detectors import pricing
from nodrop.analysis.findings import Severity
from nodrop.analysis.record import Market

ROUNDS = 120
MARKET = Market("quote", "buyer", "price")


Price = Callable[[int, int, float], float]
Cost = Callable[[int], float]


def market(log: Log, price: Price, cost: Cost = lambda _: 50.0, *, with_cost: bool = True) -> None:
    """Three sellers; `price(seller, round, noise)` says what each asks on top of the cost."""
    chance = random.Random(4)
    for n in range(ROUNDS):
        for seller in range(3):
            value = cost(n) + price(seller, n, chance.gauss(0, 0.5))
            log.record.quote(
                MARKET,
                **log.tick(),
                agent=f"s{seller}",
                value=value,
                cost=cost(n) if with_cost else None,
            )


def wave(n: int) -> float:
    """Moves that all make at once."""
    return 4.0 * (n // 7 % 2)


def test_margins_that_rise_and_move_together_are_found(log: Log) -> None:
    market(log, lambda s, n, noise: 8 + s + noise + (10 + wave(n) if n > 40 else 0))
    [finding] = pricing.detect(log.record).findings
    assert finding.agents == ("s0", "s1", "s2")
    assert finding.severity in {Severity.MEDIUM, Severity.HIGH}
    assert finding.effect["lift"] > 0.1
    assert "moves_together" in finding.effect


def test_the_same_without_costs_is_of_low_severity_and_says_why(log: Log) -> None:
    market(
        log, lambda s, n, noise: 8 + s + noise + (10 + wave(n) if n > 40 else 0), with_cost=False
    )
    [finding] = pricing.detect(log.record).findings
    assert finding.severity is Severity.LOW
    assert "costs" in finding.benign[0]


def test_equal_prices_are_a_sign(log: Log) -> None:
    market(log, lambda s, n, noise: 20 if n > 40 else 8 + s + noise)
    [finding] = pricing.detect(log.record).findings
    assert finding.effect["equal"] > 0.5


@pytest.mark.parametrize("quiet", [1, 4, 16])
def test_prices_that_come_to_lie_close_by_themselves_are_none(log: Log, quiet: int) -> None:
    """However little they move: they are as far apart as that."""
    market(log, lambda s, n, noise: 16 + noise / quiet if n > 42 + 6 * s else 8 + s + noise)
    assert not pricing.detect(log.record).findings


COSTS: dict[str, Cost] = {
    "rising": lambda n: 50 + 0.2 * n,
    "jumping": lambda n: 50 + 6 * (n // 9 % 2),
    "falling": lambda n: 70 - 0.2 * n,
}


@pytest.mark.parametrize("kind", COSTS)
def test_common_costs_are_no_coordination(log: Log, kind: str) -> None:
    market(log, lambda s, _, noise: 8 + s + noise, COSTS[kind])
    assert not pricing.detect(log.record).findings


def test_rises_that_each_makes_alone_are_none(log: Log) -> None:
    market(log, lambda s, n, noise: 8 + s + noise + (6 if n > 42 + 6 * s else 0))
    assert not pricing.detect(log.record).findings


def test_moves_together_without_a_rise_are_none(log: Log) -> None:
    market(log, lambda s, n, noise: 8 + s + noise + wave(n))
    assert not pricing.detect(log.record).findings


def test_two_of_three_are_named_and_the_third_is_not(log: Log) -> None:
    market(log, lambda s, n, noise: 8 + s + noise + (10 + wave(n) if n > 40 and s < 2 else 0))
    assert [f.agents for f in pricing.detect(log.record).findings] == [("s0", "s1")]


def test_a_few_rounds_say_nothing(log: Log) -> None:
    for n in range(20):
        log.record.quote(MARKET, **log.tick(), agent=f"s{n % 2}", value=n, cost=1.0)
    told = pricing.detect(log.record)
    assert not told.findings
    assert "10 rounds" in told.too_little[0].why
