"""The fold of common events, written plainly: a dict of what is as it was, and of what changes.

`nodrop.model.evolution` makes a new handoff in one go. This is what it is held to.
"""

from typing import Any, Final

import msgspec

from nodrop.model import events
from nodrop.model.events import Event
from nodrop.model.handoff import (
    Ack,
    ClockName,
    Handoff,
    Outcome,
    Receipt,
    Rung,
    State,
    Timer,
    When,
)

ENDS: Final[dict[type[Event], State]] = {
    events.Completed: State.COMPLETED,
    events.Failed: State.FAILED,
    events.Rejected: State.REJECTED,
    events.Expired: State.EXPIRED,
    events.Cancelled: State.CANCELLED,
}
_DEAD: Final = ("failed", "rejected", "expired")
_TURN_MS: Final = 60_000


def folded(before: Handoff | None, event: Event, *, by: str, at: int, **ids: str) -> Handoff | None:
    """Return what `event` makes of `before`; None: it is none of the common events."""
    match event:
        case events.Offered():
            changes = _offered(event, at) | {"id": ids["handoff_id"], "team": ids["team"]}
        case events.Delivered():
            changes = _delivered(_known(before), event, at)
        case events.Acknowledged():
            changes = _acknowledged(_known(before), event, at)
        case events.OutcomeDelivered():
            changes = _climbed(_known(before), Rung.OUTCOME_DELIVERED, event.to, at)
        case events.Settled():
            h = _known(before)
            changes = {"timers": (), "settled_at": at, "next_leg": event.next_leg}
            changes |= _climbed(h, Rung.SETTLED, by, at)
        case _ if type(event) in ENDS:
            changes = _ended(_known(before), event, by, at)
        case _:
            return None
    values: dict[str, Any] = {} if before is None else msgspec.structs.asdict(before)
    values.update(changes, version=1 if before is None else before.version + 1)
    return Handoff(**values)


def armed(timers: tuple[Timer, ...], *added: Timer) -> tuple[Timer, ...]:
    """Return `timers` with `added`, each in the place of its namesake."""
    names = [(timer.name, timer.step) for timer in added]
    return (*(timer for timer in timers if (timer.name, timer.step) not in names), *added)


def outcome_unseen(h: Handoff) -> bool:
    """Whether there is an outcome that its requester has not had."""
    seen = any(receipt.rung is Rung.OUTCOME_DELIVERED for receipt in h.receipts)
    return h.outcome is not None and h.settled_at is None and not seen


def _known(before: Handoff | None) -> Handoff:
    assert before is not None, "only an offer begins with nothing"
    return before


def _offered(event: events.Offered, at: int) -> dict[str, Any]:
    values = msgspec.structs.asdict(event)
    not_before = values.pop("not_before")
    terms = event.terms
    length = max(terms.deadline_at - at, 0)
    timers = [Timer(name=ClockName.DEADLINE, at=terms.deadline_at, length_ms=length)]
    if not_before is not None:
        wait = max(not_before - at, 1)
        timers.append(Timer(name=ClockName.RETRY, at=not_before, length_ms=wait))
    accept, since = terms.accept_within_ms, max(at, not_before or 0)
    timers.append(Timer(name=ClockName.ACCEPT, at=since + accept, length_ms=accept))
    steps = (*(terms.escalation or ()), *event.team_steps)
    for index, step in enumerate(steps):
        if step.when is When.UNACKNOWLEDGED:
            timers.append(_step(index, at, step.after_ms))
    return values | {
        "asked": (event.recipient,),
        "stored_at": at,
        "offered_at": at,
        "state": State.OFFERED,
        "timers": tuple(timers),
        "receipts": (Receipt(rung=Rung.STORED, at=at, by="relay"),),
    }


def _delivered(h: Handoff, event: events.Delivered, at: int) -> dict[str, Any]:
    over = {ClockName.ACCEPT, ClockName.RETRY, ClockName.PROMISE}
    timers = tuple(timer for timer in h.timers if timer.name not in over)
    if event.heartbeat_ms is None:
        timers = armed(timers, Timer(name=ClockName.LEASE, at=at + _TURN_MS, length_ms=_TURN_MS))
    bound: dict[str, Any] = {}
    timeout_ms = h.terms.timeout_ms
    if event.manifest_version is not None:
        timeout_ms = event.timeout_ms
        bound = {
            "capability": event.capability,
            "manifest_version": event.manifest_version,
            "terms": msgspec.structs.replace(h.terms, timeout_ms=timeout_ms),
        }
    if timeout_ms is not None:
        timeout = Timer(name=ClockName.TIMEOUT, at=at + timeout_ms, length_ms=timeout_ms)
        timers = armed(timers, timeout)
    recipients = {Rung.DELIVERED, Rung.ACKNOWLEDGED, Rung.UPDATED}
    queued = [r for r in h.receipts if h.queued is not None and r.rung is Rung.ACKNOWLEDGED]
    accept_by = [timer.at for timer in h.timers if timer.name is ClockName.ACCEPT]
    return bound | {
        "state": State.DELIVERED,
        "attempt": event.attempt,
        "live": True,
        "revivable": False,
        "process": event.process,
        "heartbeat_ms": event.heartbeat_ms,
        "accept_by": accept_by[0] if accept_by else None,
        "ack": None,
        "timeout_left_ms": None,
        "timers": timers,
        "receipts": (
            *(r for r in h.receipts if r.rung not in recipients),
            Receipt(rung=Rung.DELIVERED, at=at, by=h.recipient, attempt=event.attempt),
            *queued,
        ),
    }


def _acknowledged(h: Handoff, event: events.Acknowledged, at: int) -> dict[str, Any]:
    over = {When.UNACKNOWLEDGED, When.SILENT}
    timers = tuple(
        timer
        for timer in h.timers
        if timer.name is not ClockName.LEASE
        and (timer.step is None or h.escalation[timer.step].when not in over)
    )
    due = event.next_update_at
    promise = Timer(name=ClockName.PROMISE, at=due, length_ms=max(due - at, 1))
    queued_at = [r.at for r in h.receipts if h.queued and r.rung is Rung.ACKNOWLEDGED]
    ack = Ack(
        version=h.version + 1,
        position=event.position,
        eta_at=event.eta_at,
        next_update_at=due,
        at=at if h.queued else None,
    )
    first_at = queued_at[0] if queued_at else at
    changes: dict[str, Any] = {
        "state": State.ACCEPTED,
        "ack": ack,
        "queued": None,
        "timers": armed(timers, promise),
    }
    return changes | _climbed(h, Rung.ACKNOWLEDGED, h.recipient, first_at, event.attempt)


def _ended(h: Handoff, event: Event, by: str, at: int) -> dict[str, Any]:
    state, code = ENDS[type(event)], getattr(event, "code", None)
    length = h.terms.outcome_within_ms
    timers = [Timer(name=ClockName.OUTCOME, at=at + length, length_ms=length)]
    replaced = bool(h.legs) and h.legs[0].fallback
    if state in _DEAD and not replaced:
        for when, since in ((When.OVERDUE, h.terms.deadline_at), (When.DEAD, at)):
            if when is When.DEAD or state is State.EXPIRED:
                steps = enumerate(h.escalation)
                timers += [_step(i, since, s.after_ms) for i, s in steps if s.when is when]
    used_up = code == "attempts_exhausted" and h.tries < h.terms.attempts_max
    changes: dict[str, Any] = {
        "state": state,
        "live": False,
        "revivable": False,
        "process": None,
        "heartbeat_ms": None,
        "queued": None,
        "question": None,
        "withdrawn": h.question,
        "timeout_left_ms": None,
        "tries": h.tries + used_up,
        "outcome": Outcome(version=h.version + 1, at=at, by=by, code=code),
        "timers": tuple(timers),
    }
    return changes | _climbed(h, Rung.FINISHED, by, at)


def _climbed(
    h: Handoff, rung: Rung, by: str, at: int, attempt: int | None = None
) -> dict[str, Any]:
    kept = [r for r in h.receipts if r.rung is not rung]
    return {"receipts": (*kept, Receipt(rung=rung, at=at, by=by, attempt=attempt))}


def _step(index: int, since: int, after_ms: int) -> Timer:
    return Timer(name=ClockName.STEP, at=since + after_ms, length_ms=after_ms, step=index)
