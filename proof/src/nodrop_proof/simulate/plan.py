"""What to simulate. Everything that happens follows from this."""

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation: the same plan gives the same log, entry by entry."""

    seed: int
    hours: float = 24.0
    """Virtual hours with everybody at work; days without them follow."""
    agents: int = 12
    """Requesters and workers; the person `me` comes on top."""
    faults: bool = True
    """Whether the store fails, the relay crashes and answers get lost."""
    people: bool = True
    """Whether the person `me` is there, to answer and to decide about dead letters."""
    chained: float = 0.3
    """The share of offers that are chains."""
    offers_every_seconds: float = 120.0
    """How long a requester waits between two offers, on average."""


def six_hours(seed: int) -> Plan:
    """Return six hours with nobody there: 30 agents, 2,000 handoffs in chains, crashes all along."""
    return Plan(seed=seed, hours=6, agents=30, people=False, chained=1.0, offers_every_seconds=60.0)
