"""Chains: the offers that follow from an outcome. Nothing here is applied: `consequences` does that.

Opening the next leg settles the one before. A completion always stands: a next leg that cannot
open is born `rejected` with its reason, as a dead letter of its own, unless a fallback follows it.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from nodrop.model import commands, template
from nodrop.model.commands import Candidate
from nodrop.model.errors import CallerError, PayloadInvalidError, TooLargeError
from nodrop.model.following import next_leg as following_leg
from nodrop.model.handoff import BodyRef, Handoff, Leg, LegDone, State, Terms
from nodrop.model.limits import Limits
from nodrop.model.lineage import require_no_loop, visited
from nodrop.protocol import bodies, canonical, traces
from nodrop.protocol.bodies import Content
from nodrop.relay.directory.register import Register, Target
from nodrop.relay.room import Room


class _Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Why a leg cannot open."""

    code: str
    reason: str


def next_leg(
    done: Handoff,
    content: Content,
    outcome: dict[str, Any],
    *,
    earlier: Sequence[Handoff] = (),
    now: int,
    register: Register,
    room: Room,
    limits: Limits,
) -> commands.Offer:
    """Return the offer of the leg that follows from `done`, whose outcome's body is `outcome`.

    `earlier` are the legs before it, where more time may have to be found for a fallback.
    """
    following = following_leg(done)
    assert following is not None, "asked for only where there is one"
    leg, later = following
    index = len(done.legs) - len(later) - 1
    text = _text(content, index)
    candidate, capability, routed = Candidate(agent=leg.to or done.recipient), leg.capability, False
    payload: Any = None
    refused: _Refused | None = None
    try:
        payload = _payload(done, content, outcome, leg, text)
        target = _target(done, leg, later, register, limits)
        candidate, capability, routed = target.candidate, target.capability, target.routed
        if full := room.why_full_inbox(done.team, candidate.agent):
            refused = _Refused(code=full.code, reason=full.detail)
        elif problems := register.problems(done.team, candidate, capability, "input", payload):
            why = f"{problems[0].path}: {problems[0].message}"
            refused = _Refused(code=PayloadInvalidError.code, reason=why)
    except CallerError as error:
        refused = _Refused(code=error.code, reason=error.detail)
    told = _told(done, content, leg, index, payload=payload, signed="signed" in outcome)
    body = bodies.encode_content(told)
    if len(body) > limits.body_bytes_max:
        refused = _Refused(code=TooLargeError.code, reason=f"{len(body)} bytes of payload")
        body = bodies.encode_content(Content(title=text.title))
    terms, chain_deadline_at = _terms(done, leg, earlier, now)
    return commands.Offer(
        sender=done.recipient,
        origin=done.origin,
        to=candidate,
        capability=capability,
        routed=routed,
        terms=terms,
        correlation_id=done.correlation_id,
        parent_id=done.id,
        legs=later,
        legs_done=(
            *done.legs_done,
            LegDone(id=done.id, agent=done.recipient, state=done.state),
        ),
        ancestors=done.ancestors,
        watchers=done.watchers,
        traceparent=traces.traceparent(done),
        chain_deadline_at=chain_deadline_at,
        detached=leg.detached or done.detached,
        member_of=done.member_of,
        refused=refused.code if refused else None,
        refusal=bodies.words(reason=refused.reason) if refused else None,
        body=body,
    )


def _target(
    done: Handoff, leg: Leg, later: tuple[Leg, ...], register: Register, limits: Limits
) -> Target:
    target = register.target(done.team, leg.to, leg.capability, sender=done.recipient)
    require_no_loop(visited(done), target.candidate.agent, later, limits)
    return target


# --- what a leg is given ------------------------------------------------------------------------


def _text(content: Content, index: int) -> bodies.LegText:
    """Return what was said for one leg."""
    return content.legs[index] if index < len(content.legs) else bodies.LegText()


def _told(
    done: Handoff, content: Content, leg: Leg, index: int, *, payload: Any, signed: bool
) -> Content:
    """Return what a leg is told: what was said for it, or else what the one before it was told."""
    text = _text(content, index)
    own = content.expected_outcome if leg.fallback else None  # other legs do something else
    return Content(
        trigger=text.trigger or content.trigger,
        title=text.title or content.title,
        expected_outcome=text.expected_outcome or own,
        payload=bodies.raw(canonical.dumps(payload)),
        origin=_kept_origin(done, content, leg, text),
        metadata=content.metadata,
        legs=content.legs[index + 1 :],
        within=content.within or (done.id if content.signed else None),
        verified=content.verified and signed,
    )


def _payload(
    done: Handoff, content: Content, outcome: dict[str, Any], leg: Leg, text: bodies.LegText
) -> Any:
    """Return what the next leg is given: what its template says, or what legs are given."""
    if text.payload is not None:
        return _mapped(done, content, outcome, text.payload)
    if leg.fallback:  # it does what the one before it was asked to do
        return canonical.loads(bytes(content.payload))
    return {"result": outcome.get("result"), "origin": _origin(done, content)}


def _mapped(done: Handoff, content: Content, outcome: dict[str, Any], wanted: Any) -> Any:
    known: dict[str, Any] = {
        "origin": _origin(done, content),
        "payload": canonical.loads(bytes(content.payload)),
        "outcome": {
            "state": done.state.value,
            "by": done.recipient,
            "code": done.outcome.code if done.outcome else None,
            "reason": outcome.get("reason"),
        },
    }
    if done.state is State.COMPLETED:
        known["result"] = outcome.get("result")
    try:
        return template.filled(wanted, known)
    except template.UnfilledError as error:
        raise PayloadInvalidError(f"${{{error.reference}}} leads nowhere") from error


def _origin(done: Handoff, content: Content) -> Any:
    """Return what the origin sent with the chain's first handoff."""
    if content.origin:
        return content.origin["payload"]
    given = canonical.loads(bytes(content.payload))
    return given.get("origin") if done.legs_done else given


def _kept_origin(done: Handoff, content: Content, leg: Leg, text: bodies.LegText) -> dict[str, Any]:
    """Return what the origin sent, where the leg's own payload does not hold it."""
    if text.payload is None and not leg.fallback:
        return {}
    return {"payload": _origin(done, content)}


def _terms(
    done: Handoff, leg: Leg, earlier: Sequence[Handoff], now: int
) -> tuple[Terms, int | None]:
    """Return a leg's own terms, and the chain's deadline where it is another than the leg's."""
    terms = done.terms
    chain = _end(done)
    if leg.fallback and chain <= now:
        # What expired took the chain's time with it; a fallback that had none would be no fallback.
        chain = now + _length_ms(done, earlier)
    chain = max(chain, now + 1)
    deadline = chain if leg.deadline_ms is None else min(chain, now + leg.deadline_ms)
    own = replace(
        terms,
        priority=leg.priority or terms.priority,
        accept_within_ms=leg.accept_within_ms or terms.accept_within_ms,
        update_every_ms=leg.update_every_ms or terms.update_every_ms,
        attempts_max=leg.attempts_max or terms.attempts_max,
        deadline_at=deadline,
        timeout_asked_ms=None,  # it was agreed with somebody else
    )
    return own, None if chain == deadline else chain


# --- the time that a chain has ------------------------------------------------------------------


def fresh_deadlines(
    dead: Handoff, earlier: Sequence[Handoff], *, now: int
) -> tuple[int, int | None]:
    """Return the deadline of what carries on `dead`, and the chain's where it is another.

    Each is as long as it was: a leg that opened in the chain's last minute has all of the chain's
    time once more, or it would only run out again.
    """
    chain = now + _length_ms(dead, earlier)
    if dead.chain_deadline_at is None:
        return chain, None
    return now + max(dead.terms.deadline_at - dead.stored_at, 1), chain


def _end(handoff: Handoff) -> int:
    """Return when the chain of a handoff ends."""
    return handoff.chain_deadline_at or handoff.terms.deadline_at


def _length_ms(last: Handoff, earlier: Sequence[Handoff]) -> int:
    """Return how much time a chain had: from the first of its legs on that knew of this end."""
    began = last.stored_at
    for leg in reversed(earlier):
        if _end(leg) != _end(last):
            break
        began = leg.stored_at
    return max(_end(last) - began, 1)


# --- carrying on what ended ---------------------------------------------------------------------


def successor(
    dead: Handoff,
    content: bytes,
    *,
    to: Candidate,
    capability: str | None,
    routed: bool,
    deadline_at: int,
    chain_deadline_at: int | None,
    late_result: bytes | None = None,
    not_before: int | None = None,
    without_step: int | None = None,
) -> commands.Offer:
    """Return the offer that carries on `dead`: its work, what it left behind, and its chain.

    `without_step` is the escalation step that made it, and is not to make another.
    """
    steps = dead.terms.escalation
    if steps and without_step is not None:
        # None where no step is left: the requester did not opt out of the team's.
        steps = (*steps[:without_step], *steps[without_step + 1 :]) or None
    return commands.Offer(
        sender=dead.sender,
        origin=dead.origin,
        to=to,
        capability=capability,
        routed=routed,
        terms=replace(dead.terms, deadline_at=deadline_at, escalation=steps),
        correlation_id=dead.correlation_id,
        parent_id=dead.parent_id,
        legs=dead.legs,
        legs_done=dead.legs_done,
        ancestors=dead.ancestors,
        watchers=dead.watchers,
        key=dead.key,
        traceparent=dead.traceparent,
        redrive_of=dead.id,
        chain_deadline_at=chain_deadline_at and max(chain_deadline_at, deadline_at),
        detached=dead.detached,
        member_of=dead.member_of,
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
