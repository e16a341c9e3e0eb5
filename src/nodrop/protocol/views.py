"""What the relay answers: the shapes of answers. Field names are the protocol's."""

from typing import Any

import msgspec

from nodrop.protocol import directory
from nodrop.protocol.identity import key_views
from nodrop.protocol.view import View


class ReceiptView(View, frozen=True, kw_only=True, omit_defaults=True):
    """One rung."""

    rung: str
    at: str
    by: str
    attempt: int | None = None


class AckView(View, frozen=True, kw_only=True):
    """What the recipient last said."""

    status: str | None
    position: int | None
    """In its queue, work in progress included; of what is queued, counted when it is shown."""
    eta: str | None
    next_update: str | None
    queued: bool = False
    """It waits in the recipient's queue, which takes it when it has room."""
    of: int | None = None
    """How many the queue has, `position` being the place among them; of what is queued."""


class QuestionView(View, frozen=True, kw_only=True, omit_defaults=True):
    """What a blocked handoff waits for. `seq` is what an answer names."""

    seq: int
    kind: str
    asked: str
    asked_at: str
    question: str | None = None
    name: str | None = None
    terms: dict[str, str] | None = None
    reason: str | None = None


class OutcomeView(View, frozen=True, kw_only=True, omit_defaults=True):
    """How it ended."""

    state: str
    at: str
    by: str
    code: str | None = None
    result: Any = msgspec.UNSET
    reason: str | None = None
    verified: bool
    """Signed by whoever it is from, as the relay has checked."""


class ChainView(View, frozen=True, kw_only=True):
    """The place in the chain."""

    origin: str
    done: tuple[dict[str, str], ...]
    here: int
    next: tuple[str, ...]


class WarningView(View, frozen=True, kw_only=True):
    """Something the caller should know; nothing was refused."""

    code: str
    detail: str


class HandoffView(View, frozen=True, kw_only=True, rename={"from_": "from"}):
    """A handoff as its parties see it."""

    id: str
    ref: str
    state: str
    holder: str | None
    due_at: str | None
    version: int
    """How many events made it what it is; every entry of its log has one."""
    attempt: int
    tries: int
    receipts: tuple[ReceiptView, ...]
    ack: AckView | None
    chain: ChainView
    question: QuestionView | None
    outcome: OutcomeView | None
    answers: dict[str, Any]
    """By the question's name or text; for the recipient's eyes."""
    warnings: tuple[WarningView, ...]
    from_: str
    to: str
    capability: str | None
    trigger: str | None
    title: str | None
    priority: str
    payload: msgspec.Raw
    expected_outcome: str | None
    accept_within: str
    update_every: str
    deadline: str
    timeout: str | None
    contract_digest: str | None
    attempts_max: int
    backoff: dict[str, Any]
    escalation: tuple[dict[str, Any], ...] | None
    """The requester's steps; null where it stated none, empty where it opted out of the team's."""
    team_steps: tuple[dict[str, Any], ...]
    """The team's steps that were added when it was offered."""
    then: tuple[dict[str, Any], ...]
    watchers: tuple[str, ...]
    correlation_id: str
    parent_id: str | None
    redrive_of: str | None
    successor: str | None
    next_leg: str | None
    decision: str | None
    late_result: bool
    idempotency_key: str | None
    traceparent: str
    """Its own span, in the trace that it was offered in: what work on it is part of."""
    verified: bool
    """Signed by whoever it is from, as the relay has checked."""
    observations: list[Any]
    parameters: dict[str, Any]
    covariates: dict[str, Any]
    metadata: dict[str, Any]
    stored_at: str
    settled_at: str | None
    owed_at: str | None = None
    """By when the holder owes its next move: in the past, it is late. Unlike `due_at` it does not
    move with reminders and heartbeats. Null once the handoff has ended."""
    erased: bool = False
    """Its words and data are gone for good."""
    withheld: bool = False
    """Its words and data are not for this reader."""


class HandoffAnswer(View, frozen=True, kw_only=True, omit_defaults=True):
    """One handoff. `wait_elapsed` says that the wait ran out, which changed nothing."""

    handoff: HandoffView
    wait_elapsed: bool = False
    replayed: bool = False


class BriefView(View, frozen=True, kw_only=True, omit_defaults=True):
    """Where a handoff is, for a party that knows what is in it. What is null is left out."""

    id: str
    state: str
    rung: str
    """The last rung reached."""
    version: int
    attempt: int = 0
    due_at: str | None = None
    settled_at: str | None = None


class BriefAnswer(View, frozen=True, kw_only=True):
    """Where one handoff is: what `brief` asks for."""

    handoff: BriefView


class OfferedView(View, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}):
    """A handoff for whoever offered it: what the relay added. What is null or empty is left out."""

    id: str
    ref: str
    state: str
    version: int
    receipts: tuple[ReceiptView, ...]
    from_: str
    to: str
    capability: str | None = None
    origin: str
    chain: ChainView | None = None
    """Left out where `from` began it and nothing comes before or after."""
    deadline: str
    correlation_id: str
    traceparent: str
    attempt: int = 0
    tries: int = 0
    due_at: str | None = None
    holder: str | None = None
    settled_at: str | None = None
    next_leg: str | None = None
    contract_digest: str | None = None
    verified: bool = False
    warnings: tuple[WarningView, ...] = ()


class OfferedAnswer(View, frozen=True, kw_only=True, omit_defaults=True):
    """What a `brief` offer is answered with."""

    handoff: OfferedView
    replayed: bool = False


class EndedAnswer(View, frozen=True, kw_only=True):
    """The second answer to an offer that is followed: the leg that ended, and how."""

    handoff: OfferedView
    outcome: OutcomeView


class HandoffsAnswer(View, frozen=True, kw_only=True):
    """A page of handoffs; `before` fetches the next."""

    handoffs: tuple[HandoffView, ...]
    before: str | None = None


class DeliveryView(View, frozen=True, kw_only=True):
    """A handoff leased to the taker, and what earlier attempts left for it."""

    handoff: HandoffView
    attempt: int
    lease_until: str | None
    checkpoint: Any
    steps: dict[str, Any]
    answers: dict[str, Any]


class TaskView(View, frozen=True, kw_only=True, omit_defaults=True, rename={"from_": "from"}):
    """A handoff for whoever works on it. What is null, empty or false is left out."""

    id: str
    ref: str
    state: str
    version: int
    attempt: int
    tries: int = 0
    from_: str
    to: str
    chain: ChainView | None = None
    """Left out where `from` began it and nothing comes before or after."""
    capability: str | None = None
    trigger: str | None = None
    title: str | None = None
    priority: str
    payload: msgspec.Raw
    expected_outcome: str | None = None
    update_every: str
    deadline: str
    timeout: str | None = None
    contract_digest: str | None = None
    then: tuple[dict[str, Any], ...] = ()
    watchers: tuple[str, ...] = ()
    correlation_id: str
    parent_id: str | None = None
    redrive_of: str | None = None
    idempotency_key: str | None = None
    traceparent: str
    verified: bool = False
    observations: list[Any] = msgspec.field(default_factory=list)
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    covariates: dict[str, Any] = msgspec.field(default_factory=dict)
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    stored_at: str


class WaitingView(View, frozen=True, kw_only=True, omit_defaults=True):
    """An offer that waits for a free slot of its recipient: what a queued acknowledgement needs."""

    id: str
    ref: str
    capability: str | None = None
    position: int
    slots: int
    """Deliveries that the agent's processes can have at once."""
    update_every: str


class PushView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A delivery as it is pushed: the handoff, and what earlier attempts left for this one."""

    handoff: TaskView
    attempt: int
    lease_until: str | None = None
    checkpoint: Any = None
    steps: dict[str, Any] = msgspec.field(default_factory=dict)
    answers: dict[str, Any] = msgspec.field(default_factory=dict)


class DeliveriesAnswer(View, frozen=True, kw_only=True):
    """What was taken. `process` is what the heartbeat names."""

    deliveries: tuple[DeliveryView, ...]
    process: str | None = None


class HeldAnswer(View, frozen=True, kw_only=True):
    """What a heartbeat kept: (handoff id, attempt) for each delivery the process still holds."""

    held: tuple[tuple[str, int], ...]


class StepAnswer(View, frozen=True, kw_only=True):
    """A recorded step. `recorded` is false where none of that name is."""

    name: str
    recorded: bool
    value: Any = None


class NotedAnswer(View, frozen=True, kw_only=True):
    """Where in the log the note stands."""

    seq: int


class NoticedView(View, frozen=True, kw_only=True):
    """A handoff that a notice is about."""

    id: str
    ref: str
    title: str


class NoticeView(View, frozen=True, kw_only=True):
    """A notice in words: what happened, why, since when, and the commands that answer it."""

    about: str
    """The cause: `unacknowledged`, `silent`, `blocked`, `failed`, …"""
    agent: str
    """Whose move it is about."""
    code: str | None
    what: str
    reason: str | None
    """What the agent said when it failed or rejected it, shortened; of several, what all said."""
    why: str | None
    """The escalation step that told the reader, and whose it is; None: no step did."""
    since: str
    """Since when; of several, the earliest."""
    commands: tuple[str, ...]
    count: int
    """How many handoffs it is about."""
    handoffs: tuple[NoticedView, ...]


class ItemView(View, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One inbox item."""

    kind: str
    seq: int
    at: str
    handoff_id: str | None
    ref: str | None
    from_: str
    state: str | None
    summary: str
    open: bool
    notice: NoticeView | None = None
    """There is one where `kind` is `notice` and it is about a handoff, or about several."""


class InboxAnswer(View, frozen=True, kw_only=True):
    """A page of an inbox; `after` is the cursor for the next."""

    items: tuple[ItemView, ...]
    after: int
    after_hash: str | None
    """The hash of entry `after`, to be sent with it; None: there is none, or it was pruned."""


class EntryView(View, frozen=True, kw_only=True):
    """One entry of the log. `body` is there for the parties of its handoff only."""

    seq: int
    at: str
    type: str
    handoff_id: str | None
    version: int | None
    correlation_id: str | None
    actor: str
    command_id: str | None
    data: msgspec.Raw
    body: Any
    body_salt: str | None
    """What the body's digest was taken with, base64url; there with the body."""
    body_mac: str | None
    """The team's own digest of the body: equal bodies of a team have equal ones. There with the body."""
    body_digest: str | None
    prev_hash: str
    hash: str


class LogAnswer(View, frozen=True, kw_only=True):
    """A page of the log; `after` is the cursor for the next."""

    entries: tuple[EntryView, ...]
    after: int
    after_hash: str | None
    """The hash of entry `after`, to be sent with it; None: there is none, or it was pruned."""


class TokenAnswer(View, frozen=True, kw_only=True):
    """A token; the secret is told once, when it is made."""

    token_id: str
    agent: str
    role: str
    token: str | None = None


class TokenView(View, frozen=True, kw_only=True):
    """A token or a link that is good. Its secret is nowhere."""

    token_id: str
    agent: str
    role: str
    label: str | None
    created_at: str
    kind: str = "token"
    """`token`; or `sign_in` or `view`: a link, and the bearer that it was redeemed for."""
    expires_at: str | None = None
    """When it ends by itself; null: never."""
    used_at: str | None = None
    """When a sign-in link was redeemed."""
    payloads: bool = False
    """Whether a view link shows payloads, results and other bodies."""


class TokensAnswer(View, frozen=True, kw_only=True):
    """A page of tokens and links, oldest first."""

    tokens: tuple[TokenView, ...]
    after: str | None = None
    """The token that the next page begins behind; None: this is the last."""


class CheckpointAnswer(View, frozen=True, kw_only=True):
    """Size and head of a log, signed by the relay. Keep it elsewhere: it proves what was."""

    team: str
    size: int
    head: str
    at: str
    public_key: str
    signature: str


class BackupAnswer(View, frozen=True, kw_only=True):
    """A verified copy of the whole database, and where the team's log ends in it."""

    path: str
    """On the relay's machine."""
    size_bytes: int
    checkpoint: CheckpointAnswer


class RefusalView(View, frozen=True, kw_only=True):
    """One kind of refusal in the security log, and how often it happened."""

    first_at: str
    last_at: str
    count: int
    team: str | None
    actor: str | None
    operation: str
    code: str
    reason: str
    detail: str
    address: str | None


class RefusalsAnswer(View, frozen=True, kw_only=True):
    """What was refused lately for reasons of identity or authorization, latest first."""

    refusals: tuple[RefusalView, ...]


ANSWERS: dict[str, type[View]] = {
    "handoff": HandoffAnswer,
    "handoffs": HandoffsAnswer,
    "deliveries": DeliveriesAnswer,
    "held": HeldAnswer,
    "step": StepAnswer,
    "noted": NotedAnswer,
    "inbox": InboxAnswer,
    "log": LogAnswer,
    "agent": directory.AgentAnswer,
    "agents": directory.AgentsAnswer,
    "contract": directory.ContractAnswer,
    "token": TokenAnswer,
    "tokens": TokensAnswer,
    "checkpoint": CheckpointAnswer,
    "backup": BackupAnswer,
    "refusals": RefusalsAnswer,
    "link": key_views.LinkAnswer,
    "signed_in": key_views.SignedInAnswer,
    "invitation": key_views.InvitationAnswer,
    "invitations": key_views.InvitationsAnswer,
    "key": key_views.KeyAnswer,
    "keys": key_views.KeysAnswer,
    "policy": key_views.PolicyAnswer,
    "whoami": key_views.WhoAmIAnswer,
    "reach": key_views.ReachAnswer,
}
"""The answer shapes that `protocol.operations` names."""
