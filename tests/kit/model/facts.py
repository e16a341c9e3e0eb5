"""The nouns of the model: bags of facts, with no more behaviour than saying what they are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SECOND: Final = 1_000
DEAD: Final = ("failed", "rejected", "expired")
ENDED: Final = ("completed", *DEAD, "cancelled")


class RefusedError(Exception):
    """A command that changes nothing. `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What an answer shows of a handoff, as far as it is modelled."""

    state: str
    to: str
    holder: str | None
    attempt: int
    tries: int
    question: str | None
    queued: bool
    code: str | None
    late_result: bool
    decision: str | None
    settled: bool


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A handoff to come in the chain."""

    to: str | None = None
    capability: str | None = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a blocked handoff waits for: an answer, or a word on other terms."""

    number: int
    kind: str
    asked: str
    deadline_at: int | None = None


@dataclass(kw_only=True)
class Handoff:
    """The facts about one handoff."""

    id: str
    sender: str
    origin: str
    recipient: str
    deadline_at: int
    accept_within: int
    update_every: int = 30 * 60 * SECOND
    attempts_max: int
    stored_at: int
    capability: str | None = None
    held: bool = False
    """Whether it is held to what its recipient declared."""
    routed: bool = False
    key: str | None = None
    legs: tuple[Leg, ...] = ()
    quiet: bool = False
    """Its requester wants nobody to be told what becomes of it, nor of what follows from it."""
    asked: list[str] = field(default_factory=list[str])
    state: str = "offered"
    attempt: int = 0
    delivered_to: str | None = None
    """Whose the current attempt is."""
    live: bool = False
    revivable: bool = False
    acknowledged: bool = False
    queued: bool = False
    """The recipient said that it waits in its queue, and nothing has made that void."""
    process: str | None = None
    heartbeat: int | None = None
    tries: int = 0
    releases: int = 0
    answers: int = 0
    steps: set[str] = field(default_factory=set[str])
    question: Question | None = None
    withdrawn: Question | None = None
    code: str | None = None
    late_result: bool = False
    decision: str | None = None
    settled: bool = False
    onwards: str | None = None
    """The next leg of its chain, or the handoff that carries it on."""
    # Moments: when it was last heard of, and when it changes by itself.
    sign_at: int = 0
    accept_at: int | None = None
    accept_by: int | None = None
    """When it would have been, had nobody taken it."""
    retry_at: int | None = None
    turn_at: int | None = None
    promise_at: int | None = None
    """When a recipient that has it queued owes its next word."""
    promise_length: int = 0
    timeout: int | None = None
    """Active time that an attempt of this recipient has."""
    timeout_at: int | None = None
    timeout_left: int | None = None
    timeout_length: int = 0

    @property
    def ended(self) -> bool:
        """Whether an outcome exists."""
        return self.state in ENDED

    @property
    def tells(self) -> bool:
        """Whether the person is told of it: it is a dead letter, and nobody opted out."""
        return self.state in DEAD and not self.quiet

    @property
    def holder(self) -> str | None:
        """Who owes the next move."""
        if self.settled:
            return None
        if self.ended:
            return self.origin
        return self.question.asked if self.question else self.recipient

    def shown(self) -> Shown:
        """Return what an answer shows of it."""
        return Shown(
            state=self.state,
            to=self.recipient,
            holder=self.holder,
            attempt=self.attempt,
            tries=self.tries,
            question=self.question.kind if self.question else None,
            queued=self.queued and self.state == "offered",
            code=self.code,
            late_result=self.late_result,
            decision=self.decision,
            settled=self.settled,
        )


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the protocol leaves to a relay's limits and to manifests."""

    capabilities: Mapping[str, str]
    """What each agent that declares something offers."""
    timeouts: Mapping[str, int] = field(default_factory=dict[str, int])
    releases_free: int = 9
    answers_max: int = 100
    queued_acks_max: int = 1_000
    steps_max: int = 1_000
    chosen: Callable[[str, int], str | None] = lambda _handoff, _turn: None
    """Who was asked in which turn, where the order of candidates is the relay's to choose."""
    backoff: Callable[[int], int] = lambda tries: min(2 * SECOND * 2 ** (tries - 1), 300 * SECOND)
    operators: Sequence[str] = ("me",)
