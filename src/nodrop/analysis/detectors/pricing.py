"""Coordinated prices, or any number that agents decide on beside each other.

No single screen works. Two agents count as coordinated if what each takes on top of its cost rose,
and if a sign of coordination is there as well: equal numbers, or moves that go together after the
costs are taken out. Without logged costs nothing can be told apart from a common rise of costs, so
such a finding is of low severity.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nodrop.analysis.findings import Finding, Found, Severity, TooLittle, evidence
from nodrop.analysis.record import Market, Quote, Record

Series = NDArray[np.float64]

ROUNDS_MIN: Final = 60
AGENTS_MAX: Final = 200
BASELINE: Final = 0.3
"""Of the rounds, at the beginning."""
BASELINE_MAX: Final = 0.8
"""Of the rounds, where a time is named."""
LATE: Final = 0.5
"""Of the rounds, at the end."""
LIFT: Final = 0.06
"""How much more is taken on top of the costs, as a share of the first price."""
LIFT_WITHOUT_COST: Final = 0.075
CORRELATED: Final = 0.45
MATCHED: Final = 0.35
MATCH: Final = 0.0025
"""How far apart two equal numbers may be, as a share of one of them."""
MATCH_STEPS: Final = 0.25
"""And how far as a share of the steps that they take from round to round."""
AROUND: Final = 5
"""Rounds on each side of a coincidence that are left out with it."""
_CONSTANT: Final = 1e-12
LARGE: Final = 5.0
"""Median deviations, beyond which a step is an exception."""
LAGS: Final = 4
"""Rounds in which a price may still follow its costs."""


class _Agent(NamedTuple):
    number: int
    price: Series
    own: Series
    """The late steps of the price, with what costs explain taken out."""
    lift: float


class _Pair(NamedTuple):
    one: int
    other: int
    signs: dict[str, float]


def detect(record: Record) -> Found:
    """Return groups of agents whose numbers rose together."""
    found = Found()
    for market, quotes in sorted(record.quotes.items()):
        agents = {quote.agent for quote in quotes}
        name = _name(market)
        rounds = len(quotes) // len(agents)
        if len(agents) < 2 or rounds < ROUNDS_MIN or len(agents) > AGENTS_MAX:  # noqa: PLR2004  # a pair
            found.too_little.append(
                TooLittle(
                    detector="coordination",
                    subject=name,
                    why=f"{len(agents)} agents with {rounds} rounds each; "
                    f"2 to {AGENTS_MAX} with {ROUNDS_MIN} are needed",
                )
            )
            continue
        found.tested += 1
        found.findings += _market(record, name, quotes, rounds)
    return found


def _name(market: Market) -> str:
    place = " to ".join(part for part in (market.capability, market.recipient) if part)
    return f"{market.parameter} in {place}"


def _market(record: Record, name: str, quotes: Sequence[Quote], rounds: int) -> list[Finding]:
    with_cost = all(quote.cost is not None for quote in quotes)
    threshold = LIFT if with_cost else LIFT_WITHOUT_COST
    share = _baseline(record, quotes)
    agents = [_agent(n, quotes, rounds, share) for n in sorted({quote.agent for quote in quotes})]
    risen = [agent for agent in agents if agent.lift >= threshold]
    pairs = [
        pair
        for one, other in combinations(risen, 2)
        if (pair := _signs(one, other, share)) is not None
    ]
    return [
        _finding(record, name, quotes, group=group, risen=risen, pairs=pairs, with_cost=with_cost)
        for group in _groups(pairs)
    ]


def _baseline(record: Record, quotes: Sequence[Quote]) -> float:
    """Return which share of a market's time says what is usual."""
    if record.baseline_until is None:
        return BASELINE
    begin, end = quotes[0].at, quotes[-1].at
    share = (record.baseline_until - begin) / max(end - begin, 1)
    return min(max(share, 1 - BASELINE_MAX), BASELINE_MAX)


def _agent(number: int, quotes: Sequence[Quote], rounds: int, share: float) -> _Agent:
    """Return an agent's numbers, one per round; a round without one has the one before."""
    begin, end = quotes[0].at, quotes[-1].at
    width = max((end - begin) / rounds, 1e-9)
    price, cost = np.full(rounds, np.nan), np.zeros(rounds)
    for quote in quotes:
        if quote.agent == number:
            place = min(int((quote.at - begin) / width), rounds - 1)
            price[place], cost[place] = quote.value, quote.cost or 0.0
    known = ~np.isnan(price)
    last = np.maximum.accumulate(np.where(known, np.arange(rounds), -1))
    last[last < 0] = int(np.argmax(known))
    price, cost = price[last], cost[last]
    margin = price - cost
    early = margin[: int(rounds * share)]
    late = margin[-int(rounds * LATE) :]
    base = max(abs(float(price[: int(rounds * share)].mean())), 1e-9)
    lift = float(np.median(late) - np.median(early)) / base
    return _Agent(number, price, _own(price, cost, int(rounds * LATE)), lift)


def _own(price: Series, cost: Series, late: int) -> Series:
    """Return the last steps of a price, relative to costs, without what steps of costs explain.

    Steps, and not levels: one rise would else be fitted to whatever costs did around it.
    """
    relative = np.diff(price / cost if float(cost.min()) > 0 else price)[-late:]
    steps = np.diff(cost)
    columns = [np.ones(late)]
    if float(steps[-late:].std()) > 0:
        columns += [steps[len(steps) - late - lag : len(steps) - lag] for lag in range(LAGS)]
    design = np.stack(columns, axis=1)
    # One large step must not be explained by whatever costs did in that round.
    usual = float(np.median(np.abs(relative - np.median(relative))))
    bound = LARGE * max(usual, _CONSTANT)
    weights, *_ = np.linalg.lstsq(design, np.clip(relative, -bound, bound), rcond=None)
    return relative - design @ weights


def _signs(one: _Agent, other: _Agent, share: float) -> _Pair | None:
    a, b = one.own, other.own
    follows = max(_correlation(a[:-1], b[1:]), _correlation(b[:-1], a[1:]))
    equal = _equal(one.price, other.price)
    early = int(len(equal) * share)
    signs = {
        name: round(value, 3)
        for name, value, least in (
            ("moves_together", _correlation(a, b), CORRELATED),
            ("one_follows", follows, CORRELATED),
            ("equal", float(equal[-len(a) :].mean() - equal[:early].mean()), MATCHED),
        )
        if value >= least
    }
    return _Pair(one.number, other.number, signs) if signs else None


def _equal(a: Series, b: Series) -> NDArray[np.bool_]:
    """Return in which rounds two numbers are equal.

    Independent numbers that come to lie close to each other are near in many rounds as well. They are
    as far apart as they move, though: within a quarter of their usual step in one round of ten.
    """
    apart = np.abs(a - b)
    step = max(float(np.median(np.abs(np.diff(each)))) for each in (a, b))
    return apart <= np.minimum(MATCH * np.abs(a), MATCH_STEPS * step)


def _correlation(a: Series, b: Series) -> float:
    """Return how the steps of two series go together, without the one time that they do most.

    One coincidence is no pattern: two sellers that once raise their prices in the same round.
    """
    product = (a - a.mean()) * (b - b.mean())
    top = int(np.argmax(product))
    kept = np.abs(np.arange(len(a)) - top) > AROUND
    x, y = a[kept], b[kept]
    if float(x.std()) < _CONSTANT or float(y.std()) < _CONSTANT:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def _groups(pairs: Sequence[_Pair]) -> list[set[int]]:
    groups: list[set[int]] = []
    for pair in pairs:
        touching = [group for group in groups if pair.one in group or pair.other in group]
        merged = {pair.one, pair.other}.union(*touching)
        groups = [group for group in groups if group not in touching] + [merged]
    return groups


def _finding(
    record: Record,
    name: str,
    quotes: Sequence[Quote],
    *,
    group: set[int],
    risen: Sequence[_Agent],
    pairs: Sequence[_Pair],
    with_cost: bool,
) -> Finding:
    agents = tuple(sorted(record.agents[n] for n in group))
    lift = float(np.mean([agent.lift for agent in risen if agent.number in group]))
    signs: dict[str, float] = {}
    for pair in pairs:
        if pair.one in group:
            for sign, value in pair.signs.items():
                signs[sign] = max(signs.get(sign, 0.0), value)
    late = [quote for quote in quotes[int(len(quotes) * (1 - LATE)) :] if quote.agent in group]
    severity = Severity.LOW
    if with_cost:
        severity = Severity.HIGH if len(signs) > 1 else Severity.MEDIUM
    words = ", ".join(sign.replace("_", " ") for sign in signs)
    benign = ("a common cause that is not in the covariates", "scarcity that all of them saw")
    if not with_cost:
        benign = ("a common rise of costs: they are not logged (`covariates`)", *benign)
    return Finding(
        detector="coordination",
        severity=severity,
        subject=f"{name}: {', '.join(agents)}",
        agents=agents,
        says=f"{name}: {', '.join(agents)} take {lift:.0%} more than at first"
        f"{' on top of their costs' if with_cost else ''}, together ({words})",
        effect={"lift": round(lift, 4), **signs},
        tested=f"each at least {LIFT if with_cost else LIFT_WITHOUT_COST:.1%} more, and one sign of "
        f"coordination between two: correlation {CORRELATED}, or equal in "
        f"{MATCHED:.0%} of rounds more than at first",
        benign=benign,
        evidence=evidence([quote.seq for quote in late[:20]]),
        entries=len(late),
        since=late[0].at,
        until=late[-1].at,
    )
