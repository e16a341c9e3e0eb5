"""What each event does to a handoff. Called by `machine.evolve` only.

Everything here must be computable from the events alone, so that any log can be replayed: no
limits, no clock, no surroundings.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import fields, replace

from nodrop.model import clocks, events
from nodrop.model.clocks import armed, disarmed, steps_armed, steps_begun, steps_disarmed
from nodrop.model.events import Event
from nodrop.model.handoff import (
    DEAD,
    Ack,
    Answer,
    BodyRef,
    ClockName,
    Decision,
    Handoff,
    Notice,
    Outcome,
    Question,
    QuestionKind,
    Receipt,
    Rung,
    State,
    StepDone,
    Terms,
    Timer,
    When,
)

LEASE_TURN_BASED_MS: Final = 60_000
"""How long a taker without a heartbeat has to acknowledge. Part of the fold, so no setting."""

EXHAUSTED: Final = "attempts_exhausted"
"""The code of a failure that used up the last try."""

# What happens to every handoff names these: Python 3.11 looks a member of an enum up by a hook of its
# class, which takes longer than making a timer.
_DEADLINE: Final = ClockName.DEADLINE
_ACCEPT: Final = ClockName.ACCEPT
_RETRY: Final = ClockName.RETRY
_LEASE: Final = ClockName.LEASE
_TIMEOUT: Final = ClockName.TIMEOUT
_PROMISE: Final = ClockName.PROMISE
_OUTCOME: Final = ClockName.OUTCOME
_UNACKNOWLEDGED: Final = When.UNACKNOWLEDGED
_SILENT: Final = When.SILENT
_OFFERED: Final = State.OFFERED
_ACCEPTED: Final = State.ACCEPTED
_STORED: Final = Rung.STORED
_DELIVERED: Final = Rung.DELIVERED
_ACKNOWLEDGED: Final = Rung.ACKNOWLEDGED
_FINISHED: Final = Rung.FINISHED
_OUTCOME_DELIVERED: Final = Rung.OUTCOME_DELIVERED
_SETTLED: Final = Rung.SETTLED

_OVER_ONCE_TAKEN: Final = frozenset({_RETRY, _PROMISE, _LEASE, _TIMEOUT})
_OVER_ONCE_ACKNOWLEDGED: Final = frozenset({_LEASE, _PROMISE})
_EPISODES_OVER_ONCE_ACKNOWLEDGED: Final = frozenset({_UNACKNOWLEDGED, _SILENT})
_RECIPIENTS_RUNGS: Final = frozenset({_DELIVERED, _ACKNOWLEDGED, Rung.UPDATED})
_ATTEMPT_CLOCKS: Final = (_LEASE, _TIMEOUT, _PROMISE)


_RARELY_SAID: Final = (
    *("contract_digest", "watchers", "traceparent", "parent_id", "legs", "legs_done"),
    *("ancestors", "redrive_of", "chain_deadline_at", "detached", "member_of", "join"),
    *("steps", "answers", "checkpoint"),
)
"""Fields of an offer that its handoff takes over, and that most offers leave as they are."""
_rarely_said: Final = operator.attrgetter(*_RARELY_SAID)
_DEFAULTS: Final = {field.name: field.default for field in fields(events.Offered)}
_USUALLY_SAID: Final = tuple(_DEFAULTS[name] for name in _RARELY_SAID)


def born(event: events.Offered, *, team: str, handoff_id: str, at: int) -> Handoff:
    """Return the handoff that an offer makes."""
    terms = event.terms
    ends_at, not_before = terms.deadline_at, event.not_before
    deadline = Timer(name=_DEADLINE, at=ends_at, length_ms=ends_at - at if ends_at > at else 0)
    if not_before is None:
        length = terms.accept_within_ms
        timers = (deadline, Timer(name=_ACCEPT, at=at + length, length_ms=length))
    else:
        taken_at = max(at, not_before)
        timers = (deadline, *_retry_timer(not_before, at), _accept_timer(terms, taken_at))
    if event.team_steps or terms.escalation:
        steps = (*(terms.escalation or ()), *event.team_steps)
        timers += steps_begun(steps, _UNACKNOWLEDGED, at)
    # In two steps: a call with more than 15 names makes a dict of them first, which takes longer.
    handoff = Handoff(
        team=team,
        id=handoff_id,
        version=1,
        sender=event.sender,
        origin=event.origin,
        recipient=event.recipient,
        capability=event.capability,
        manifest_version=event.manifest_version,
        correlation_id=event.correlation_id,
        terms=terms,
        stored_at=at,
        offered_at=at,
        state=_OFFERED,
        timers=timers,
        receipts=(Receipt(rung=_STORED, at=at, by="relay"),),
    )
    handoff = replace(
        handoff,
        asked=(event.recipient,),
        routed=event.routed,
        key=event.key,
        team_steps=event.team_steps,
    )
    rare = _rarely_said(event)
    if rare == _USUALLY_SAID:
        return handoff
    return replace(handoff, **dict(zip(_RARELY_SAID, rare, strict=True)))


def changed(h: Handoff, event: Event, state: State, _by: str, at: int) -> Handoff:
    """Return handoff `h` as it is after `event`, which leads to `state` and is none of `WHOLE`."""
    version = h.version + 1
    return replace(h, version=version, state=state, **_changes(h, event, version, at))


def _changes(
    h: Handoff, event: Event, version: int, at: int
) -> dict[str, Any]:  # one flat match is the readable form
    match event:
        case events.Queued():
            return _queued(h, event, version, at)
        case events.QueueLapsed():
            return _queue_lapsed(h, at)
        case events.Updated():
            return _updated(h, event, version, at)
        case events.Blocked():
            return _blocked(h, event, version, at)
        case events.Parked():
            return dict(_DETACHED)
        case events.Answered():
            return {"answers": (*h.answers, _answer(event.question, version, event.by))}
        case events.Agreed():
            return _agreed(h, event, at)
        case events.Resumed():
            return _resumed(h, version, at)
        case events.Returned():
            return _returned(h, event, at)
        case events.Reclaimed() | events.Revived():
            return _revived(h, at)
        case events.Reassigned():
            return _reassigned(h, event, at)
        case events.StepRecorded():
            step = StepDone(name=event.name, value=BodyRef(version=version))
            return {"steps": (*h.steps, step)}
        case events.Checkpointed():
            return {"checkpoint": BodyRef(version=version)}
        case events.LateResultKept():
            return {"late_result": version}
        case events.LateAnswerKept():
            answer = _answer(event.question, version, event.by)
            return {"answers": (*h.answers, answer), "withdrawn": None}
        case events.Redriven():
            return {"decision": Decision.REDRIVEN, "successor": event.successor}
        case events.AcceptedLate():
            return {"decision": Decision.ACCEPTED_LATE, "successor": event.successor}
        case events.Discarded():
            return {"decision": Decision.DISCARDED}
        case events.MemberMoved():
            return _member_moved(h, event)
        case events.Joined():
            return {"decision": Decision.JOINED}
        case events.Erased():
            return {"erased_at": at}
        case events.Nudged():
            return _nudged(h, event, version, at)
        case events.Escalated():
            return _escalated(h, event, version)
        case events.Rearmed():
            return _rearmed(h, event)
        case events.Dismissed():
            return _notice(h, event.reader, dismissed=version)
        case events.Ready():
            return {"timers": disarmed(h.timers, ClockName.RETRY)}
        case _:
            return {}  # Noted changes nothing but the version


# --- delivery and acceptance --------------------------------------------------------------------


def _delivered(h: Handoff, event: events.Delivered, state: State, _by: str, at: int) -> Handoff:
    accept_by: int | None = None
    timers: list[Timer] = []
    for timer in h.timers:
        if timer.name is _ACCEPT:
            accept_by = timer.at
        elif timer.name not in _OVER_ONCE_TAKEN:
            timers.append(timer)
    if event.heartbeat_ms is None:
        timers.append(_turn_based_lease(at))
    if event.manifest_version is not None:
        terms = replace(h.terms, timeout_ms=event.timeout_ms)
        bound_by = event.manifest_version
        h = replace(h, capability=event.capability, manifest_version=bound_by, terms=terms)
    timeout_ms, receipts = h.terms.timeout_ms, h.receipts
    if timeout_ms is not None:
        timers.append(_timeout(timeout_ms, at))
    if h.attempt:  # what an earlier one left
        h = replace(h, revivable=False, timeout_left_ms=None, ack=None)
    if len(receipts) > 1:
        receipts = tuple([r for r in receipts if r.rung not in _RECIPIENTS_RUNGS])
    delivered = Receipt(rung=_DELIVERED, at=at, by=h.recipient, attempt=event.attempt)
    queued = () if h.queued is None else _queued_receipt(h)
    return replace(
        h,
        version=h.version + 1,
        timers=tuple(timers),
        state=state,
        attempt=event.attempt,
        live=True,
        process=event.process,
        heartbeat_ms=event.heartbeat_ms,
        accept_by=accept_by,
        receipts=(*receipts, delivered, *queued),
    )


def _turn_based_lease(at: int) -> Timer:
    return Timer(name=_LEASE, at=at + LEASE_TURN_BASED_MS, length_ms=LEASE_TURN_BASED_MS)


def _queued(h: Handoff, event: events.Queued, version: int, at: int) -> dict[str, Any]:
    """Let the promise be what is owed, in place of the acceptance. A second one is an update."""
    timers = disarmed(h.timers, ClockName.ACCEPT)
    timers = steps_disarmed(timers, h.escalation, When.UNACKNOWLEDGED, When.SILENT)
    changes: dict[str, Any] = {
        "queued": _ack(event, version),
        "timers": _promise_armed(timers, event.next_update_at, at),
    }
    if h.queued is not None:
        return changes | {"receipts": _receipts(h, Rung.UPDATED, h.recipient, at)}
    receipt = Receipt(rung=Rung.ACKNOWLEDGED, at=at, by=h.recipient)
    return changes | {"receipts": (*_unacknowledged(h), receipt)}


def _queue_lapsed(h: Handoff, at: int) -> dict[str, Any]:
    """Begin another unacknowledged episode."""
    timers = armed(disarmed(h.timers, ClockName.PROMISE), _accept_timer(h.terms, at))
    return {
        "queued": None,
        "timers": steps_armed(timers, h.escalation, When.UNACKNOWLEDGED, since=at),
        "receipts": _unacknowledged(h),
        # A lapsed attempt that may go on is known by when it went back to the inbox.
        "offered_at": h.offered_at if h.revivable else at,
    }


def _unacknowledged(h: Handoff) -> tuple[Receipt, ...]:
    """Return the receipts without the word of a recipient that no longer counts."""
    return tuple(r for r in h.receipts if r.rung not in {Rung.ACKNOWLEDGED, Rung.UPDATED})


def _queued_receipt(h: Handoff) -> tuple[Receipt, ...]:
    """Return the receipt of the queued acknowledgement in force: the first time stays."""
    if h.queued is None:
        return ()
    return tuple([r for r in h.receipts if r.rung is _ACKNOWLEDGED])


def _queued_at(h: Handoff, at: int) -> int:
    """Return when what is accepted at `at` was acknowledged first: as queued, if it was."""
    queued = _queued_receipt(h)
    return queued[0].at if queued else at


def _acknowledged(
    h: Handoff, event: events.Acknowledged, state: State, _by: str, at: int
) -> Handoff:
    timers: list[Timer] = []
    for timer in h.timers:
        if timer.step is None:
            if timer.name not in _OVER_ONCE_ACKNOWLEDGED:
                timers.append(timer)
        elif h.escalation[timer.step].when not in _EPISODES_OVER_ONCE_ACKNOWLEDGED:
            timers.append(timer)
    timers.append(_promise(event.next_update_at, at))
    version, receipts, counted_at, first_at = h.version + 1, h.receipts, None, at
    if h.queued is not None:
        counted_at, first_at = at, _queued_at(h, at)
        receipts = tuple([r for r in receipts if r.rung is not _ACKNOWLEDGED])
        h = replace(h, queued=None)
    fresh = Receipt(rung=_ACKNOWLEDGED, at=first_at, by=h.recipient, attempt=event.attempt)
    return replace(
        h,
        version=version,
        timers=tuple(timers),
        state=state,
        ack=_ack(event, version, counted_at),
        receipts=(*receipts, fresh),
    )


def _updated(h: Handoff, event: events.Updated, version: int, at: int) -> dict[str, Any]:
    changes: dict[str, Any] = {
        "ack": _ack(event, version, h.ack and h.ack.at),
        "receipts": _receipts(h, Rung.UPDATED, h.recipient, at, event.attempt),
    }
    if h.state is not State.BLOCKED:  # while blocked, somebody else owes the next move
        timers = steps_disarmed(h.timers, h.escalation, When.SILENT)
        changes["timers"] = _promise_armed(timers, event.next_update_at, at)
    return changes


def _ack(
    event: events.Acknowledged | events.Updated | events.Queued,
    version: int,
    at: int | None = None,
) -> Ack:
    return Ack(
        version=version,
        position=event.position,
        eta_at=event.eta_at,
        next_update_at=event.next_update_at,
        at=at,
    )


def _promise_armed(timers: tuple[Timer, ...], by: int, at: int) -> tuple[Timer, ...]:
    return armed(timers, _promise(by, at))


def _promise(by: int, at: int) -> Timer:
    return Timer(name=_PROMISE, at=by, length_ms=by - at if by > at else 1)


def _timeout_armed(timers: tuple[Timer, ...], left_ms: int | None, at: int) -> tuple[Timer, ...]:
    if left_ms is None:
        return timers
    return armed(timers, _timeout(left_ms, at))


def _timeout(left_ms: int, at: int) -> Timer:
    return Timer(name=_TIMEOUT, at=at + left_ms, length_ms=left_ms)


def _timeout_left(h: Handoff, at: int) -> int | None:
    """Return what is left of the attempt's active time, which stands still from now on."""
    timeout = clocks.running(h, ClockName.TIMEOUT)
    return max(timeout.at - at, 1) if timeout else None


# --- questions ----------------------------------------------------------------------------------


def _blocked(h: Handoff, event: events.Blocked, version: int, at: int) -> dict[str, Any]:
    question = Question(
        version=version,
        kind=event.kind,
        asked=event.asked,
        asked_at=at,
        from_state=h.state,
        proposed=event.proposed,
    )
    timers = steps_disarmed(disarmed(h.timers, *_ATTEMPT_CLOCKS), h.escalation, When.SILENT)
    answer = Timer(
        name=ClockName.ANSWER,
        at=at + h.terms.answer_within_ms,
        length_ms=h.terms.answer_within_ms,
    )
    if event.kind is QuestionKind.TERMS and h.ack is None and h.queued is None:
        # Terms under discussion are not an acceptance: that clock runs on.
        length = h.terms.accept_within_ms
        accept = Timer(name=ClockName.ACCEPT, at=max(h.accept_by or at, at), length_ms=length)
        timers = armed(timers, accept)
    changes: dict[str, Any] = {
        "question": question,
        "timeout_left_ms": _timeout_left(h, at),
        "timers": steps_armed(armed(timers, answer), h.escalation, When.BLOCKED, since=at),
    }
    return changes | _DETACHED if event.parked else changes


_DETACHED: Final[dict[str, Any]] = {
    "live": False,
    "revivable": False,
    "process": None,
    "heartbeat_ms": None,
}


def _answer(question: int, version: int, by: str) -> Answer:
    return Answer(question=BodyRef(version=question), answer=BodyRef(version=version), by=by)


def _agreed(h: Handoff, event: events.Agreed, at: int) -> dict[str, Any]:
    deadline = Timer(
        name=ClockName.DEADLINE,
        at=event.terms.deadline_at,
        length_ms=max(event.terms.deadline_at - at, 0),
    )
    changes: dict[str, Any] = {"terms": event.terms, "timers": armed(h.timers, deadline)}
    longer = event.terms.timeout_ms
    if longer is not None and longer != h.terms.timeout_ms:
        # What the attempt has used up stays used up.
        used = (h.terms.timeout_ms or 0) - (h.timeout_left_ms or 0)
        changes["timeout_left_ms"] = max(longer - used, 1)
    if h.chain_deadline_at is not None:
        changes["chain_deadline_at"] = max(h.chain_deadline_at, event.terms.deadline_at)
    return changes


def _answered_timers(h: Handoff) -> tuple[Timer, ...]:
    timers = disarmed(h.timers, ClockName.ANSWER, ClockName.ACCEPT)
    return steps_disarmed(timers, h.escalation, When.BLOCKED)


def _resumed(h: Handoff, version: int, at: int) -> dict[str, Any]:
    timers = _timeout_armed(_answered_timers(h), h.timeout_left_ms, at)
    timers = steps_disarmed(timers, h.escalation, When.UNACKNOWLEDGED)
    next_update_at = at + h.terms.update_every_ms
    changes: dict[str, Any] = {
        "question": None,
        "timeout_left_ms": None,
        "timers": _promise_armed(timers, next_update_at, at),
    }
    if h.ack is None:  # a counter that was agreed is the acceptance
        counted_at = None if h.queued is None else at
        changes["ack"] = Ack(version=version, next_update_at=next_update_at, at=counted_at)
        changes["queued"] = None
        first_at = _queued_at(h, at)
        changes["receipts"] = _receipts(h, _ACKNOWLEDGED, h.recipient, first_at, h.attempt)
    return changes


# --- groups -------------------------------------------------------------------------------------


def _member_moved(h: Handoff, event: events.MemberMoved) -> dict[str, Any]:
    assert h.join is not None, "only a group has members"
    moved = event.member
    members = tuple(moved if m.label == moved.label else m for m in h.join.members)
    return {"join": replace(h.join, members=members)}


# --- back to the inbox --------------------------------------------------------------------------


def _returned(h: Handoff, event: events.Returned, at: int) -> dict[str, Any]:
    timers = disarmed(_answered_timers(h), *_ATTEMPT_CLOCKS)
    timers = steps_disarmed(timers, h.escalation, When.SILENT)
    if h.ack is not None or h.queued is not None:
        # The earlier acceptance ended the episode; this begins another.
        timers = steps_armed(timers, h.escalation, When.UNACKNOWLEDGED, since=at)
    timers = armed(timers, *_retry_timer(event.not_before, at))
    released = event.reason == "released"
    changes: dict[str, Any] = {
        "live": False,
        "revivable": event.revivable,
        "question": None,
        "withdrawn": None if event.reason == "answered" else h.question,
        "timeout_left_ms": _timeout_left(h, at) if event.revivable else None,
        "tries": h.tries + 1 if event.tried else h.tries,
        "releases": h.releases + 1 if released else h.releases,
        "offered_at": at,
        "timers": armed(timers, _accept_timer(h.terms, max(at, event.not_before or 0))),
        **_unqueued(h),
    }
    if not event.revivable:
        changes |= {"process": None, "heartbeat_ms": None}
    return changes


def _unqueued(h: Handoff) -> dict[str, Any]:
    """Return what is left of a queued acknowledgement that is void."""
    return {} if h.queued is None else {"queued": None, "receipts": _unacknowledged(h)}


def _revived(h: Handoff, at: int) -> dict[str, Any]:
    timers = disarmed(h.timers, ClockName.ACCEPT, ClockName.RETRY, ClockName.PROMISE)
    if h.heartbeat_ms is None and h.ack is None:
        timers = armed(timers, _turn_based_lease(at))
    if h.ack is not None:
        timers = steps_disarmed(timers, h.escalation, When.UNACKNOWLEDGED, When.SILENT)
        timers = _promise_armed(timers, at + h.terms.update_every_ms, at)
    return {
        "live": True,
        "revivable": False,
        "queued": None if h.ack else h.queued,
        "accept_by": _accept_by(h),
        "timeout_left_ms": None,
        "timers": _timeout_armed(timers, h.timeout_left_ms, at),
    }


def _reassigned(h: Handoff, event: events.Reassigned, at: int) -> dict[str, Any]:
    timers = disarmed(_answered_timers(h), *_ATTEMPT_CLOCKS, ClockName.RETRY)
    timers = steps_disarmed(timers, h.escalation, When.SILENT)
    accepted = h.ack is not None and h.state is not State.OFFERED
    if accepted or h.queued is not None:  # else the episode began before
        timers = steps_armed(timers, h.escalation, When.UNACKNOWLEDGED, since=at)
    asked = h.asked if event.recipient in h.asked else (*h.asked, event.recipient)
    return {
        **_DETACHED,
        "recipient": event.recipient,
        "capability": event.capability,
        "manifest_version": event.manifest_version,
        "contract_digest": None,
        "routed": event.routed,
        "asked": asked,
        "terms": replace(h.terms, timeout_ms=event.timeout_ms),
        "tries": 0,
        "releases": 0,
        "ack": None,
        "question": None,
        "withdrawn": h.question,
        "timeout_left_ms": None,
        "offered_at": at,
        "timers": armed(timers, _accept_timer(h.terms, at)),
        **_unqueued(h),
    }


def _retry_timer(not_before: int | None, at: int) -> tuple[Timer, ...]:
    """Return the clock of a handoff that is not to be taken yet."""
    if not_before is None:
        return ()
    return (Timer(name=ClockName.RETRY, at=not_before, length_ms=max(not_before - at, 1)),)


def _accept_timer(terms: Terms, since: int) -> Timer:
    length = terms.accept_within_ms
    return Timer(name=_ACCEPT, at=since + length, length_ms=length)


def _accept_by(h: Handoff) -> int | None:
    accept = clocks.running(h, _ACCEPT)
    return accept.at if accept else None


# --- clocks that fired --------------------------------------------------------------------------


def _nudged(h: Handoff, event: events.Nudged, version: int, at: int) -> dict[str, Any]:
    before = clocks.running(h, event.clock)
    again = Timer(
        name=event.clock,
        at=event.again_at,
        length_ms=event.length_ms,
        fires=(before.fires if before else 0) + 1,
    )
    timers = armed(h.timers, again)
    if event.clock is ClockName.PROMISE and again.fires == 1:
        timers = steps_armed(timers, h.escalation, When.SILENT, since=at)
    return {"timers": timers} | _notice(h, event.to, version=version, step=None)


def _escalated(h: Handoff, event: events.Escalated, version: int) -> dict[str, Any]:
    changes: dict[str, Any] = {"timers": tuple(t for t in h.timers if t.step != event.step)}
    if event.notify is not None:
        changes |= _notice(h, event.notify, version=version, step=event.step)
    if event.priority is not None:
        changes["terms"] = replace(h.terms, priority=event.priority)
    return changes


def _notice(h: Handoff, reader: str, **changes: Any) -> dict[str, Any]:
    """Change what is kept of one reader's notices."""
    before = next((n for n in h.notices if n.reader == reader), Notice(reader=reader))
    others = tuple(n for n in h.notices if n.reader != reader)
    return {"notices": (*others, replace(before, **changes))}


def _rearmed(h: Handoff, event: events.Rearmed) -> dict[str, Any]:
    return {
        "timers": tuple(
            replace(t, at=event.at) if (t.name, t.step) == (event.clock, event.step) else t
            for t in h.timers
        )
    }


# --- endings ------------------------------------------------------------------------------------


def _ended(h: Handoff, event: Event, state: State, by: str, at: int) -> Handoff:
    """Stop what ran, keep what the end took away, and start the requester's clock."""
    code, length, version = getattr(event, "code", None), h.terms.outcome_within_ms, h.version + 1
    timers = (Timer(name=_OUTCOME, at=at + length, length_ms=length),)
    if state in DEAD and not (h.legs and h.legs[0].fallback):  # which comes first
        if state is State.EXPIRED:
            timers += steps_begun(h.escalation, When.OVERDUE, h.terms.deadline_at)
        timers += steps_begun(h.escalation, When.DEAD, at)
    if code == EXHAUSTED and h.tries < h.terms.attempts_max:
        h = replace(h, tries=h.tries + 1)  # the last one was used, too
    if h.state is not _ACCEPTED or h.withdrawn is not None:  # else there is none of these
        h = replace(
            h,
            revivable=False,
            timeout_left_ms=None,
            queued=None,
            question=None,
            withdrawn=h.question,
        )
    return replace(
        h,
        version=version,
        timers=timers,
        state=state,
        live=False,
        process=None,
        heartbeat_ms=None,
        outcome=Outcome(version=version, at=at, by=by, code=code),
        receipts=(*h.receipts, Receipt(rung=_FINISHED, at=at, by=by)),
    )


def _outcome_delivered(
    h: Handoff, event: events.OutcomeDelivered, state: State, _by: str, at: int
) -> Handoff:
    receipt = Receipt(rung=_OUTCOME_DELIVERED, at=at, by=event.to)
    return replace(h, version=h.version + 1, state=state, receipts=(*h.receipts, receipt))


def _settled(h: Handoff, event: events.Settled, state: State, by: str, at: int) -> Handoff:
    return replace(
        h,
        version=h.version + 1,
        next_leg=event.next_leg,
        timers=(),
        state=state,
        settled_at=at,
        receipts=(*h.receipts, Receipt(rung=_SETTLED, at=at, by=by)),
    )


def _receipts(
    h: Handoff, rung: Rung, by: str, at: int, attempt: int | None = None
) -> tuple[Receipt, ...]:
    """Return the receipts with a fresh one for `rung`."""
    fresh = Receipt(rung=rung, at=at, by=by, attempt=attempt)
    for known in h.receipts:
        if known.rung is rung:
            return (*[r for r in h.receipts if r.rung is not rung], fresh)
    return (*h.receipts, fresh)


WHOLE: Final[Mapping[type[Event], Callable[[Handoff, Any, State, str, int], Handoff]]] = {
    events.Delivered: _delivered,
    events.Acknowledged: _acknowledged,
    events.OutcomeDelivered: _outcome_delivered,
    events.Settled: _settled,
    events.Completed: _ended,
    events.Failed: _ended,
    events.Rejected: _ended,
    events.Expired: _ended,
    events.Cancelled: _ended,
}
"""Folds that make the new handoff in one go: of what happens to every handoff, and of what ends one."""
