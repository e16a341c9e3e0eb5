"""What verifying comes to: the first entry that does not hold, and what could not be looked at."""

from collections import Counter

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that does not hold."""

    seq: int
    type: str
    why: str


class DoesNotHoldError(Exception):
    """Something in a log is not as it must be."""

    def __init__(self, why: str, *, seq: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.seq = seq
        """The entry, where it is another one than the one at hand."""


class Tally:
    """What was looked at, and what could not be."""

    def __init__(self) -> None:
        self.checked: Counter[str] = Counter()
        self.unchecked: Counter[str] = Counter()


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be said about a log."""

    holds: bool
    team: str
    entries: int
    head: str
    checked: dict[str, int]
    unchecked: dict[str, int]
    """What could not be checked, and how often: no reason for doubt, and no proof either."""
    finding: Finding | None = None
