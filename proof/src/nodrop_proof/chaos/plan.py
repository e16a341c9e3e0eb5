"""What a run is to do. The seed decides every random choice the run makes itself."""

from pathlib import Path

import msgspec


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one fault."""

    fault: str
    count: int
    """How many faults."""
    seed: int
    folder: Path
    """An empty directory for databases and records; whoever made it removes it."""
    seconds: float | None = None
    """For how long, where the fault goes by time."""
    callers: int = 64
    """Handoffs in flight at once."""
    open: int = 0
    """Handoffs that are open, and stay so, before the first fault."""
    nodes: int = 2
    """Relays that serve one database, where a fault is about several."""
    controls: frozenset[str] = frozenset()
    """What is left out, so that the run must find something: see the fault's module."""
