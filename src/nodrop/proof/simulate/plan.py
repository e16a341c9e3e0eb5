"""What to simulate. Everything that happens follows from this."""

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation: the same plan gives the same log, entry by entry."""

    seed: int
    hours: float = 24.0
    """Virtual hours with everybody at work; a day without them follows."""
    agents: int = 12
    """Requesters and workers; the person `me` comes on top."""
    faults: bool = True
    """Whether the store fails, the relay crashes and answers get lost."""
