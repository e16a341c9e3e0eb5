"""How an agent stands: whether it is there, and what its work so far says about it. Pure arithmetic.

What an agent claims about itself is shown beside this and never mixed in: a claim costs nothing.
"""

from enum import StrEnum
from math import inf, sqrt
from typing import Final

from nodrop.model.handoff import Handoff, Rung, State, Value
from nodrop.model.limits import SECOND, Limits

UNPROVEN: Final = 0.6
"""The score of whoever has too few outcomes to be judged by: behind those who proved themselves,
before those who proved the contrary, so that a newcomer gets work and a failing one less."""
_Z: Final = 1.96
"""Two-sided 95 %."""
NOT_ENOUGH: Final = "not enough data"

_COMPLETED: Final = State.COMPLETED
_ACKNOWLEDGED: Final = Rung.ACKNOWLEDGED


class Presence(StrEnum):
    """Whether an agent can be expected to take something."""

    WORKING = "working"
    """It holds something."""
    IDLE = "idle"
    """It is connected and waits for work."""
    ASLEEP = "asleep"
    """It is not there, and nobody expected it to be."""
    GHOST = "ghost"
    """It should have been heard of, and was not."""

    @property
    def place(self) -> int:
        """How late such an agent is asked: the awake, then the asleep, then ghosts."""
        if self is Presence.GHOST:
            return 2
        return 1 if self is Presence.ASLEEP else 0


class Expectation(Value, frozen=True, kw_only=True):
    """When an agent said that it would be heard of."""

    heartbeat_ms: int | None = None
    next_active_at: int | None = None
    on_demand: bool = False
    """It comes when somebody starts it, and is never late."""

    def overdue_at(self, last_sign: int, limits: Limits) -> float:
        """Return when an agent last heard of at `last_sign` is a ghost."""
        if self.on_demand and self.heartbeat_ms is None:
            return inf
        patience = limits.ghost_after_ms
        if self.heartbeat_ms is not None:
            patience = limits.lease_heartbeats * self.heartbeat_ms
        return max(last_sign, self.next_active_at or 0) + patience


class TrackRecord(Value, frozen=True, kw_only=True):
    """What the relay saw of an agent's work on one capability, of the last outcomes only."""

    n: int = 0
    completed: int = 0
    duration_ms: int | None = None
    """The median from acknowledgement to result."""

    def proven(self, limits: Limits) -> bool:
        """Whether there are enough outcomes to say anything."""
        return self.n >= limits.observations_min

    def success(self, limits: Limits) -> float | None:
        """Return the share that was completed; None while there is not enough data."""
        return self.completed / self.n if self.proven(limits) else None

    def score(self, limits: Limits) -> float:
        """Return what to rank by: how good it is at least, by what was seen."""
        return floor(self.completed, self.n) if self.proven(limits) else UNPROVEN


NO_RECORD: Final = TrackRecord()


def floor(completed: int, n: int) -> float:
    """Return the lower end of the Wilson interval: few outcomes count for less than many."""
    if n == 0:
        return 0.0
    share, z2 = completed / n, _Z * _Z
    spread = _Z * sqrt((share * (1 - share) + z2 / (4 * n)) / n)
    return max((share + z2 / (2 * n) - spread) / (1 + z2 / n), 0.0)


class SaysNothingError(Exception):
    """An outcome that says nothing about the recipient."""


def outcome_ms(handoff: Handoff) -> int | None:
    """Return how long a completed handoff took from its acknowledgement; None if it was not done.

    Nobody is blamed for what it never had, for saying no, or for somebody else's silence.

    Raises:
        SaysNothingError: how it ended says nothing about the recipient.
    """
    assert handoff.outcome is not None, "it has ended"
    state, ack, ended = handoff.state, handoff.ack, handoff.outcome.at
    if state is _COMPLETED and handoff.attempt:
        if ack is not None and ack.at is not None:
            return max(ended - ack.at, 0)  # before that it was queued
        for receipt in reversed(handoff.receipts):
            if receipt.rung is _ACKNOWLEDGED:
                return max(ended - receipt.at, 0)
        return 0
    if state is State.FAILED:
        return None
    if state is State.EXPIRED and ack is not None and handoff.withdrawn is None:
        return None
    raise SaysNothingError


def cost(queued: int, score: float) -> float:
    """Return what asking an agent costs: the queue before it, the longer the less it delivers."""
    return (queued + 1) / max(score, 0.01)


def seconds(ms: int | None) -> float:
    """Return a duration to sort by; who never finished anything comes last."""
    return inf if ms is None else ms / SECOND
