"""Chains: what follows from an outcome, in the transaction of the outcome.

Opening the next leg settles the one before. A completion always stands: a next leg that cannot
open is born `rejected` with its reason, as a dead letter of its own.
"""

from typing import Any

from msgspec.structs import replace

from nodrop.core import commands
from nodrop.core.commands import Candidate
from nodrop.core.errors import CallerError
from nodrop.core.limits import Limits
from nodrop.core.lineage import require_no_loop, visited
from nodrop.core.model import BodyRef, Handoff, Leg, LegDone, Terms
from nodrop.engine.register import Register
from nodrop.engine.room import Room
from nodrop.wire import bodies, canonical
from nodrop.wire.bodies import Content


def next_leg(
    done: Handoff,
    content: Content,
    result: bytes,
    *,
    now: int,
    register: Register,
    room: Room,
    limits: Limits,
) -> commands.Offer:
    """Return the offer of the leg after `done`, whose result's body is `result`."""
    leg, *later = done.legs
    outcome = canonical.loads(result)
    payload = _payload(done, content, outcome)
    refused: str | None = None
    try:
        target = register.target(done.team, leg.to, leg.capability, sender=done.recipient)
        candidate, capability, routed = target.candidate, target.capability, target.routed
        require_no_loop(visited(done), candidate.agent, later, limits)
        if full := room.why_full_inbox(done.team, candidate.agent):
            refused = full.code
        elif register.problems(done.team, candidate, capability, "input", payload):
            refused = "payload_invalid"
    except CallerError as error:
        candidate = Candidate(agent=leg.to or done.recipient)
        capability, routed, refused = leg.capability, False, error.code
    text = content.legs[0] if content.legs else bodies.LegText()
    body = bodies.encode_content(
        Content(
            trigger=text.trigger or content.trigger,
            title=text.title or content.title,
            expected_outcome=text.expected_outcome,
            payload=bodies.raw(canonical.dumps(payload)),
            metadata=content.metadata,
            legs=content.legs[1:],
            within=content.within or (done.id if content.signed else None),
            verified=content.verified and "signed" in outcome,
        )
    )
    if len(body) > limits.body_bytes_max:
        refused, body = "too_large", bodies.encode_content(Content(title=text.title))
    return commands.Offer(
        sender=done.recipient,
        origin=done.origin,
        to=candidate,
        capability=capability,
        routed=routed,
        terms=_terms(done.terms, leg, now),
        correlation_id=done.correlation_id,
        parent_id=done.id,
        legs=tuple(later),
        legs_done=(
            *done.legs_done,
            LegDone(id=done.id, agent=done.recipient, state=done.state),
        ),
        ancestors=done.ancestors,
        watchers=done.watchers,
        traceparent=done.traceparent,
        refused=refused,
        body=body,
    )


def _payload(done: Handoff, content: Content, outcome: dict[str, Any]) -> dict[str, Any]:
    """Return what the next leg is given: the result before it, and what the origin sent."""
    given = canonical.loads(bytes(content.payload))
    origin = given.get("origin") if done.legs_done else given
    return {"result": outcome.get("result"), "origin": origin}


def _terms(terms: Terms, leg: Leg, now: int) -> Terms:
    """Return a leg's own terms: the deadline is the chain's, and a leg may be shorter."""
    deadline = terms.deadline_at
    if leg.deadline_ms is not None:
        deadline = min(deadline, now + leg.deadline_ms)
    return replace(
        terms,
        priority=leg.priority or terms.priority,
        accept_within_ms=leg.accept_within_ms or terms.accept_within_ms,
        update_every_ms=leg.update_every_ms or terms.update_every_ms,
        attempts_max=leg.attempts_max or terms.attempts_max,
        deadline_at=max(deadline, now + 1),
        timeout_asked_ms=None,  # it was agreed with somebody else
    )


def successor(
    dead: Handoff,
    content: bytes,
    *,
    to: Candidate,
    capability: str | None,
    routed: bool,
    deadline_at: int,
    late_result: bytes | None = None,
    not_before: int | None = None,
) -> commands.Offer:
    """Return the offer that carries on `dead`: its work, what it left behind, and its chain."""
    return commands.Offer(
        sender=dead.sender,
        origin=dead.origin,
        to=to,
        capability=capability,
        routed=routed,
        terms=replace(dead.terms, deadline_at=deadline_at),
        correlation_id=dead.correlation_id,
        parent_id=dead.parent_id,
        legs=dead.legs,
        legs_done=dead.legs_done,
        ancestors=dead.ancestors,
        watchers=dead.watchers,
        key=dead.key,
        traceparent=dead.traceparent,
        redrive_of=dead.id,
        not_before=not_before,
        steps=tuple(replace(s, value=_of(s.value, dead)) for s in dead.steps),
        answers=tuple(
            replace(a, question=_of(a.question, dead), answer=_of(a.answer, dead))
            for a in dead.answers
        ),
        checkpoint=_of(dead.checkpoint, dead) if dead.checkpoint else None,
        completed=late_result,
        body=content,
    )


def _of(ref: BodyRef, dead: Handoff) -> BodyRef:
    return ref if ref.of else BodyRef(version=ref.version, of=dead.id)
