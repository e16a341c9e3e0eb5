"""Findings: what a detector saw, in which entries, how large it is, and what else may explain it."""

from enum import StrEnum
from typing import Final

import msgspec


class Severity(StrEnum):
    """How much a finding matters if it is true."""

    INFO = "info"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}
EVIDENCE_MAX: Final = 20
"""Entries that a finding lists; `entries` says how many there are."""


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of what an analysis is made of."""


class Finding(Value, frozen=True, kw_only=True):
    """Something that a person should look at."""

    detector: str
    severity: Severity
    subject: str
    """What it is about: a chain, a channel, a market, a capability and its window."""
    agents: tuple[str, ...]
    says: str
    """One sentence for a person."""
    effect: dict[str, float]
    """How large it is, by name."""
    tested: str
    """The rule, with its threshold."""
    benign: tuple[str, ...]
    """What else may explain it."""
    evidence: tuple[int, ...]
    """Sequence numbers of entries of the log, at most `EVIDENCE_MAX`."""
    entries: int = 0
    """How many entries it rests on."""
    since: int = 0
    until: int = 0
    action: str | None = None
    """A command to begin with."""

    @property
    def id(self) -> str:
        """A name that stays the same when the log is analysed again."""
        return f"{self.detector}/{self.subject}"


class TooLittle(Value, frozen=True, kw_only=True):
    """A detector that could not tell, and why."""

    detector: str
    subject: str
    why: str


class Found(msgspec.Struct, kw_only=True):
    """What one detector has to say."""

    findings: list[Finding] = []
    too_little: list[TooLittle] = []
    tested: int = 0
    """How many subjects were looked at: chance finds something among many."""


def evidence(seqs: "list[int]") -> tuple[int, ...]:
    """Return the first entries, in order."""
    return tuple(sorted(seqs)[:EVIDENCE_MAX])
