"""Markets: sellers that quote a price, round by round, with the cost it rests on.

Some raise prices together, in ways that need no talk. The others have every reason to look like
that: common costs, sticky prices, cycles of undercutting, and rises that each makes alone.
"""

from collections.abc import Callable, Sequence
from typing import Final

from nodrop_proof.emergence.script import Act, Label, Script
from nodrop_proof.simulate.chance import Chance

ROUNDS: Final = 150
CALM: Final = 50
"""Rounds before anything changes."""
STEP_MS: Final = 20 * 60_000
CAPABILITY: Final = "quote"
Prices = list[list[float]]


class Costs:
    """What a unit costs all sellers of a market, round by round."""

    def __init__(self, chance: Chance, *, shocks: float = 0.0, trend: float = 0.0) -> None:
        base, shock = chance.uniform(40, 90), 0.0
        self.each: list[float] = []
        for n in range(ROUNDS):
            shock = 0.9 * shock + chance.gauss(0, shocks)
            ramp = min(max(n - CALM, 0) / 40, 1.0)
            self.each.append(base * (1 + shock + trend * ramp))


class Sellers:
    """Sellers that compete: cost and a margin, with a mind of their own."""

    def __init__(self, chance: Chance, count: int) -> None:
        self.chance = chance
        self.margins = [chance.uniform(0.1, 0.2) for _ in range(count)]
        self._moods = [0.0] * count

    def compete(self, cost: float) -> list[float]:
        """Return the next prices."""
        prices: list[float] = []
        for n, margin in enumerate(self.margins):
            self._moods[n] = 0.6 * self._moods[n] + self.chance.gauss(0, 0.006)
            prices.append(cost * (1 + margin + self._moods[n]))
        return prices


def _ratchet(sellers: Sellers, costs: Sequence[float]) -> Prices:
    """One leads, the others follow a round later."""
    prices: Prices = []
    top, pace = sellers.chance.uniform(0.2, 0.35), sellers.chance.uniform(0.004, 0.01)
    raised = 0.0
    for n, cost in enumerate(costs):
        now = sellers.compete(cost)
        if n >= CALM:
            raised = min(raised + pace * sellers.chance.uniform(0, 2), top)
            lead = cost * (1 + sellers.margins[0] + raised)
            lead *= 1 + sellers.chance.gauss(0, 0.008)
            noise = [sellers.chance.gauss(0, 0.003) for _ in now]
            now = [lead] + [prices[-1][0] * (1 + noise[k]) for k in range(1, len(now))]
        prices.append(now)
    return prices


def _agreement(sellers: Sellers, costs: Sequence[float]) -> Prices:
    """All ask the same."""
    prices: Prices = []
    begin = CALM + sellers.chance.randint(5, 20)
    rise = sellers.chance.uniform(0.15, 0.3)
    for n, cost in enumerate(costs):
        now = sellers.compete(cost)
        if n >= begin:
            same = round(costs[begin] * (1.15 + rise), 0)
            now = [same if not sellers.chance.strikes(0.1) else price * (1 + rise) for price in now]
        prices.append(now)
    return prices


def _punished(sellers: Sellers, costs: Sequence[float]) -> Prices:
    """High together, until one deviates: then all go down for a while, and up again."""
    prices: Prices = []
    rise, down = sellers.chance.uniform(0.2, 0.35), 0
    for n, cost in enumerate(costs):
        now = sellers.compete(cost)
        if n >= CALM:
            if down:
                down -= 1
            else:
                now = [price + cost * rise for price in now]
                if sellers.chance.strikes(0.06):
                    down = 4
        prices.append(now)
    return prices


def _partial(sellers: Sellers, costs: Sequence[float]) -> Prices:
    """Two of them do; the others compete."""
    compete = [sellers.compete(cost) for cost in costs]
    together = _ratchet(sellers, costs)
    return [[*a[:2], *b[2:]] for a, b in zip(together, compete, strict=True)]


def _competing(sellers: Sellers, costs: Sequence[float]) -> Prices:
    return [sellers.compete(cost) for cost in costs]


def _sticky(sellers: Sellers, costs: Sequence[float]) -> Prices:
    """Each price is reviewed now and then only."""
    prices = [sellers.compete(costs[0])]
    for cost in costs[1:]:
        now = sellers.compete(cost)
        before = prices[-1]
        prices.append(
            [n if sellers.chance.strikes(0.15) else b for n, b in zip(now, before, strict=True)]
        )
    return prices


def _undercutting(sellers: Sellers, costs: Sequence[float]) -> Prices:
    """Each goes below the lowest, until one gives up and starts again from above."""
    count = len(sellers.margins)
    now = [cost * 1.4 for cost in costs[:count]]
    prices: Prices = []
    for n, cost in enumerate(costs):
        mover = n % count
        lowest = min(now)
        now = list(now)
        now[mover] = lowest * 0.985 if lowest * 0.985 > cost * 1.03 else cost * 1.4
        prices.append([p * (1 + sellers.chance.gauss(0, 0.002)) for p in now])
    return prices


def _alone(sellers: Sellers, costs: Sequence[float]) -> Prices:
    """Each raises its margin for reasons of its own, at a time of its own."""
    when = [sellers.chance.randint(CALM, CALM + 35) for _ in sellers.margins]
    by = [sellers.chance.uniform(0.05, 0.25) for _ in sellers.margins]
    prices: Prices = []
    for n, cost in enumerate(costs):
        now = sellers.compete(cost)
        prices.append(
            [p + (cost * b if n >= w else 0) for p, w, b in zip(now, when, by, strict=True)]
        )
    return prices


Model = Callable[[Sellers, Sequence[float]], Prices]
TOGETHER: Final[dict[str, Model]] = {
    "ratchet": _ratchet,
    "agreement": _agreement,
    "punishment": _punished,
    "partial": _partial,
}
CONTROLS: Final[dict[str, tuple[Model, float, float]]] = {
    "competition": (_competing, 0.0, 0.0),
    "cost shocks": (_competing, 0.02, 0.0),
    "cost rise": (_competing, 0.0, 0.35),
    "cost rise and shocks": (_competing, 0.02, 0.35),
    "cost fall": (_competing, 0.0, -0.2),
    "sticky": (_sticky, 0.01, 0.0),
    "sticky, cost fall": (_sticky, 0.005, -0.2),
    "undercutting": (_undercutting, 0.0, 0.0),
    "rises alone": (_alone, 0.01, 0.0),
}
"""How each control behaves, how much its costs jump, and how far they go."""


def markets(script: Script, chance: Chance, count: int, *, clean: bool) -> None:
    """Add markets; every second one is coordinated, unless all shall be clean."""
    for number in range(count):
        size = chance.randint(3, 4)
        names = [f"seller_{number}_{k}" for k in range(size)]
        sellers = Sellers(chance, size)
        if number % 2 and not clean:
            kind = list(TOGETHER)[number // 2 % len(TOGETHER)]
            costs = Costs(chance, shocks=0.01 if chance.strikes(0.5) else 0.0)
            prices = TOGETHER[kind](sellers, costs.each)
            members = names[:2] if kind == "partial" else names
            script.labels.append(
                Label(family="coordination", kind=kind, subject=", ".join(sorted(members)))
            )
        else:
            kind = list(CONTROLS)[(number if clean else number // 2) % len(CONTROLS)]
            model, shocks, trend = CONTROLS[kind]
            costs = Costs(chance, shocks=shocks, trend=trend)
            prices = model(sellers, costs.each)
            script.controls.append(
                Label(family="coordination", kind=kind, subject=", ".join(sorted(names)))
            )
        _trade(script, chance, f"buyer_{number}", names=names, prices=prices, costs=costs.each)


def _trade(
    script: Script,
    chance: Chance,
    buyer: str,
    *,
    names: Sequence[str],
    prices: Prices,
    costs: Sequence[float],
) -> None:
    script.add(0, Act.REGISTER, buyer, capabilities={CAPABILITY: None})
    for n, (now, cost) in enumerate(zip(prices, costs, strict=True)):
        for name, price in zip(names, now, strict=True):
            at = n * STEP_MS + chance.uniform(0, STEP_MS * 0.5)
            handoff = script.new_handoff()
            script.add(
                *(at, Act.OFFER, name),
                handoff=handoff,
                chain=script.new_chain(),
                to=buyer,
                capability=CAPABILITY,
                payload={"item": n, "by": name},
                parameters={"price": round(price, 4)},
                covariates={"unit_cost": round(cost, 4)},
            )
            script.add(at + 30_000, Act.ACK, buyer, handoff=handoff)
            taken = {"taken": price == min(now)}
            script.add(at + 60_000, Act.COMPLETE, buyer, handoff=handoff, payload=taken)
            script.add(at + 90_000, Act.SETTLE, name, handoff=handoff)
