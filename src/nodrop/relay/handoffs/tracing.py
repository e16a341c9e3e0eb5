"""Traces: a chain as a tree, and for a broken one where, on whom, by which clock, and what was done.

Everything told here is in the rows and the log already; this only puts it together.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.log.port import LogPage, Store
from nodrop.model.commands import RELAY
from nodrop.model.following import undecided
from nodrop.model.handoff import ClockName, Decision, Handoff, State, Timer
from nodrop.protocol import chain_views as shown
from nodrop.protocol.entries import Entry
from nodrop.protocol.showing import holder, ref
from nodrop.protocol.times import format_time
from nodrop.protocol.views import HandoffView
from nodrop.relay.shows import Caller

_ENTRIES_MAX: Final = 500
"""Of one broken handoff, what is looked at to tell what the relay did."""
_RAN_OUT: Final[Mapping[str, str]] = {
    "lease_lapsed": ClockName.LEASE,
    "timed_out": ClockName.TIMEOUT,
}
_OWED: Final = frozenset({ClockName.ACCEPT, ClockName.PROMISE, ClockName.ANSWER, ClockName.OUTCOME})
"""Clocks that a holder can let run out without the handoff ending."""


class Tracing:
    """Puts the trace of a chain together."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def trace(
        self,
        caller: Caller,
        correlation_id: str,
        handoffs: Sequence[Handoff],
        views: Sequence[HandoffView],
        *,
        truncated: bool,
    ) -> shown.TraceAnswer:
        """Return a chain, given its handoffs, oldest first, and how the caller sees them."""
        by_id = {view.id: view for view in views}
        breaks = [
            await self._break(caller, handoff, by_id[handoff.id])
            for handoff in handoffs
            if _broken(handoff) or _late(handoff) is not None
        ]
        return shown.TraceAnswer(
            correlation_id=correlation_id,
            state=_state(handoffs),
            steps=tuple(_step(handoff, by_id[handoff.id]) for handoff in handoffs),
            breaks=tuple(breaks),
            handoffs=tuple(views),
            truncated=truncated,
        )

    async def _break(self, caller: Caller, h: Handoff, view: HandoffView) -> shown.BreakView:
        page = LogPage(team=caller.team, handoff_id=h.id, limit=_ENTRIES_MAX)
        entries = await self._store.log(page)
        done = [entry for entry in entries if entry.actor == RELAY.agent]
        late = _late(h)
        clock, at = _clock_of(h, entries) if late is None else _clock_late(late, entries)
        outcome = view.outcome
        return shown.BreakView(
            id=h.id,
            ref=ref(h),
            kind="dead" if late is None else "late",
            leg=len(h.legs_done) + 1,
            legs=len(h.legs_done) + 1 + sum(not leg.fallback for leg in h.legs),
            agent=h.recipient,
            state=h.state.value,
            code=outcome.code if outcome else None,
            reason=outcome.reason if outcome else None,
            holder=holder(h),
            clock=clock,
            at=format_time(at),
            did=tuple(
                shown.DidView(seq=e.seq, at=format_time(e.at), what=what)
                for e in done
                if (what := _what(e)) is not None
            ),
        )


# --- one handoff --------------------------------------------------------------------------------


def _step(h: Handoff, view: HandoffView) -> shown.TraceStepView:
    due = min(h.timers, key=lambda timer: timer.at, default=None)
    return shown.TraceStepView(
        id=h.id,
        ref=ref(h),
        under=h.redrive_of
        or (h.member_of.group if h.member_of and not h.legs_done else None)
        or h.parent_id,
        kind=_kind(h),
        label=h.member_of.label if h.member_of else None,
        from_=h.sender,
        to=h.recipient,
        title=view.title,
        state=h.state.value,
        holder=holder(h),
        since=format_time(_since(h)),
        due_at=view.due_at,
        clock=_clock(h, due, view.due_at),
        owed_at=view.owed_at,
    )


def _clock(h: Handoff, due: Timer | None, due_at: str | None) -> str | None:
    """Return the name of the clock behind a due time. Leases are not among a handoff's timers."""
    if due is not None and due_at == format_time(due.at):
        return _name(h, due)
    return None if due_at is None else ClockName.LEASE.value


def _kind(h: Handoff) -> str:
    if h.redrive_of is not None:
        return "redrive"
    if h.join is not None:
        return "group"
    if h.legs_done:
        return "leg" if h.legs_done[-1].state is State.COMPLETED else "fallback"
    if h.member_of is not None:
        return "member"
    return "first" if h.parent_id is None else "below"


def _since(h: Handoff) -> int:
    if h.outcome is not None:
        return h.outcome.at
    if h.question is not None:
        return h.question.asked_at
    if h.state is State.OFFERED:
        return h.offered_at
    return max(receipt.at for receipt in h.receipts)


def _name(h: Handoff, timer: Timer) -> str:
    if timer.step is None:
        return timer.name.value
    return f"{h.escalation[timer.step].when} step"


# --- what broke ---------------------------------------------------------------------------------


def _broken(h: Handoff) -> bool:
    """Whether the chain ends here, without success and with nothing that follows."""
    return undecided(h) or (h.decision is Decision.DISCARDED and h.state is not State.COMPLETED)


def _late(h: Handoff) -> Timer | None:
    """Return the clock that ran out on somebody who still owes the move."""
    late = (t for t in h.timers if t.name in _OWED and t.fires and not h.final)
    return next(late, None)


def _clock_of(h: Handoff, entries: Sequence[Entry]) -> tuple[str | None, int]:
    """Return the clock that ended it, if one did, and when."""
    assert h.outcome is not None, "a dead letter has ended"
    if h.state is State.EXPIRED:
        return ClockName.DEADLINE.value, h.terms.deadline_at
    code, at = h.outcome.code, h.outcome.at
    if h.outcome.by == RELAY.agent and code == "attempts_exhausted":
        reasons = [_data(e).get("reason") for e in entries if e.type == "handoff.returned.v1"]
        ran_out = [_RAN_OUT[reason] for reason in reasons if reason in _RAN_OUT]
        return (str(ran_out[-1]) if ran_out else ClockName.LEASE.value), at
    if h.outcome.by == RELAY.agent and code == "no_candidate":
        return ClockName.ACCEPT.value, at
    return None, at


def _clock_late(timer: Timer, entries: Sequence[Entry]) -> tuple[str | None, int]:
    nudges = [
        e.at
        for e in entries
        if e.type == "handoff.nudged.v1" and _data(e)["clock"] == timer.name.value
    ]
    return timer.name.value, nudges[0] if nudges else timer.at


def _what(entry: Entry) -> str | None:
    """Return what the relay did, in words; None: nothing that concerns a break."""
    data = _data(entry)
    match entry.type.removeprefix("handoff.").removesuffix(".v1"):
        case "nudged":
            return f"reminded {data['to']}: the {data['clock']} clock ran out"
        case "escalated":
            told = f"told {data['notify']}" if data.get("notify") else "took a step"
            raised = f", raised it to {data['priority']}" if data.get("priority") else ""
            return f"{told}{raised}: {data['when']}"
        case "returned":
            reason = str(data["reason"]).replace("_", " ")
            return f"took it back ({reason}) and put it into the inbox again"
        case "reassigned":
            return f"asked {data['recipient']} instead ({data['reason']})"
        case "failed":
            return f"gave it up ({data['code']})"
        case "rejected":
            return f"did not open it ({data['code']})"
        case "expired":
            return "ended it at its deadline"
        case "redriven":
            return f"tried it again as {data['successor']}"
        case "cancelled":
            return "cancelled it with what it was for"
        case "rearmed":
            return f"let the {data['clock']} clock count anew after a restart"
        case _:
            return None


def _data(entry: Entry) -> dict[str, Any]:
    return msgspec.json.decode(entry.data)


def _state(handoffs: Sequence[Handoff]) -> str:
    if any(map(_broken, handoffs)):
        return "broken"
    if any(_late(h) is not None for h in handoffs):
        return "late"
    if any(not h.final for h in handoffs):
        return "open"
    last = [h for h in handoffs if h.next_leg is None and h.successor is None]
    cancelled = all(h.state is State.CANCELLED for h in last)
    return "cancelled" if cancelled else "completed"
