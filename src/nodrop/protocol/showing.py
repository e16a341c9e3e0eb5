"""How a handoff is shown.

A view is made from the handoff, its bodies and what only the relay knows (leases, sequence
numbers); it holds no state of its own.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from nodrop.model import clocks
from nodrop.model.handoff import (
    Escalation,
    Handoff,
    Leg,
    Outcome,
    Proposal,
    Question,
    QuestionKind,
    Rung,
    State,
)
from nodrop.protocol import requests, traces
from nodrop.protocol.bodies import Content
from nodrop.protocol.times import format_duration, format_time
from nodrop.protocol.views import (
    AckView,
    BriefView,
    ChainView,
    EndedAnswer,
    HandoffView,
    OfferedView,
    OutcomeView,
    QuestionView,
    ReceiptView,
    TaskView,
    WaitingView,
    WarningView,
)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a view needs besides the handoff."""

    bodies: Mapping[int, Any] = {}
    """Decoded bodies of this handoff by version, as far as the view needs them."""
    question_seq: int | None = None
    lease_until: int | None = None
    place: tuple[int, int] | None = None
    """In the recipient's queue, and how long that is; of what is acknowledged as queued."""
    warnings: tuple[WarningView, ...] = ()
    answers: Mapping[str, Any] = {}


def bodies_needed(handoff: Handoff) -> tuple[int, ...]:
    """Return the versions whose bodies `handoff_view` shows, the content apart."""
    said = (handoff.ack, handoff.queued, handoff.question, handoff.outcome)
    return tuple([word.version for word in said if word is not None])


def handoff_view(h: Handoff, known: Known, lasting: HandoffView) -> HandoffView:
    """Return `h` as its parties see it; `lasting` is its `lasting_view`."""
    due_at, owed_at, settled_at = (
        clocks.due_at(h, known.lease_until),
        clocks.owed_at(h),
        h.settled_at,
    )
    return msgspec.structs.replace(
        lasting,
        state=_STATES[h.state],
        holder=holder(h),
        due_at=None if due_at is None else format_time(due_at),
        owed_at=None if owed_at is None else format_time(owed_at),
        version=h.version,
        attempt=h.attempt,
        tries=h.tries,
        receipts=tuple(
            [
                ReceiptView(rung=_RUNGS[r.rung], at=format_time(r.at), by=r.by, attempt=r.attempt)
                for r in h.receipts
            ]
        ),
        ack=None if h.ack is None and h.queued is None else _ack(h, known),
        question=None if h.question is None else _question(h.question, known),
        outcome=None if h.outcome is None else _outcome(h.outcome, h.state, known),
        answers=dict(known.answers),
        warnings=known.warnings,
        to=h.recipient,
        capability=h.capability,
        successor=h.successor,
        next_leg=h.next_leg,
        decision=h.decision.value if h.decision else None,
        late_result=h.late_result is not None,
        settled_at=None if settled_at is None else format_time(settled_at),
        erased=h.erased_at is not None,
    )


def brief_view(h: Handoff, lease_until: int | None) -> BriefView:
    """Return where `h` is."""
    due_at, settled_at = clocks.due_at(h, lease_until), h.settled_at
    return BriefView(
        id=h.id,
        state=_STATES[h.state],
        rung=_RUNGS[h.receipts[-1].rung],
        version=h.version,
        attempt=h.attempt,
        due_at=None if due_at is None else format_time(due_at),
        settled_at=None if settled_at is None else format_time(settled_at),
    )


def offered_view(
    h: Handoff,
    lease_until: int | None,
    *,
    verified: bool = False,
    warnings: tuple[WarningView, ...] = (),
) -> OfferedView:
    """Return `h` for whoever offered it."""
    due_at, sender, origin = clocks.due_at(h, lease_until), h.sender, h.origin
    # What is the same for most is added where it is not: a call with more than 15 names takes longer.
    view = OfferedView(
        id=h.id,
        ref=f"{sender}/{h.key}" if h.key else h.id,
        state=_STATES[h.state],
        version=h.version,
        receipts=tuple(
            [
                ReceiptView(rung=_RUNGS[r.rung], at=format_time(r.at), by=r.by, attempt=r.attempt)
                for r in h.receipts
            ]
        ),
        from_=sender,
        to=h.recipient,
        capability=h.capability,
        origin=origin,
        deadline=format_time(h.terms.deadline_at),
        correlation_id=h.correlation_id,
        traceparent=traces.own(h.team, h.id, h.correlation_id, h.traceparent),
        attempt=h.attempt,
        due_at=None if due_at is None else format_time(due_at),
        holder=holder(h),
    )
    if origin != sender or h.legs_done or h.legs:
        view = msgspec.structs.replace(view, chain=_chain(h))
    if h.tries or h.settled_at is not None or h.next_leg or h.contract_digest:
        view = msgspec.structs.replace(
            view,
            tries=h.tries,
            settled_at=_time(h.settled_at),
            next_leg=h.next_leg,
            contract_digest=h.contract_digest,
        )
    if verified or warnings:
        view = msgspec.structs.replace(view, verified=verified, warnings=warnings)
    return view


class _Said(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The body of an outcome, as far as it is shown."""

    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    reason: str | None = None
    signed: msgspec.Raw | None = None


_SAID: Final = msgspec.json.Decoder(_Said)
_STATES: Final = {state: state.value for state in State}
_RUNGS: Final = {rung: rung.value for rung in Rung}
_NOTHING_SAID: Final = _Said()
_COMPLETED: Final = State.COMPLETED
_UNSET: Final = msgspec.UNSET
_NULL: Final = msgspec.Raw(b"null")


def ended_answer(h: Handoff, body: bytes | None) -> EndedAnswer:
    """Return how `h` ended; `body` is that of its outcome."""
    assert h.outcome is not None, "it has ended"
    said = _NOTHING_SAID if body is None else _SAID.decode(body)
    view, outcome, result = offered_view(h, None), h.outcome, said.result
    if h.state is not _COMPLETED:
        result = _UNSET
    elif result is _UNSET:
        result = _NULL
    return EndedAnswer(
        handoff=view,
        outcome=OutcomeView(
            state=view.state,
            at=format_time(outcome.at),
            by=outcome.by,
            code=outcome.code,
            result=result,
            reason=said.reason,
            verified=said.signed is not None,
        ),
    )


def task_view(h: Handoff, content: Content) -> TaskView:
    """Return `h` for whoever works on it."""
    terms = h.terms
    view = TaskView(
        id=h.id,
        ref=f"{h.sender}/{h.key}" if h.key else h.id,
        state=_STATES[h.state],
        version=h.version,
        attempt=h.attempt,
        from_=h.sender,
        to=h.recipient,
        capability=h.capability,
        priority=str(terms.priority),
        payload=content.payload,
        update_every=format_duration(terms.update_every_ms),
        deadline=format_time(terms.deadline_at),
        correlation_id=h.correlation_id,
        traceparent=traces.own(h.team, h.id, h.correlation_id, h.traceparent),
        stored_at=format_time(h.stored_at),
    )
    # As above: what most do not say, and what comes with a key.
    timeout = None if terms.timeout_ms is None else format_duration(terms.timeout_ms)
    view = msgspec.structs.replace(
        view,
        tries=h.tries,
        timeout=timeout,
        idempotency_key=h.key,
        trigger=content.trigger,
        title=content.title,
        expected_outcome=content.expected_outcome,
        verified=content.verified,
    )
    if terms.marks:
        view = msgspec.structs.replace(view, **_named(terms.marks))
    if h.origin != h.sender or h.legs_done or h.legs:
        view = msgspec.structs.replace(view, chain=_chain(h), then=tuple(map(_leg, h.legs)))
    if h.contract_digest or h.watchers or h.parent_id or h.redrive_of:
        view = msgspec.structs.replace(
            view,
            contract_digest=h.contract_digest,
            watchers=h.watchers,
            parent_id=h.parent_id,
            redrive_of=h.redrive_of,
        )
    if content.observations or content.parameters or content.covariates or content.metadata:
        view = msgspec.structs.replace(
            view,
            observations=content.observations,
            parameters=content.parameters,
            covariates=content.covariates,
            metadata=content.metadata,
        )
    return view


def waiting_view(h: Handoff, *, place: int, slots: int) -> WaitingView:
    """Return `h` for a connection of its recipient that has no free slot."""
    return WaitingView(
        id=h.id,
        ref=ref(h),
        capability=h.capability,
        position=place,
        slots=slots,
        update_every=format_duration(h.terms.update_every_ms),
    )


def _chain(h: Handoff) -> ChainView:
    if not h.legs and not h.legs_done:
        return ChainView(origin=h.origin, done=(), here=0, next=())
    return ChainView(
        origin=h.origin,
        done=tuple({"id": d.id, "agent": d.agent, "state": d.state.value} for d in h.legs_done),
        here=len(h.legs_done),
        next=tuple(leg.to or leg.capability or "" for leg in h.legs if not leg.fallback),
    )


def outline(view: HandoffView) -> HandoffView:
    """Return a view that was made without bodies, and says so."""
    return msgspec.structs.replace(view, withheld=True)


def lasting_view(h: Handoff, content: Content) -> HandoffView:
    """Return what is shown of `h` for as long as its terms are the same."""
    view = HandoffView(
        id=h.id,
        ref=f"{h.sender}/{h.key}" if h.key else h.id,
        state="",
        holder=None,
        due_at=None,
        version=0,
        attempt=0,
        tries=0,
        receipts=(),
        ack=None,
        chain=_chain(h),
        question=None,
        outcome=None,
        answers={},
        warnings=(),
        from_=h.sender,
        to="",
        capability=None,
        trigger=content.trigger,
        title=content.title,
        priority=h.terms.priority.value,
        payload=content.payload,
        expected_outcome=content.expected_outcome,
        accept_within=format_duration(h.terms.accept_within_ms),
        update_every=format_duration(h.terms.update_every_ms),
        deadline=format_time(h.terms.deadline_at),
        timeout=None if h.terms.timeout_ms is None else format_duration(h.terms.timeout_ms),
        contract_digest=h.contract_digest,
        attempts_max=h.terms.attempts_max,
        backoff={
            "first": format_duration(h.terms.backoff.first_ms),
            "factor": h.terms.backoff.factor_percent / 100,
            "max": format_duration(h.terms.backoff.max_ms),
        },
        escalation=None if h.terms.escalation is None else _steps(h.terms.escalation),
        team_steps=_steps(h.team_steps),
        then=tuple(_leg(leg) for leg in h.legs),
        watchers=h.watchers,
        correlation_id=h.correlation_id,
        parent_id=h.parent_id,
        redrive_of=h.redrive_of,
        successor=None,
        next_leg=None,
        decision=None,
        late_result=False,
        idempotency_key=h.key,
        traceparent=traces.own(h.team, h.id, h.correlation_id, h.traceparent),
        verified=content.verified,
        observations=content.observations,
        parameters=content.parameters,
        covariates=content.covariates,
        metadata=content.metadata,
        stored_at=format_time(h.stored_at),
        settled_at=None,
    )
    marks = h.terms.marks
    return msgspec.structs.replace(view, **_named(marks)) if marks else view


def forget_shown() -> None:
    """Forget what is kept because it is often shown again: steps and times."""
    _steps.cache_clear()
    format_time.cache_clear()


def ref(h: Handoff) -> str:
    """Return the human reference: `inbox_monitor/msg_123`, or the id where there is no key."""
    return f"{h.sender}/{h.key}" if h.key else h.id


def holder(h: Handoff) -> str | None:
    """Return who owes the next move; None once nothing is owed."""
    if h.outcome is None:
        return h.recipient if h.question is None else h.question.asked
    return h.origin if h.settled_at is None else None


def _named(marks: tuple[str, ...]) -> dict[str, Any]:
    """Return marks by the names of their fields; those of a later version have none here."""
    said = [mark.split("=", 1) for mark in marks]
    return {name: value for name, value in said if name in requests.MARKS}


def _time(ms: int | None) -> str | None:
    return None if ms is None else format_time(ms)


def _body(known: Known, version: int) -> dict[str, Any]:
    body = known.bodies.get(version)
    return body if isinstance(body, dict) else {}  # pyright: ignore[reportUnknownVariableType]  # any JSON


def _ack(h: Handoff, known: Known) -> AckView | None:
    said = h.queued or h.ack
    if said is None:
        return None
    queued = h.queued is not None and h.state is State.OFFERED
    position, of = known.place if queued and known.place is not None else (said.position, None)
    return AckView(
        status=_body(known, said.version).get("status"),
        position=position,
        eta=_time(said.eta_at),
        next_update=_time(said.next_update_at),
        queued=queued,
        of=of,
    )


def _question(question: Question, known: Known) -> QuestionView:
    body = _body(known, question.version)
    terms = question.kind is QuestionKind.TERMS
    return QuestionView(
        seq=known.question_seq or 0,
        kind=question.kind.value,
        asked=question.asked,
        asked_at=format_time(question.asked_at),
        question=None if terms else body.get("question"),
        name=body.get("name"),
        terms=_proposal(question.proposed) if question.proposed else None,
        reason=body.get("reason"),
    )


def _proposal(proposal: Proposal) -> dict[str, str]:
    terms: dict[str, str] = {}
    if proposal.deadline_at is not None:
        terms["deadline"] = format_time(proposal.deadline_at)
    if proposal.update_every_ms is not None:
        terms["update_every"] = format_duration(proposal.update_every_ms)
    if proposal.accept_within_ms is not None:
        terms["accept_within"] = format_duration(proposal.accept_within_ms)
    if proposal.priority is not None:
        terms["priority"] = proposal.priority.value
    if proposal.timeout_ms is not None:
        terms["timeout"] = format_duration(proposal.timeout_ms)
    return terms


def _outcome(outcome: Outcome, state: State, known: Known) -> OutcomeView:
    body = _body(known, outcome.version)
    return OutcomeView(
        state=_STATES[state],
        at=format_time(outcome.at),
        by=outcome.by,
        code=outcome.code,
        result=body.get("result") if state is _COMPLETED else _UNSET,
        reason=body.get("reason"),
        verified="signed" in body,
    )


@lru_cache(maxsize=256)  # those of a team are shown with each of its handoffs
def _steps(steps: tuple[Escalation, ...]) -> tuple[dict[str, Any], ...]:
    return tuple([step_view(step) for step in steps])


def step_view(step: Escalation) -> dict[str, Any]:
    """Return an escalation step as an offer spells it."""
    shown: dict[str, Any] = {"when": step.when.value, "after": format_duration(step.after_ms)}
    if step.notify is not None:
        shown["notify"] = step.notify
    if step.reassign is not None:
        named = (("to", step.reassign.to), ("capability", step.reassign.capability))
        shown["reassign"] = {name: value for name, value in named if value is not None}
    if step.raise_to is not None:
        shown["raise_priority"] = step.raise_to.value
    return shown


def _leg(leg: Leg) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in (
        ("to", leg.to),
        ("capability", leg.capability),
        ("priority", leg.priority and leg.priority.value),
        ("accept_within", leg.accept_within_ms),
        ("update_every", leg.update_every_ms),
        ("deadline", leg.deadline_ms),
        ("attempts_max", leg.attempts_max),
    ):
        if value is not None:
            in_ms = name in {"accept_within", "update_every", "deadline"}
            shown[name] = format_duration(value) if in_ms and isinstance(value, int) else value
    if leg.fallback:
        shown["on"] = "failed"
    if leg.detached:
        shown["detached"] = True
    return shown
