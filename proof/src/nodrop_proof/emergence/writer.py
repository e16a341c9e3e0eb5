"""Writes a script as a log: real events, sealed into a hash chain that `nodrop verify` accepts."""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

import msgspec

from nodrop.model import events
from nodrop.model.handoff import (
    Backoff,
    Escalation,
    Leg,
    LegDone,
    Priority,
    Proposal,
    QuestionKind,
    State,
    Terms,
    When,
)
from nodrop.protocol import bodies, canonical
from nodrop.protocol import events as wire_events
from nodrop.protocol.bodies import Content
from nodrop.protocol.entries import Draft, Head, salted_digest, seal
from nodrop.protocol.identity.keys import encode
from nodrop.protocol.times import format_time
from nodrop.testing.clock import T0, FakeClock
from nodrop_proof.emergence.script import Act, Script, Step, chain_id
from nodrop_proof.simulate.ids import SeededIds

TEAM: Final = "default"
RELAY: Final = "relay"
_HOUR: Final = 3_600_000
_SALT_BYTES: Final = 16
_BACKOFF: Final = Backoff(first_ms=1_000, factor_percent=200, max_ms=300_000)
_ENCODER: Final = msgspec.json.Encoder()


class _Open(msgspec.Struct):
    """A handoff as the writer knows it."""

    id: str
    chain: str
    sender: str
    origin: str
    recipient: str
    capability: str | None
    terms: Terms
    version: int = 1
    attempt: int = 0
    question: int = 0
    countered: bool = False
    content: Content = Content()
    first: Any = None
    """The payload that the chain began with."""
    legs: tuple[Leg, ...] = ()
    done: tuple[LegDone, ...] = ()


class Writer:
    """Turns steps into entries."""

    def __init__(self, seed: int) -> None:
        self._clock = FakeClock()
        self._chance = Random(seed)  # noqa: S311  # repeatable on purpose
        self._ids = SeededIds(self._clock, self._chance)
        self._head = Head()
        self._handoffs: dict[int, _Open] = {}
        self._began = 0
        self._parts = 0
        self._lines: list[bytes] = []

    def lines(self, script: Script) -> Iterator[bytes]:
        """Yield the log, one entry per line."""
        for step in script.ordered():
            self._clock.set(T0 + self._began + step.at)
            self._step(step)
            yield from self._lines
            self._lines.clear()

    def carry_on(self) -> None:
        """Begin another script where the last one ended."""
        self._began = self._clock.now() - T0
        self._handoffs.clear()
        self._parts += 1

    def _step(self, step: Step) -> None:
        match step.act:
            case Act.REGISTER:
                self._register(step)
            case Act.OFFER:
                self._offer(step)
            case Act.SAY:
                body = canonical.dumps({"text": step.text})
                data = canonical.dumps({"to": [step.to]})
                thread = f"{step.actor}-{step.to}"
                self._write("message.said.v1", step.actor, data, body, chain=thread)
            case _:
                self._move(step, self._handoffs[step.handoff])

    # --- entries ---

    def _write(
        self,
        kind: str,
        actor: str,
        data: bytes,
        body: bytes | None,
        *,
        about: _Open | None = None,
        chain: str | None = None,
    ) -> None:
        draft = Draft(
            team=TEAM,
            at=self._clock.now(),
            type=kind,
            actor=actor,
            handoff_id=about.id if about else None,
            version=about.version if about else None,
            correlation_id=about.chain if about else chain,
            data=msgspec.Raw(data),
            body=body,
        )
        salt = self._chance.randbytes(_SALT_BYTES)
        digest = None if body is None else salted_digest(salt, body)
        entry = seal(draft, self._head, digest)
        self._head = Head(seq=entry.seq, hash=entry.hash)
        shown = {
            "seq": entry.seq,
            "at": format_time(entry.at),
            "type": kind,
            "handoff_id": entry.handoff_id,
            "version": entry.version,
            "correlation_id": entry.correlation_id,
            "actor": actor,
            "command_id": None,
            "data": msgspec.Raw(data),
            "body": msgspec.Raw(b"null" if body is None else body),
            "body_digest": digest,
            "body_salt": None if body is None else encode(salt),
            "prev_hash": entry.prev_hash,
            "hash": entry.hash,
        }
        self._lines.append(_ENCODER.encode(shown) + b"\n")

    def _happens(
        self, about: _Open, actor: str, event: events.Event, body: bytes | None = None
    ) -> None:
        kind, data = wire_events.encode(event)
        if not isinstance(event, events.Offered):
            about.version += 1
        self._write(kind, actor, data, body, about=about)

    # --- steps ---

    def _register(self, step: Step) -> None:
        can = [
            {"name": name} | ({} if sla is None else {"reliability_sla": sla})
            for name, sla in step.capabilities.items()
        ]
        manifest = canonical.dumps({"agent_id": step.actor, "capabilities": can})
        data = {"agent": step.actor, "version": 1, "capabilities": [c["name"] for c in can]}
        self._write("agent.registered.v1", step.actor, canonical.dumps(data), manifest)

    def _offer(self, step: Step) -> None:
        now = self._clock.now()
        chain = chain_id(step.chain) + (f".{self._parts}" if self._parts else "")
        told = Escalation(when=When.UNACKNOWLEDGED, after_ms=step.escalate_ms, notify="me")
        terms = Terms(
            priority=Priority.MEDIUM,
            accept_within_ms=900_000,
            update_every_ms=1_800_000,
            deadline_at=now + step.deadline_ms,
            answer_within_ms=4 * _HOUR,
            outcome_within_ms=24 * _HOUR,
            attempts_max=5,
            backoff=_BACKOFF,
            escalation=(told,) if step.escalate_ms else (),
        )
        content = Content(
            title=step.title,
            payload=msgspec.Raw(canonical.dumps(step.payload)),
            parameters=dict(step.parameters),
            covariates=dict(step.covariates),
            observations=list(step.observations),
        )
        opened = _Open(
            id=self._ids.new(),
            chain=chain,
            sender=step.actor,
            origin=step.actor,
            recipient=step.to,
            capability=step.capability,
            terms=terms,
            content=content,
            first=step.payload,
            legs=tuple(Leg(to=to, capability=capability) for to, capability in step.then),
        )
        self._handoffs[step.handoff] = opened
        self._opens(opened, None)

    def _opens(self, opened: _Open, parent: str | None) -> None:
        event = events.Offered(
            sender=opened.sender,
            origin=opened.origin,
            recipient=opened.recipient,
            capability=opened.capability,
            terms=opened.terms,
            correlation_id=opened.chain,
            parent_id=parent,
            legs=opened.legs,
            legs_done=opened.done,
        )
        by = opened.sender if parent is None else RELAY
        self._happens(opened, by, event, bodies.encode_content(opened.content))

    def _move(self, step: Step, h: _Open) -> None:
        now, words = self._clock.now(), canonical.dumps
        match step.act:
            case Act.ACK:
                h.attempt += 1
                if h.attempt > 1:
                    self._happens(h, RELAY, events.Ready())
                taken = events.Delivered(attempt=h.attempt, process="p", heartbeat_ms=10_000)
                self._happens(h, h.recipient, taken)
                due = now + h.terms.update_every_ms
                self._happens(
                    h, h.recipient, events.Acknowledged(attempt=h.attempt, next_update_at=due)
                )
            case Act.ASK:
                asks = events.Blocked(attempt=h.attempt, kind=QuestionKind.QUESTION, asked=h.origin)
                self._happens(h, h.recipient, asks, words({"question": step.text}))
                h.question = h.version
            case Act.COUNTER:
                counters = events.Blocked(
                    attempt=h.attempt,
                    kind=QuestionKind.TERMS,
                    asked=h.origin,
                    proposed=Proposal(priority=h.terms.priority),
                )
                self._happens(h, h.recipient, counters, words({"reason": step.text}))
                h.question, h.countered = h.version, True
            case Act.ANSWER:
                if h.countered:
                    agreed = events.Agreed(question=h.question, terms=h.terms)
                    self._happens(h, step.actor, agreed)
                else:
                    answer = events.Answered(question=h.question, by=step.actor)
                    self._happens(h, step.actor, answer, words({"answer": step.text}))
                h.countered = False
                self._happens(h, step.actor, events.Resumed(attempt=h.attempt))
            case Act.RETRY:
                back = events.Returned(
                    reason="retry", attempt=h.attempt, tried=True, not_before=now + 1_000
                )
                self._happens(h, h.recipient, back)
            case Act.COMPLETE:
                self._complete(step, h)
            case Act.FAIL:
                failed = events.Failed(attempt=h.attempt, code="failed")
                self._happens(h, h.recipient, failed, words({"reason": step.text or "failed"}))
            case Act.SETTLE:
                self._happens(h, h.origin, events.Settled())
            case Act.EXPIRE:
                self._happens(h, RELAY, events.Expired())
            case Act.ESCALATE:
                self._happens(
                    h, RELAY, events.Escalated(step=0, when=When.UNACKNOWLEDGED, notify="me")
                )
            case _:
                raise AssertionError(step.act)

    def _complete(self, step: Step, h: _Open) -> None:
        result = canonical.dumps({"result": step.payload})
        self._happens(h, h.recipient, events.Completed(attempt=h.attempt), result)
        if not h.legs:
            return
        leg, *later = h.legs
        content = {"result": step.payload, "origin": h.first}
        opened = _Open(
            id=self._ids.new(),
            chain=h.chain,
            sender=h.recipient,
            origin=h.origin,
            recipient=leg.to or "",
            capability=leg.capability,
            terms=msgspec.structs.replace(h.terms),
            content=Content(title=h.content.title, payload=msgspec.Raw(canonical.dumps(content))),
            legs=tuple(later),
            done=(*h.done, LegDone(id=h.id, agent=h.recipient, state=State.COMPLETED)),
            first=h.first,
        )
        self._handoffs[step.opens] = opened
        self._opens(opened, h.id)
        self._happens(h, RELAY, events.Settled(next_leg=opened.id))
