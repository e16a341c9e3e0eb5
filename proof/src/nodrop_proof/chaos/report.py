"""What came of a run: the counts that must be zero, and the figures around them."""

from collections.abc import Sequence
from typing import Any, Final, Self

import msgspec

RULE_OF_THREE: Final = 3
"""No failure in n trials bounds the rate at 3/n with 95 % confidence."""


class Restarts(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took from the start of a process to its first answer, in milliseconds."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, samples_ms: Sequence[float]) -> Self | None:
        """Return the summary of at least one sample."""
        if not samples_ms:
            return None
        return cls(
            count=len(samples_ms),
            p50=round(quantile(samples_ms, 0.5), 1),
            p99=round(quantile(samples_ms, 0.99), 1),
            max=round(max(samples_ms), 1),
        )


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run."""

    fault: str
    seed: int
    count: int
    """Faults that were done."""
    seconds: float
    acknowledged: int
    """Handoffs that a client was told are `stored`."""
    lost: int
    """Answered as done, and not there (protocol, section 6)."""
    duplicated: int
    """Two handoffs for one key, or two outcomes for one handoff."""
    steps_rerun: int
    """Recorded steps that ran again."""
    wrong: int = 0
    """Whatever else does not add up: a broken chain, an answer to something else, no outcome."""
    restarts_ms: Restarts | None = None
    findings: tuple[str, ...] = ()
    """What was found, in words; not all of it if it is much."""
    extras: dict[str, Any] = {}
    """Figures of this fault alone."""

    @property
    def ok(self) -> bool:
        """Whether everything adds up."""
        return not (self.lost or self.duplicated or self.steps_rerun or self.wrong)

    @property
    def bound_95(self) -> float | None:
        """The rate of losses that this run rules out with 95 % confidence, if it found none."""
        if self.lost or not self.acknowledged:
            return None
        return RULE_OF_THREE / self.acknowledged

    def document(self) -> dict[str, Any]:
        """Return the report in plain values."""
        return {"ok": self.ok, **msgspec.to_builtins(self), "bound_95": self.bound_95}


def quantile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` of all do not exceed."""
    ordered = sorted(samples)
    rank = max(-(-len(ordered) * share // 1), 1)  # rounded up: the nearest rank
    return ordered[int(rank) - 1]
