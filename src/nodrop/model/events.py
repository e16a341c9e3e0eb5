"""What happened to a handoff. Facts in the past tense, kept forever, never refused.

An event holds only what the whole team may see. Words and data travel beside it as the `body` of
a `Fact` and are kept beside the log.
"""

from nodrop.model.handoff import (
    Answer,
    BodyRef,
    ClockName,
    Escalation,
    Join,
    Leg,
    LegDone,
    Member,
    MemberOf,
    Priority,
    Proposal,
    QuestionKind,
    StepDone,
    Terms,
    Value,
    When,
)


class Offered(Value, frozen=True, kw_only=True):
    """A new handoff exists."""

    sender: str
    origin: str
    recipient: str
    capability: str | None = None
    manifest_version: int | None = None
    routed: bool = False
    terms: Terms
    team_steps: tuple[Escalation, ...] = ()
    """The team's escalation steps of kinds that the terms have no step of."""
    contract_digest: str | None = None
    correlation_id: str
    parent_id: str | None = None
    legs: tuple[Leg, ...] = ()
    legs_done: tuple[LegDone, ...] = ()
    watchers: tuple[str, ...] = ()
    key: str | None = None
    traceparent: str | None = None
    ancestors: tuple[str, ...] = ()
    """The recipients of the handoffs above it, along `parent_id`."""
    redrive_of: str | None = None
    chain_deadline_at: int | None = None
    detached: bool = False
    member_of: MemberOf | None = None
    join: Join | None = None
    not_before: int | None = None
    """Not to be taken earlier: the retry budget was used up when it was redriven."""
    steps: tuple[StepDone, ...] = ()
    answers: tuple[Answer, ...] = ()
    checkpoint: BodyRef | None = None


class Delivered(Value, frozen=True, kw_only=True):
    """Leased to a process of the recipient, and about to be sent to it."""

    attempt: int
    process: str
    heartbeat_ms: int | None = None
    capability: str | None = None
    """With `manifest_version` and `timeout_ms`: the contract that this delivery bound."""
    manifest_version: int | None = None
    timeout_ms: int | None = None


class Queued(Value, frozen=True, kw_only=True):
    """The recipient has put it into its queue, or says again how it stands there."""

    position: int
    eta_at: int | None = None
    next_update_at: int


class QueueLapsed(Value, frozen=True, kw_only=True):
    """The queued acknowledgement is void: it is unacknowledged again."""

    reason: str
    """`promise_passed` or `agent_silent`."""


class Acknowledged(Value, frozen=True, kw_only=True):
    """The recipient has it and owes the rest."""

    attempt: int
    position: int | None = None
    eta_at: int | None = None
    next_update_at: int


class Updated(Value, frozen=True, kw_only=True):
    """The recipient said how it goes."""

    attempt: int
    position: int | None = None
    eta_at: int | None = None
    next_update_at: int


class Blocked(Value, frozen=True, kw_only=True):
    """Somebody else owes the next move: an answer."""

    attempt: int
    kind: QuestionKind
    asked: str
    parked: bool = False
    proposed: Proposal | None = None


class Parked(Value, frozen=True, kw_only=True):
    """The asking process is gone; the question stays."""

    attempt: int


class Answered(Value, frozen=True, kw_only=True):
    """The question has its answer."""

    question: int
    by: str


class Agreed(Value, frozen=True, kw_only=True):
    """The countered terms hold now."""

    question: int
    terms: Terms


class Resumed(Value, frozen=True, kw_only=True):
    """The attempt that asked goes on."""

    attempt: int


class Returned(Value, frozen=True, kw_only=True):
    """Back in the inbox."""

    reason: str
    """`lease_lapsed`, `timed_out`, `released`, `retry` or `answered`."""
    attempt: int
    tried: bool = False
    """Whether it used up a try."""
    revivable: bool = False
    not_before: int | None = None


class Reclaimed(Value, frozen=True, kw_only=True):
    """A delivery that lapsed unacknowledged is held again by the process that had it."""

    attempt: int


class Revived(Value, frozen=True, kw_only=True):
    """The lapsed attempt goes on: nobody else had taken over."""

    attempt: int


class Reassigned(Value, frozen=True, kw_only=True):
    """Somebody else is asked."""

    recipient: str
    reason: str
    """`reassigned`, `rejected`, `declined`, `unacknowledged` or `escalated`."""
    capability: str | None = None
    manifest_version: int | None = None
    routed: bool = False
    timeout_ms: int | None = None


class StepRecorded(Value, frozen=True, kw_only=True):
    """A step is finished for every attempt to come."""

    attempt: int
    name: str


class Checkpointed(Value, frozen=True, kw_only=True):
    """What was learnt so far is kept for the next attempt."""

    attempt: int


class Completed(Value, frozen=True, kw_only=True):
    """A result exists."""

    attempt: int


class Failed(Value, frozen=True, kw_only=True):
    """No result will come."""

    attempt: int
    code: str


class Rejected(Value, frozen=True, kw_only=True):
    """Nobody will do it."""

    code: str


class Expired(Value, frozen=True, kw_only=True):
    """The deadline passed first."""


class Cancelled(Value, frozen=True, kw_only=True):
    """The requester withdrew it."""


class OutcomeDelivered(Value, frozen=True, kw_only=True):
    """The outcome is sent over a connection that is the requester, or given to the next leg."""

    to: str


class Settled(Value, frozen=True, kw_only=True):
    """The requester has the outcome; nothing more is owed."""

    next_leg: str | None = None


class LateResultKept(Value, frozen=True, kw_only=True):
    """A result after the end, kept until somebody decides."""

    attempt: int


class LateAnswerKept(Value, frozen=True, kw_only=True):
    """An answer after the end, kept for a successor."""

    question: int
    by: str


class Redriven(Value, frozen=True, kw_only=True):
    """A successor tries again."""

    successor: str


class AcceptedLate(Value, frozen=True, kw_only=True):
    """A successor holds the late result."""

    successor: str


class Discarded(Value, frozen=True, kw_only=True):
    """Somebody decided that nothing more will be done."""


class MemberMoved(Value, frozen=True, kw_only=True):
    """A member of this group ended, or goes on as another handoff."""

    member: Member


class Joined(Value, frozen=True, kw_only=True):
    """The group of this dead letter has closed and took what there was of it."""


class Erased(Value, frozen=True, kw_only=True):
    """The bodies of every event so far are gone."""


class Nudged(Value, frozen=True, kw_only=True):
    """A clock ran out and the relay reminded whoever owes the move."""

    clock: ClockName
    to: str
    again_at: int
    length_ms: int


class Escalated(Value, frozen=True, kw_only=True):
    """An escalation step fired."""

    step: int
    when: When
    notify: str | None = None
    priority: Priority | None = None
    """What it is raised to."""


class Rearmed(Value, frozen=True, kw_only=True):
    """A clock counts anew: it ran out while the relay was down, or time was set back meanwhile."""

    clock: ClockName
    at: int
    step: int | None = None


class Ready(Value, frozen=True, kw_only=True):
    """The wait before a retry is over; it can be taken again."""


class Dismissed(Value, frozen=True, kw_only=True):
    """A reader's notices so far no longer wait for it."""

    reader: str


class Noted(Value, frozen=True, kw_only=True):
    """Somebody wrote in the margin."""


Event = (
    Offered
    | Delivered
    | Queued
    | QueueLapsed
    | Acknowledged
    | Updated
    | Blocked
    | Parked
    | Answered
    | Agreed
    | Resumed
    | Returned
    | Reclaimed
    | Revived
    | Reassigned
    | StepRecorded
    | Checkpointed
    | Completed
    | Failed
    | Rejected
    | Expired
    | Cancelled
    | OutcomeDelivered
    | Settled
    | LateResultKept
    | LateAnswerKept
    | Redriven
    | AcceptedLate
    | Discarded
    | MemberMoved
    | Joined
    | Erased
    | Nudged
    | Escalated
    | Rearmed
    | Ready
    | Dismissed
    | Noted
)


class Fact(Value, frozen=True, kw_only=True):
    """An event, and the words or data that came with it."""

    event: Event
    body: bytes | None = None
