"""What the relay shows, as values: handoffs, receipts, outcomes, log entries, agents.

Reads only; `handoff`, `inbox` and `task` add what can be done. A field that a later relay adds is
reachable through `view`, the answer as it came.
"""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from nodrop.client.cursor import Cursor
from nodrop.model.handoff import FINAL, State


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the values the relay shows. Unknown fields are passed over."""


class Receipt(Shown, frozen=True, kw_only=True):
    """One rung of the ladder: what is known to have happened, when, and who says so."""

    rung: str
    at: str
    by: str
    attempt: int | None = None


class Ack(Shown, frozen=True, kw_only=True):
    """What the recipient last said about it."""

    status: str | None = None
    position: int | None = None
    eta: str | None = None
    next_update: str | None = None
    queued: bool = False
    """It waits in the recipient's queue; `position` is counted when it is shown."""
    of: int | None = None
    """How many the queue has, of what is queued."""


class Chain(Shown, frozen=True, kw_only=True):
    """The place of a handoff in its chain."""

    origin: str
    done: tuple[dict[str, str], ...] = ()
    here: int = 0
    next: tuple[str, ...] = ()


class Caution(Shown, frozen=True, kw_only=True):
    """Something the requester should know; nothing was refused."""

    code: str
    detail: str = ""


class Question(Shown, frozen=True, kw_only=True):
    """What a blocked handoff waits for."""

    seq: int
    kind: str
    asked: str
    asked_at: str
    question: str | None = None
    name: str | None = None
    terms: dict[str, str] | None = None
    reason: str | None = None


class Entry(Shown, frozen=True, kw_only=True):
    """One entry of the log. `body` is there for the parties of its handoff only."""

    seq: int
    at: str
    type: str
    actor: str
    handoff_id: str | None = None
    correlation_id: str | None = None
    data: Any = None
    body: Any = None
    body_digest: str | None = None
    body_salt: str | None = None
    body_mac: str | None = None
    prev_hash: str = ""
    hash: str = ""

    @property
    def cursor(self) -> Cursor:
        """Where reading goes on behind this entry."""
        return Cursor(self.seq, self.hash or None)


class Claimed(Shown, frozen=True, kw_only=True):
    """What an agent says about a capability of its own."""

    timeout_seconds: float | None = None
    reliability_sla: float | None = None


class Observed(Shown, frozen=True, kw_only=True):
    """What the relay measured. `success` is None while there is not enough data."""

    n: int = 0
    completed: int = 0
    success: float | None = None
    duration_seconds: float | None = None
    says: str = ""


class Offering(Shown, frozen=True, kw_only=True):
    """One capability of an agent: claimed, observed, how it fits what was asked, why it ranks."""

    capability: str
    claimed: Claimed
    observed: Observed
    input: str | None = None
    output: str | None = None
    why: str = ""


class AgentShown(Shown, frozen=True, kw_only=True):
    """An agent of the team: its manifest, and what the relay sees of it."""

    agent_id: str
    version: int = 0
    manifest: dict[str, Any] | None = None
    connected: bool = False
    presence: str = ""
    until: str | None = None
    seen_at: str | None = None
    queued: int = 0
    registered_at: str = ""
    offers: tuple[Offering, ...] = ()


class Contract(Shown, frozen=True, kw_only=True):
    """The terms of an offer to an agent; `hand_off(contract=…)` offers under them."""

    agent: str
    capability: str
    manifest_version: int
    manifest_digest: str
    timeout: str | None = None
    accept_within: str
    update_every: str
    deadline: str
    attempts_max: int
    digest: str
    presence: str = ""
    offering: Offering | None = None

    @property
    def terms(self) -> dict[str, Any]:
        """The fields of an offer under it."""
        terms = {
            "to": self.agent,
            "capability": self.capability,
            "accept_within": self.accept_within,
            "update_every": self.update_every,
            "deadline": self.deadline,
            "attempts_max": self.attempts_max,
            "contract_digest": self.digest,
        }
        return terms if self.timeout is None else {**terms, "timeout": self.timeout}


class KeyShown(Shown, frozen=True, kw_only=True):
    """A public key of an agent."""

    key_id: str
    agent: str
    role: str
    public_key: str
    added_at: str
    expires_at: str | None = None
    revoked_at: str | None = None


_FINAL: Final = frozenset(state.value for state in FINAL)


class HandoffShown:
    """A handoff as the relay last showed it."""

    def __init__(self, view: dict[str, Any]) -> None:
        self._view = view

    @property
    def view(self) -> dict[str, Any]:
        """The whole answer, as it came."""
        return self._view

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.ref} {self.state}>"

    @property
    def id(self) -> str:
        """Its id."""
        return self.view["id"]

    @property
    def ref(self) -> str:
        """`inbox_monitor/msg_123`, or the id where no idempotency key was given."""
        return self.view.get("ref") or self.id

    @property
    def state(self) -> str:
        """offered, delivered, accepted, blocked; completed, failed, rejected, expired, cancelled."""
        return self.view["state"]

    @property
    def finished(self) -> bool:
        """Whether an outcome exists."""
        return self.state in _FINAL

    @property
    def holder(self) -> str | None:
        """Who owes the next move; None once nothing is owed."""
        return self.view.get("holder")

    @property
    def due_at(self) -> str | None:
        """When the relay acts if nobody else does."""
        return self.view.get("due_at")

    @property
    def attempt(self) -> int:
        """The number of the last delivery; 0 before the first."""
        return self.view.get("attempt", 0)

    @property
    def receipts(self) -> tuple[Receipt, ...]:
        """What is known to have happened, in order."""
        return msgspec.convert(self.view.get("receipts", ()), tuple[Receipt, ...])

    @property
    def rung(self) -> str:
        """The last rung reached."""
        if "rung" in self.view:  # a brief answer says it without the receipts
            return self.view["rung"]
        receipts: list[dict[str, Any]] = self.view.get("receipts") or [{"rung": "stored"}]
        return receipts[-1]["rung"]

    @property
    def ack(self) -> Ack | None:
        """What the recipient last said; None until it acknowledged."""
        return msgspec.convert(self.view.get("ack"), Ack | None)

    @property
    def chain(self) -> Chain:
        """Its place in the chain."""
        chain = self.view.get("chain")  # left out where it is all of it
        return Chain(origin=self.origin) if chain is None else msgspec.convert(chain, Chain)

    @property
    def question(self) -> Question | None:
        """What it waits for, if it is blocked."""
        return msgspec.convert(self.view.get("question"), Question | None)

    @property
    def warnings(self) -> tuple[Caution, ...]:
        """What the requester should know."""
        return msgspec.convert(self.view.get("warnings", ()), tuple[Caution, ...])

    @property
    def sender(self) -> str:
        """Who handed it off: the protocol's `from`."""
        return self.view["from"]

    @property
    def sender_verified(self) -> bool:
        """Whether the sender has signed it, as the relay has checked."""
        return bool(self.view.get("verified"))

    @property
    def origin(self) -> str:
        """Who gets the outcome: the one who began the chain."""
        chain: dict[str, Any] | None = self.view.get("chain")
        return self.view["from"] if chain is None else chain["origin"]

    @property
    def recipient(self) -> str:
        """Who shall do it: the protocol's `to`."""
        return self.view["to"]

    @property
    def capability(self) -> str | None:
        """What is asked of the recipient; None for an untyped handoff."""
        return self.view.get("capability")

    @property
    def title(self) -> str | None:
        """Its title."""
        return self.view.get("title")

    @property
    def trigger(self) -> str | None:
        """What set it off."""
        return self.view.get("trigger")

    @property
    def priority(self) -> str:
        """low, medium, high or urgent."""
        return self.view["priority"]

    @property
    def payload(self) -> Any:
        """What was handed over."""
        return self.view.get("payload")

    @property
    def deadline(self) -> str:
        """When it expires."""
        return self.view["deadline"]

    @property
    def correlation_id(self) -> str:
        """What all legs of its chain share."""
        return self.view["correlation_id"]

    @property
    def traceparent(self) -> str | None:
        """Where in its trace it is (W3C trace context): what work on it is part of."""
        return self.view.get("traceparent")

    @property
    def next_leg(self) -> str | None:
        """The handoff that the chain went on with."""
        return self.view.get("next_leg")

    @property
    def successor(self) -> str | None:
        """The handoff that took its place when it was redriven or its late result accepted."""
        return self.view.get("successor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended. `handoff` is the leg that did."""

    state: str
    at: str
    by: str
    code: str | None
    reason: str | None
    result: Any
    handoff: HandoffShown
    verified: bool = False
    """Whether whoever it is by has signed it, as the relay has checked."""

    @property
    def completed(self) -> bool:
        """Whether there is a result."""
        return self.state == State.COMPLETED.value


def outcome_of(handoff: HandoffShown) -> Outcome:
    """Return how a finished handoff ended."""
    said: dict[str, Any] = handoff.view["outcome"]
    return Outcome(
        state=said["state"],
        at=said["at"],
        by=said["by"],
        code=said.get("code"),
        reason=said.get("reason"),
        result=said.get("result"),
        handoff=handoff,
        verified=bool(said.get("verified")),
    )
