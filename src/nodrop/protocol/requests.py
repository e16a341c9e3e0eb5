"""What callers may send: one struct per command and read, unknown fields refused.

Shapes only. Durations are still as written, defaults not yet filled in; `engine` turns a request
into a command of the core.
"""

from typing import Any, Final

import msgspec

from nodrop.protocol.times import Duration


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of every request."""


class Command(Request, frozen=True, kw_only=True):
    """A request that may change something. Repeating its id repeats its answer."""

    command_id: str | None = None


class Briefly(Command, frozen=True, kw_only=True):
    """Base of what a party says about a handoff whose contents it knows."""

    brief: bool = False
    """Answer with where the handoff is, without what is in it."""


class BackoffSpec(Request, frozen=True, kw_only=True):
    """How long retries wait."""

    first: Duration = "2s"
    factor: float = 2.0
    max: Duration = "5m"


class ElsewhereSpec(Request, frozen=True, kw_only=True):
    """Whom to give it to instead."""

    to: str | None = None
    capability: str | None = None


class EscalationSpec(Request, frozen=True, kw_only=True):
    """What to do about it when nobody moves, and when."""

    when: str
    after: Duration = 0
    notify: str | None = None
    reassign: ElsewhereSpec | None = None
    """Give it to somebody else; once it has ended, try it again with them."""
    raise_priority: str | None = None
    """The priority it has from then on."""


class LegSpec(Request, frozen=True, kw_only=True):
    """What comes next in the chain."""

    to: str | None = None
    capability: str | None = None
    title: str | None = None
    trigger: str | None = None
    expected_outcome: str | None = None
    priority: str | None = None
    accept_within: Duration | None = None
    update_every: Duration | None = None
    deadline: Duration | None = None
    attempts_max: int | None = None
    on: str = "completed"
    """`failed`: it takes the place of the one before it when that ends without success."""
    payload: Any = None
    """A template over `result`, `origin`, `payload` and `outcome`; null: what legs are given."""
    detached: bool = False
    """It goes on when what is above it is cancelled or fails."""


MARKS: Final[tuple[str, ...]] = ()
"""Fields of `Offer` that lists can be filtered by; `ListHandoffs` and the views have them too.

That they are checked as names, kept with the terms, shown and found by an index follows from this. They
stay in the log, as all terms do, and later legs have them too.
"""


class Offer(Briefly, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Hand a piece of work to another agent."""

    from_: str | None = None
    to: str | None = None
    capability: str | None = None
    trigger: str | None = None
    title: str | None = None
    priority: str = "medium"
    payload: Any = None
    expected_outcome: str | None = None
    accept_within: Duration | None = None
    update_every: Duration | None = None
    deadline: Duration | None = None
    timeout: Duration | None = None
    """Active time per attempt, if it shall be shorter than the recipient's manifest says."""
    attempts_max: int | None = None
    backoff: BackoffSpec | None = None
    escalation: tuple[EscalationSpec, ...] | None = None
    """Added to the team's own steps, in the place of those of the same kinds; empty: no steps."""
    then: tuple[LegSpec, ...] = ()
    watchers: tuple[str, ...] = ()
    correlation_id: str | None = None
    parent_id: str | None = None
    idempotency_key: str | None = None
    turn_based: bool = False
    """The sender is an assistant or a person at a terminal, who repeats what was not answered: for
    a while, the same offer without a key is then the same handoff."""
    traceparent: str | None = None
    contract_digest: str | None = None
    """What `contract` answered: the offer is refused if the two are not about the same."""
    observations: list[Any] = []
    parameters: dict[str, Any] = {}
    covariates: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    detached: bool = False
    """It goes on when the handoff `parent_id` is cancelled or fails."""
    # Known to the protocol, carried out by later releases: anything but null is refused.
    supersedes: Any = None
    group: Any = None
    signature: Any = None
    """A detached JWS; `protocol.identity.signatures` says over what."""


class OfferGroup(Command, frozen=True, kw_only=True):
    """Hand several pieces of work off together, all or none, under the caller's own labels."""

    offers: dict[str, Offer]
    join: str = "all"
    """`all`, `any`, or `quorum` with how many."""
    quorum: int | None = None
    title: str | None = None
    deadline: Duration | None = None
    """Of every member that names none itself."""
    then: tuple[LegSpec, ...] = ()
    """What follows once it is joined; `result` is the members' results by label."""
    correlation_id: str | None = None
    idempotency_key: str | None = None
    traceparent: str | None = None


class Take(Command, frozen=True, kw_only=True):
    """Lease what waits in the inbox. Without `heartbeat_seconds` the taker is turn-based."""

    max: int = 1
    wait: Duration = 0
    heartbeat_seconds: float | None = None
    process: str | None = None


class Heartbeat(Request, frozen=True, kw_only=True):
    """Keep everything that a process holds."""

    process: str | None = None


class OfDelivery(Briefly, frozen=True, kw_only=True):
    """Base of what the recipient says about a delivery."""

    attempt: int | None = None


class Update(OfDelivery, frozen=True, kw_only=True):
    """This is how it goes."""

    status: str | None = None
    position: int | None = None
    eta: Duration | None = None
    next_update: Duration | None = None


class Ack(Update, frozen=True, kw_only=True):
    """I have it; this is where it stands.

    `queued`, without `attempt`: it waits in my queue, and I take it when I have room.
    """

    queued: bool = False


class Reject(OfDelivery, frozen=True, kw_only=True):
    """I will not do it."""

    reason: str | None = None
    signature: Any = None


class Counter(OfDelivery, frozen=True, kw_only=True):
    """I would do it on other terms."""

    deadline: Duration | None = None
    update_every: Duration | None = None
    accept_within: Duration | None = None
    priority: str | None = None
    timeout: Duration | None = None
    reason: str | None = None


class Block(OfDelivery, frozen=True, kw_only=True):
    """I cannot go on without an answer. `name` is what a later attempt finds the answer under."""

    question: str
    to: str | None = None
    name: str | None = None
    park: bool = False
    checkpoint: Any = msgspec.UNSET


class Complete(OfDelivery, frozen=True, kw_only=True):
    """This is the result."""

    result: Any = None
    signature: Any = None


class Fail(OfDelivery, frozen=True, kw_only=True):
    """It did not work out."""

    reason: str | None = None
    code: str = "failed"
    retryable: bool = False
    signature: Any = None


class Release(OfDelivery, frozen=True, kw_only=True):
    """I give it back."""

    reason: str | None = None
    checkpoint: Any = msgspec.UNSET


class Step(OfDelivery, frozen=True, kw_only=True):
    """This step is done and must not be done again."""

    name: str = ""
    value: Any = None


class Checkpoint(OfDelivery, frozen=True, kw_only=True):
    """What I learnt so far, for whoever goes on."""

    checkpoint: Any


class Answer(Command, frozen=True, kw_only=True):
    """The answer to the question at `seq`."""

    seq: int
    answer: Any


class Agree(Command, frozen=True, kw_only=True):
    """Yes to the terms countered at `seq`."""

    seq: int


class Decline(Command, frozen=True, kw_only=True):
    """No to the terms countered at `seq`."""

    seq: int
    reason: str | None = None


class Cancel(Command, frozen=True, kw_only=True):
    """It is no longer wanted."""

    reason: str | None = None


class Reassign(Command, frozen=True, kw_only=True):
    """Somebody else shall do it."""

    to: str | None = None
    capability: str | None = None
    reason: str | None = None


class Settle(Briefly, frozen=True, kw_only=True):
    """I have the outcome."""


class Redrive(Command, frozen=True, kw_only=True):
    """Try a dead letter again, optionally with somebody else."""

    to: str | None = None
    capability: str | None = None
    deadline: Duration | None = None
    reason: str | None = None


class Discard(Command, frozen=True, kw_only=True):
    """Nothing more shall be done about it."""

    reason: str | None = None


class Erase(Command, frozen=True, kw_only=True):
    """Its words and data shall be gone; that it happened stays in the log."""


class AcceptLate(Command, frozen=True, kw_only=True):
    """Take the result that came too late."""


class Dismiss(Command, frozen=True, kw_only=True):
    """Take the notices about a handoff from an inbox: they stay in the log. A later one is shown again."""

    inbox: str | None = None
    """Whose inbox, for an operator; the caller's own if left out."""


class Note(Command, frozen=True, kw_only=True):
    """A remark for everybody who reads the log."""

    text: str


class Register(Command, frozen=True, kw_only=True):
    """Publish a manifest. The body is the manifest itself, kept byte for byte."""

    agent: str
    manifest: msgspec.Raw


class RemoveAgent(Command, frozen=True, kw_only=True):
    """Take an agent off the register. Its mail is kept."""

    agent: str


class CreateToken(Command, frozen=True, kw_only=True):
    """Mint a token for an agent; its secret is shown once."""

    agent: str
    role: str = "agent"
    label: str | None = None


class RevokeToken(Command, frozen=True, kw_only=True):
    """End a token at once."""

    token_id: str


# --- keys, joining, policy ------------------------------------------------------------------------


class CreateInvitation(Command, frozen=True, kw_only=True):
    """Invite an agent to join, once and soon; the secret is shown once."""

    agent: str | None = None
    """Whom it is for; None: whoever has it, under a name that is free."""
    role: str = "agent"
    expires: Duration = "24h"


class RevokeInvitation(Command, frozen=True, kw_only=True):
    """Take an invitation back."""

    invitation_id: str


class Join(Command, frozen=True, kw_only=True):
    """Join with a key of one's own. The bearer of this request is an invitation."""

    agent: str
    public_key: str
    proof: str


class CreateLink(Command, frozen=True, kw_only=True):
    """Make a link that signs a browser in; its code is shown once."""

    kind: str = "sign_in"
    """`sign_in`: as oneself, once. `view`: to look only, as often as wanted until it expires."""
    expires_in: Duration | None = None
    """How long it can be redeemed: by default 15 minutes to sign in, 24 hours to view."""
    payloads: bool = False
    """Whether a view link shows payloads, results and other bodies."""


class RedeemLink(Request, frozen=True, kw_only=True):
    """Exchange the code of a link for a bearer token. Takes no bearer itself."""

    code: str


class AddKey(Command, frozen=True, kw_only=True):
    """Add a key of an agent; its older ones expire after `overlap`."""

    agent: str | None = None
    role: str | None = None
    public_key: str
    proof: str
    overlap: Duration = "24h"


class RevokeKey(Command, frozen=True, kw_only=True):
    """End a key at once."""

    key_id: str


class AllowSpec(Request, frozen=True, kw_only=True, rename={"from_": "from"}):
    """That one agent may hand something to another; `*` is anybody, or anything."""

    from_: str = "*"
    to: str = "*"
    capability: str = "*"


class TeamStepSpec(Request, frozen=True, kw_only=True):
    """Whom to tell when nobody moves, and when: a step of the team."""

    when: str
    after: Duration = 0
    notify: str = "me"


class SetPolicy(Command, frozen=True, kw_only=True):
    """Set the rules of the team, in the place of those before."""

    signatures: str = "optional"
    allow: tuple[AllowSpec, ...] = ()
    escalation: tuple[TeamStepSpec, ...] | None = None
    """For offers that have no step of the same kind. Left out: the default steps; empty: none."""


class ListInvitations(Request, frozen=True, kw_only=True):
    """The invitations that somebody may still join with."""


class ListTokens(Request, frozen=True, kw_only=True):
    """The API tokens that are good: an operator sees all of them, others their own."""

    agent: str | None = None
    after: str | None = None
    """Only those behind this one: `after` of the page before."""
    limit: int | None = None


class ListKeys(Request, frozen=True, kw_only=True):
    """The public keys of the team's agents."""

    agent: str | None = None


class WhoAmI(Request, frozen=True, kw_only=True):
    """The team, agent and role that the caller's credential stands for."""


class GetPolicy(Request, frozen=True, kw_only=True):
    """The rules of the team."""


# --- beyond the team ------------------------------------------------------------------------------


class SetReach(Command, frozen=True, kw_only=True):
    """How an agent is reached beyond its team. What is left out stays. For operators."""

    agent: str = ""
    public: bool | None = None
    """Callers without a token may hand it work over A2A."""
    a2a: str | None = None
    """Where it lives, if it is an A2A agent elsewhere: the relay delivers there. Empty: nowhere."""
    token: str | None = None
    """What that agent wants as a bearer. Empty: nothing."""
    private: bool | None = None
    """That address may be one of a private network, or of this machine."""


class GetReach(Request, frozen=True, kw_only=True):
    """How an agent is reached beyond its team. For operators."""

    agent: str = ""


# --- reads --------------------------------------------------------------------------------------


class GetHandoff(Request, frozen=True, kw_only=True):
    """One handoff; with `wait`, when it has reached the rung `until`, or is `blocked` or `unblocked`."""

    wait: Duration = 0
    until: str = "finished"
    of: str = "handoff"
    """`chain` follows the legs to the last one."""


class GetGroup(Request, frozen=True, kw_only=True):
    """A group and its members; with `wait`, when it has closed."""

    wait: Duration = 0


class ListHandoffs(Request, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Handoffs that the caller is a party to, newest first."""

    state: str | None = None
    from_: str | None = None
    to: str | None = None
    correlation_id: str | None = None
    before: str | None = None
    limit: int | None = None


class GetInbox(Request, frozen=True, kw_only=True):
    """What waits for the caller. `all` also shows what no longer does.

    Notices with the same cause are gathered into one item, unless `each` or `all` is said.
    """

    after: int = 0
    after_hash: str | None = None
    """The hash of entry `after`, or its beginning: refused where the log has another entry there."""
    wait: Duration = 0
    limit: int | None = None
    all: bool = False
    each: bool = False


class GetLog(Request, frozen=True, kw_only=True):
    """The team's log. Bodies are for the parties."""

    after: int = 0
    after_hash: str | None = None
    """The hash of entry `after`, or its beginning: refused where the log has another entry there."""
    wait: Duration = 0
    limit: int | None = None
    handoff_id: str | None = None
    correlation_id: str | None = None
    actor: str | None = None
    type: str | None = None
    since: Duration | None = None
    """A time, or how long ago: only entries from then on."""
    until: Duration | None = None
    text: str | None = None
    """Only entries that hold these words, as far as the caller may see them."""


class GetTrace(Request, frozen=True, kw_only=True):
    """Every handoff of a chain, oldest first."""


class ListDeadLetters(Request, frozen=True, kw_only=True):
    """Ended without success, and nobody has decided."""

    before: str | None = None
    limit: int | None = None


class GetStep(Request, frozen=True, kw_only=True):
    """A recorded step."""

    name: str = ""


Shape = str | dict[str, Any]
"""Names and short types, or a JSON Schema; in an address, as JSON text."""


class ListAgents(Request, frozen=True, kw_only=True):
    """The agents of the team by name; or those that can do what is asked, the best first."""

    capability: str | None = None
    tags: str | None = None
    """Separated by commas; all of them."""
    input: Shape | None = None
    """What the caller would send."""
    output: Shape | None = None
    """What the caller needs to get."""
    timeout: Duration | None = None
    """The longest an attempt may say it takes."""
    reliability: float | None = None
    """The least share of completed handoffs, as measured."""
    available: bool = False
    """Only who is there now."""
    limit: int | None = None
    after: str | None = None
    """Only names after this one, in the list by name."""


class Contract(Request, frozen=True, kw_only=True):
    """The terms that an offer would have with an agent; nothing is stored."""

    to: str | None = None
    capability: str
    timeout: Duration | None = None
    deadline: Duration | None = None
    update_every: Duration | None = None
    accept_within: Duration | None = None
    attempts_max: int | None = None
    input: dict[str, Any] | None = None
    output: dict[str, Any] | None = None
    reliability: float | None = None


class GetAgent(Request, frozen=True, kw_only=True):
    """One agent and its manifest."""

    agent: str = ""


class ListRefusals(Request, frozen=True, kw_only=True):
    """The security log: who was refused what, latest first. For operators."""

    limit: int | None = None


class GetCheckpoint(Request, frozen=True, kw_only=True):
    """The signed size and head of the team's log, to be kept elsewhere."""


class Backup(Command, frozen=True, kw_only=True):
    """Copy the whole database into a new file on the relay's machine. For operators."""
