"""What may be asked of a handoff. Commands can be refused.

`body` is the caller's own words or data as canonical JSON; the machine never looks inside it.
Durations and defaults are resolved before a command is made.
"""

from nodrop.model.handoff import (
    Answer,
    BodyRef,
    Join,
    Leg,
    LegDone,
    Member,
    MemberOf,
    Proposal,
    StepDone,
    Terms,
    Value,
)


class Actor(Value, frozen=True, kw_only=True):
    """Who asks, as the door authenticated it."""

    agent: str
    operator: bool = False


RELAY = Actor(agent="relay", operator=True)
"""The relay's own hand: timers, next legs, deliveries."""


class Candidate(Value, frozen=True, kw_only=True):
    """An agent that may be asked, and the manifest it would be held to."""

    agent: str
    manifest_version: int | None = None
    timeout_ms: int | None = None


class Binding(Value, frozen=True, kw_only=True):
    """The contract of a recipient that registered after the offer, for the first delivery."""

    to: Candidate
    capability: str
    refused: str | None = None
    """The error code, if the contract cannot hold: the handoff is rejected instead of delivered."""
    refusal: bytes | None = None


class Offer(Value, frozen=True, kw_only=True):
    """Put a new handoff into somebody's inbox."""

    sender: str
    origin: str
    to: Candidate
    capability: str | None = None
    routed: bool = False
    terms: Terms
    contract_digest: str | None = None
    correlation_id: str
    parent_id: str | None = None
    legs: tuple[Leg, ...] = ()
    legs_done: tuple[LegDone, ...] = ()
    watchers: tuple[str, ...] = ()
    key: str | None = None
    traceparent: str | None = None
    ancestors: tuple[str, ...] = ()
    redrive_of: str | None = None
    chain_deadline_at: int | None = None
    detached: bool = False
    member_of: MemberOf | None = None
    join: Join | None = None
    not_before: int | None = None
    """A redrive that the retry budget makes wait."""
    steps: tuple[StepDone, ...] = ()
    answers: tuple[Answer, ...] = ()
    checkpoint: BodyRef | None = None
    refused: str | None = None
    """A leg that cannot open is born `rejected` with this code: a completion always stands."""
    refusal: bytes | None = None
    """The words that go with it."""
    completed: bytes | None = None
    """A late result that was accepted: the successor is born `completed` with it."""
    body: bytes


class Deliver(Value, frozen=True, kw_only=True):
    """Lease an offered handoff to a process of its recipient."""

    process: str
    heartbeat_ms: int | None


class Acknowledge(Value, frozen=True, kw_only=True):
    """The recipient accepts. Without `attempt`: takes and accepts in one go.

    `queued`: it has put the offer into its queue, and takes it when it has room.
    """

    attempt: int | None
    queued: bool = False
    position: int | None = None
    eta_at: int | None = None
    next_update_at: int | None = None
    body: bytes | None = None


class Update(Value, frozen=True, kw_only=True):
    """The recipient says how it goes."""

    attempt: int | None
    position: int | None = None
    eta_at: int | None = None
    next_update_at: int | None = None
    body: bytes | None = None


class Block(Value, frozen=True, kw_only=True):
    """The recipient cannot go on without an answer."""

    attempt: int | None
    asked: str | None = None
    park: bool = False
    checkpoint: bytes | None = None
    body: bytes


class Counter(Value, frozen=True, kw_only=True):
    """The recipient would do it on other terms."""

    attempt: int | None
    proposal: Proposal
    body: bytes | None = None


class Reject(Value, frozen=True, kw_only=True):
    """The recipient will not do it."""

    attempt: int | None
    body: bytes | None = None


class Complete(Value, frozen=True, kw_only=True):
    """The recipient hands in its result."""

    attempt: int | None
    body: bytes


class Fail(Value, frozen=True, kw_only=True):
    """The recipient gives up on this attempt, or for good."""

    attempt: int | None
    retryable: bool
    code: str
    body: bytes | None = None


class Release(Value, frozen=True, kw_only=True):
    """The recipient gives it back, unharmed."""

    attempt: int | None
    checkpoint: bytes | None = None
    body: bytes | None = None


class RecordStep(Value, frozen=True, kw_only=True):
    """The recipient finished a step that must not be repeated."""

    attempt: int | None
    name: str
    body: bytes


class Checkpoint(Value, frozen=True, kw_only=True):
    """The recipient leaves what it learnt to the next attempt."""

    attempt: int | None
    body: bytes


class AnswerQuestion(Value, frozen=True, kw_only=True):
    """Whoever was asked answers. `question` is the version of the question answered."""

    question: int
    body: bytes


class Agree(Value, frozen=True, kw_only=True):
    """The requester takes the countered terms."""

    question: int


class Decline(Value, frozen=True, kw_only=True):
    """The requester does not take the countered terms."""

    question: int
    body: bytes | None = None


class Cancel(Value, frozen=True, kw_only=True):
    """The requester withdraws it."""

    settled: bool = False
    """Nobody waits for the outcome: what it was for has ended."""
    body: bytes | None = None


class Reassign(Value, frozen=True, kw_only=True):
    """The requester gives it to somebody else."""

    to: Candidate
    capability: str | None = None
    routed: bool = False
    body: bytes | None = None


class Settle(Value, frozen=True, kw_only=True):
    """The requester has the outcome; or the chain goes on at `next_leg`, with `next_agent`."""

    next_leg: str | None = None
    next_agent: str | None = None


class MarkOutcomeDelivered(Value, frozen=True, kw_only=True):
    """The outcome goes out over a connection that is the requester."""


class Redrive(Value, frozen=True, kw_only=True):
    """Try a dead letter again, as a successor."""

    successor: str
    body: bytes | None = None


class AcceptLate(Value, frozen=True, kw_only=True):
    """Take a result that came too late, as a successor born completed."""

    successor: str


class Discard(Value, frozen=True, kw_only=True):
    """Nothing more will be done about it."""

    body: bytes | None = None


class MoveMember(Value, frozen=True, kw_only=True):
    """A member of this group ended, or goes on as another handoff."""

    member: Member


class CloseGroup(Value, frozen=True, kw_only=True):
    """Every member has ended, or enough of them completed. `body` is what came of it."""

    body: bytes


class Consume(Value, frozen=True, kw_only=True):
    """The group of this dead letter has closed."""


class Erase(Value, frozen=True, kw_only=True):
    """Its words and data shall be gone; that it happened stays."""


class Dismiss(Value, frozen=True, kw_only=True):
    """Take a reader's notices about it from that reader's inbox; None: the caller's own."""

    reader: str | None = None


class Note(Value, frozen=True, kw_only=True):
    """Any agent of the team writes in the margin."""

    body: bytes


class LapseLease(Value, frozen=True, kw_only=True):
    """The process that took it went silent."""

    process: str


class LapseQueue(Value, frozen=True, kw_only=True):
    """No process of the recipient was heard of: its queued acknowledgement is void."""


class Revive(Value, frozen=True, kw_only=True):
    """The process whose lease lapsed is back before anybody else took over."""

    process: str


class Tick(Value, frozen=True, kw_only=True):
    """Time passed. Never refused; often does nothing."""


class CountAnew(Value, frozen=True, kw_only=True):
    """The clock was set back between two runs. Never refused; often does nothing."""


Command = (
    Offer
    | Deliver
    | Acknowledge
    | Update
    | Block
    | Counter
    | Reject
    | Complete
    | Fail
    | Release
    | RecordStep
    | Checkpoint
    | AnswerQuestion
    | Agree
    | Decline
    | Cancel
    | Reassign
    | Settle
    | MarkOutcomeDelivered
    | Redrive
    | AcceptLate
    | Discard
    | MoveMember
    | CloseGroup
    | Consume
    | Erase
    | Dismiss
    | Note
    | LapseLease
    | LapseQueue
    | Revive
    | Tick
    | CountAnew
)
