"""The nouns. Frozen values with no behaviour of their own.

Times are milliseconds since the epoch, UTC; durations are milliseconds. Free text and payloads
are not here: they live beside the log as bodies, and a value refers to one by the `version` of the
event that brought it, so that a body can be erased without touching a handoff or the log.
"""

from enum import StrEnum
from typing import Final

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Base of the core's values: immutable, compared by content, small at rest.

    Nothing that is made of what was there before can refer to itself, so the garbage collector
    need not look at them (`gc=False`), of which a relay keeps many.
    """


class State(StrEnum):
    """Where a handoff is. `machine.TRANSITIONS` says how it moves."""

    OFFERED = "offered"
    """In the recipient's inbox, waiting to be taken or answered."""

    DELIVERED = "delivered"
    """Leased to, and sent over, a connection that is the recipient; not yet acknowledged."""

    ACCEPTED = "accepted"
    """The recipient said it has it, and owes updates and a result."""

    BLOCKED = "blocked"
    """The recipient asked a question or countered the terms; who was asked owes the answer."""

    COMPLETED = "completed"
    """The recipient handed in a result. Final."""

    FAILED = "failed"
    """The recipient gave up, or the tries ran out. Final."""

    REJECTED = "rejected"
    """The recipient, or every candidate, declined. Final."""

    EXPIRED = "expired"
    """The deadline passed. Final."""

    CANCELLED = "cancelled"
    """The requester withdrew it. Final."""


FINAL: Final = frozenset(
    {State.COMPLETED, State.FAILED, State.REJECTED, State.EXPIRED, State.CANCELLED}
)
DEAD: Final = frozenset({State.FAILED, State.REJECTED, State.EXPIRED})
"""Ended without success: a dead letter until somebody decides."""


class Rung(StrEnum):
    """What is known to have happened, in order. Never a guess."""

    STORED = "stored"
    DELIVERED = "delivered"
    ACKNOWLEDGED = "acknowledged"
    UPDATED = "updated"
    FINISHED = "finished"
    OUTCOME_DELIVERED = "outcome_delivered"
    SETTLED = "settled"


class Priority(StrEnum):
    """How early a handoff is taken. Ageing keeps a low one from starving."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    URGENT = "urgent"


class ClockName(StrEnum):
    """The clocks that can run on a handoff. The earliest one is its due time."""

    RETRY = "retry"
    """Not a debt: when a backed-off handoff may be taken again."""
    LEASE = "lease"
    """A taker without a heartbeat must acknowledge by this."""
    ACCEPT = "accept"
    TIMEOUT = "timeout"
    """Active time of one attempt; stands still while blocked."""
    PROMISE = "promise"
    ANSWER = "answer"
    DEADLINE = "deadline"
    OUTCOME = "outcome"
    STEP = "step"
    """An escalation step; `Timer.step` says which."""


class When(StrEnum):
    """The episodes an escalation step can belong to."""

    UNACKNOWLEDGED = "unacknowledged"
    SILENT = "silent"
    BLOCKED = "blocked"
    OVERDUE = "overdue"
    DEAD = "dead"


class QuestionKind(StrEnum):
    """What a blocked handoff waits for."""

    QUESTION = "question"
    TERMS = "terms"


class Decision(StrEnum):
    """What became of an ended handoff. Each gets one."""

    REDRIVEN = "redriven"
    ACCEPTED_LATE = "accepted_late"
    DISCARDED = "discarded"
    JOINED = "joined"
    """Its group closed and took what there was of it."""


class Backoff(Value, frozen=True, kw_only=True):
    """How long a retry waits: first, then `factor_percent` as long, at most `max_ms`.

    Whole numbers only: entries of the log hold no floats, so that every JSON library writes the
    same bytes.
    """

    first_ms: int
    factor_percent: int
    max_ms: int


class Elsewhere(Value, frozen=True, kw_only=True):
    """Whom an escalation step gives a handoff to: at least one of the two."""

    to: str | None = None
    capability: str | None = None


class Escalation(Value, frozen=True, kw_only=True):
    """What the relay does when an episode has lasted `after_ms`: at least one of the three."""

    when: When
    after_ms: int
    notify: str | None = None
    reassign: Elsewhere | None = None
    raise_to: Priority | None = None


class Terms(Value, frozen=True, kw_only=True):
    """What the two sides agreed on, and what the relay enforces."""

    priority: Priority
    accept_within_ms: int
    update_every_ms: int
    deadline_at: int
    answer_within_ms: int
    outcome_within_ms: int
    attempts_max: int
    backoff: Backoff
    escalation: tuple[Escalation, ...] | None = None
    """The requester's steps. None: not stated, the team's steps apply; empty: no steps at all."""
    timeout_ms: int | None = None
    """Active time per attempt: the recipient's, or the shorter one that was asked for."""
    timeout_asked_ms: int | None = None
    """What was asked for, whoever the recipient is."""
    marks: tuple[str, ...] = ()
    """What it is listed by besides its parties, as `name=value`. An offer says it once and for all."""

    def timeout_with(self, declared_ms: int | None) -> int | None:
        """Return the active time that an attempt of a recipient with such a manifest has."""
        asked_ms = self.timeout_asked_ms
        if declared_ms is None or asked_ms is None:
            return declared_ms if asked_ms is None else asked_ms
        return min(declared_ms, asked_ms)


class Leg(Value, frozen=True, kw_only=True):
    """A handoff to come in the chain. Its title and other text are in the body."""

    to: str | None = None
    capability: str | None = None
    priority: Priority | None = None
    accept_within_ms: int | None = None
    update_every_ms: int | None = None
    deadline_ms: int | None = None
    attempts_max: int | None = None
    fallback: bool = False
    """It takes the place of the leg before it when that one fails, is rejected or expires."""
    detached: bool = False
    """It goes on when what is above it is cancelled or fails."""


class LegDone(Value, frozen=True, kw_only=True):
    """A finished leg, as the later ones see it."""

    id: str
    agent: str
    state: State


class MemberOf(Value, frozen=True, kw_only=True):
    """The group that a handoff was offered in, and what its requester calls it there."""

    group: str
    label: str


class Member(Value, frozen=True, kw_only=True):
    """A member as its group knows it: the handoff that stands for the label now."""

    label: str
    id: str
    state: State


class Join(Value, frozen=True, kw_only=True):
    """What makes a handoff a group: it is completed by `needed` of its members completing."""

    needed: int
    members: tuple[Member, ...]


class Receipt(Value, frozen=True, kw_only=True):
    """One rung: when, and who says so."""

    rung: Rung
    at: int
    by: str
    attempt: int | None = None


class Timer(Value, frozen=True, kw_only=True):
    """A running clock. `length_ms` is what it re-arms from."""

    name: ClockName
    at: int
    length_ms: int
    fires: int = 0
    step: int | None = None


class Ack(Value, frozen=True, kw_only=True):
    """What the recipient last said about its queue. `version` finds its words."""

    version: int
    position: int | None = None
    eta_at: int | None = None
    next_update_at: int | None = None
    at: int | None = None
    """When the attempt was acknowledged, if its receipt has the time of a queued acknowledgement."""


class Question(Value, frozen=True, kw_only=True):
    """What a blocked handoff waits for. `version` names it and finds its words."""

    version: int
    kind: QuestionKind
    asked: str
    asked_at: int
    from_state: State
    proposed: "Proposal | None" = None


class Proposal(Value, frozen=True, kw_only=True):
    """The terms a counter asks for; what is left out stays as it is."""

    deadline_at: int | None = None
    update_every_ms: int | None = None
    accept_within_ms: int | None = None
    priority: Priority | None = None
    timeout_ms: int | None = None


class BodyRef(Value, frozen=True, kw_only=True):
    """Where a body is: the event that brought it, of this handoff or of the one it succeeds."""

    version: int
    of: str | None = None


class Answer(Value, frozen=True, kw_only=True):
    """A question that was answered: both texts are bodies."""

    question: BodyRef
    answer: BodyRef
    by: str


class StepDone(Value, frozen=True, kw_only=True):
    """A recorded step: never run again by a later attempt."""

    name: str
    value: BodyRef


class Outcome(Value, frozen=True, kw_only=True):
    """How it ended. `version` finds the result or the reason."""

    version: int
    at: int
    by: str
    code: str | None = None


class Notice(Value, frozen=True, kw_only=True):
    """The last reminder or escalation to one reader, and up to where it dismissed its notices."""

    reader: str
    version: int = 0
    """The event that told the reader. 0: it was reminded of nothing and nothing was escalated to it."""
    step: int | None = None
    """Which escalation step, counted in `Handoff.escalation`; None: a reminder."""
    dismissed: int = 0
    """The version of its last dismissal: notices up to that one no longer wait."""


class Handoff(Value, frozen=True, kw_only=True):
    """One piece of work passed from one agent to another: the fold of its events."""

    team: str
    id: str
    version: int
    """Events applied so far."""

    # Who and what.
    sender: str
    origin: str
    """The requester: gets the outcome. For a later leg, the one who began the chain."""
    recipient: str
    capability: str | None = None
    manifest_version: int | None = None
    contract_digest: str | None = None
    """The contract it was offered under, for as long as it is with whom that was made."""
    routed: bool = False
    """Found by capability, so the next candidate may be asked."""
    asked: tuple[str, ...] = ()
    """Every recipient so far, in order."""
    watchers: tuple[str, ...] = ()
    key: str | None = None
    traceparent: str | None = None

    # Its place in a chain.
    correlation_id: str
    parent_id: str | None = None
    legs: tuple[Leg, ...] = ()
    legs_done: tuple[LegDone, ...] = ()
    ancestors: tuple[str, ...] = ()
    """The recipients of the handoffs above it, along `parent_id`."""
    redrive_of: str | None = None
    successor: str | None = None
    next_leg: str | None = None
    chain_deadline_at: int | None = None
    """When the chain ends; None: when this leg does."""
    detached: bool = False
    """It goes on when what is above it is cancelled or fails."""
    member_of: MemberOf | None = None
    join: Join | None = None
    """There is one where this is a group: the relay itself holds it until it is joined."""

    # Contract and clocks.
    terms: Terms
    team_steps: tuple[Escalation, ...] = ()
    """The team's steps that were added to the requester's when it was offered."""
    timers: tuple[Timer, ...] = ()
    stored_at: int
    offered_at: int

    # Where it is.
    state: State
    attempt: int = 0
    live: bool = False
    """The current attempt is the authorised one."""
    revivable: bool = False
    """The last attempt's lease merely lapsed: it may go on until another is delivered."""
    process: str | None = None
    heartbeat_ms: int | None = None
    """None: turn-based, no lease after the ack."""
    accept_by: int | None = None
    """When the accept clock would have run out: it runs on while terms are discussed."""
    tries: int = 0
    releases: int = 0
    timeout_left_ms: int | None = None
    ack: Ack | None = None
    queued: Ack | None = None
    """The queued acknowledgement in force: from the recipient's word until the next attempt's ack."""
    question: Question | None = None
    withdrawn: Question | None = None
    """A question that the last exit took away; after the end, its late answer is still kept."""
    answers: tuple[Answer, ...] = ()
    steps: tuple[StepDone, ...] = ()
    checkpoint: BodyRef | None = None

    # How it ended.
    outcome: Outcome | None = None
    late_result: int | None = None
    decision: Decision | None = None
    settled_at: int | None = None
    erased_at: int | None = None
    """Bodies from before this are gone."""

    receipts: tuple[Receipt, ...] = ()
    """The last one says how far it is: `FINISHED`, while its requester has not had the outcome."""
    notices: tuple[Notice, ...] = ()
    """One for each reader that was reminded, told by an escalation step, or dismissed something."""

    @property
    def escalation(self) -> tuple[Escalation, ...]:
        """Every step, the requester's first. `Timer.step` and `Escalated.step` count in it."""
        own = self.terms.escalation
        return own + self.team_steps if own else self.team_steps

    @property
    def final(self) -> bool:
        """Whether an outcome exists."""
        return self.outcome is not None

    @property
    def unbound(self) -> bool:
        """Whether its recipient had no manifest when it was offered, and has not had it yet."""
        return not self.manifest_version and not any(
            r.rung is Rung.DELIVERED and r.by == self.recipient for r in self.receipts
        )

    @property
    def parked(self) -> bool:
        """Blocked with no process holding on: the answer brings it back to the inbox."""
        return self.state is State.BLOCKED and not self.live
