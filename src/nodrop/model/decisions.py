"""What each command means: the facts it would bring about, or why it is refused.

Called by `machine.decide` only, which checks the facts against the table.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final, Never

from msgspec.structs import fields, replace

from nodrop.model import clocks, commands, events
from nodrop.model.commands import Actor, Binding, Command
from nodrop.model.errors import (
    AlreadyBlockedError,
    AlreadyDecidedError,
    AlreadyFinishedError,
    AttemptRequiredError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    LimitReachedError,
    NotFinishedError,
    NotFoundError,
    StaleAttemptError,
    StaleQuestionError,
    WrongStateError,
)
from nodrop.model.events import Fact
from nodrop.model.following import reached, undecided
from nodrop.model.handoff import (
    DEAD,
    ClockName,
    Handoff,
    Question,
    QuestionKind,
    Rung,
    State,
)
from nodrop.model.mail import may_be_told
from nodrop.model.policy import added
from nodrop.model.routing import next_candidate, reassigned
from nodrop.model.surroundings import Facts, Surroundings
from nodrop.model.ticking import count_anew, exhausted, lapse, lapse_queue, tick

_BLOCKED: Final = State.BLOCKED
_FINISHED: Final = Rung.FINISHED
"""Named once: Python 3.11 looks a member of an enum up by a hook of its class, which takes long."""


# --- the offer and its delivery -----------------------------------------------------------------

_RARELY_SAID: Final = (
    *("contract_digest", "parent_id", "legs", "legs_done", "watchers", "traceparent"),
    *("ancestors", "redrive_of", "chain_deadline_at", "detached", "member_of", "join"),
    *("not_before", "steps", "answers", "checkpoint"),
)
"""Fields that an offer and its event have in common, and that most leave as they are."""
_rarely_said: Final = operator.attrgetter(*_RARELY_SAID)
_DEFAULTS: Final = {field.name: field.default for field in fields(commands.Offer)}
_USUALLY_SAID: Final = tuple(_DEFAULTS[name] for name in _RARELY_SAID)


def offer(command: Any, around: Surroundings) -> Facts:
    """Return the offer of a handoff, and how it ended where it is born so."""
    terms, to = command.terms, command.to
    if to.timeout_ms is not None or terms.timeout_asked_ms != terms.timeout_ms:
        terms = replace(terms, timeout_ms=terms.timeout_with(to.timeout_ms))
    offered = events.Offered(
        sender=command.sender,
        origin=command.origin,
        recipient=to.agent,
        capability=command.capability,
        manifest_version=to.manifest_version,
        routed=command.routed,
        terms=terms,
        team_steps=added(terms.escalation, around.team_steps) if around.team_steps else (),
        correlation_id=command.correlation_id,
        key=command.key,
    )
    rare = _rarely_said(command)
    if rare != _USUALLY_SAID:
        offered = replace(offered, **dict(zip(_RARELY_SAID, rare, strict=True)))
    born = Fact(event=offered, body=command.body)
    if command.completed is not None:
        return (born, Fact(event=events.Completed(attempt=0), body=command.completed))
    if command.refused is not None:
        refused = events.Rejected(code=command.refused)
        return (born, Fact(event=refused, body=command.refusal))
    return (born,)


def _deliver(handoff: Handoff, command: commands.Deliver, binding: Binding | None = None) -> Facts:
    delivered = events.Delivered(
        attempt=handoff.attempt + 1,
        process=command.process,
        heartbeat_ms=command.heartbeat_ms,
    )
    if binding is None or not handoff.unbound:
        return (Fact(event=delivered),)
    if binding.refused is not None:
        return (Fact(event=events.Rejected(code=binding.refused), body=binding.refusal),)
    bound = replace(
        delivered,
        capability=binding.capability,
        manifest_version=binding.to.manifest_version,
        timeout_ms=handoff.terms.timeout_with(binding.to.timeout_ms),
    )
    return (Fact(event=bound),)


def _delivered(entered: Facts) -> bool:
    """Whether what was merely offered is taken directly."""
    return any(type(fact.event) is events.Delivered for fact in entered)


def _refused(entered: Facts) -> bool:
    """Whether a direct take ended the handoff, because the recipient's contract does not hold."""
    return any(type(fact.event) is events.Rejected for fact in entered)


# --- who may act --------------------------------------------------------------------------------


def _fence(handoff: Handoff, attempt: int | None, by: Actor) -> Facts:
    """Let only the authorised attempt act; a lapsed one that nobody replaced goes on."""
    if by.agent != handoff.recipient:
        _not_the_recipient(handoff, by)
    if handoff.live and attempt == handoff.attempt:
        return ()
    if handoff.outcome is not None:
        raise AlreadyFinishedError(f"the handoff is {handoff.state}")
    if attempt is None:
        raise AttemptRequiredError
    if attempt != handoff.attempt or not handoff.revivable:
        raise StaleAttemptError(_superseded(handoff, attempt))
    return _revived(handoff)


def _take_directly_or_fence(
    handoff: Handoff, attempt: int | None, by: Actor, binding: Binding | None = None
) -> Facts:
    """Without an attempt, something merely offered is taken and acted on in one commit."""
    if attempt is None and handoff.state is State.OFFERED and by.agent == handoff.recipient:
        return _deliver(handoff, commands.Deliver(process=by.agent, heartbeat_ms=None), binding)
    return _fence(handoff, attempt, by)


def _not_the_recipient(handoff: Handoff, by: Actor) -> Never:
    if by.agent in handoff.asked:
        raise StaleAttemptError(f"the handoff went on to {handoff.recipient}")
    raise ForbiddenError(f"only the recipient, {handoff.recipient}, can say what it did")


def _require(by: Actor, role: str, *agents: str) -> None:
    if not by.operator and by.agent not in agents:
        raise ForbiddenError(f"only the {role} can do this")


def _acknowledged(handoff: Handoff) -> None:
    if handoff.ack is None:
        raise WrongStateError(
            "the delivery was never acknowledged",
            next_step="Acknowledge it first; or reject it, or release it.",
        )


def _superseded(handoff: Handoff, attempt: int) -> str:
    if attempt != handoff.attempt:
        return f"you hold attempt {attempt}, the current attempt is {handoff.attempt}"
    return f"attempt {attempt} has ended"


def _revived(handoff: Handoff) -> Facts:
    event = events.Revived if handoff.ack else events.Reclaimed
    return (Fact(event=event(attempt=handoff.attempt)),)


# --- the recipient's commands -------------------------------------------------------------------


def _acknowledge(
    handoff: Handoff, command: commands.Acknowledge, by: Actor, now: int, around: Surroundings
) -> Facts:
    if command.queued:
        return _queue(handoff, command, by, now, around)
    attempt, directly = command.attempt, False
    if attempt is not None:
        entered = _fence(handoff, attempt, by)
    else:
        entered = _take_directly_or_fence(handoff, None, by, around.binding)
        if _refused(entered):
            return entered
        directly = _delivered(entered)
    # A second ack is an update, which nothing is before the first. Terms under discussion are not
    # to be acknowledged: agreeing to them is the acceptance.
    if handoff.state is _BLOCKED or (handoff.ack is not None and not directly):
        return _updated(handoff, command, entered, now, around)
    acknowledged = events.Acknowledged(
        attempt=handoff.attempt + 1 if directly else handoff.attempt,
        position=around.position if command.position is None else command.position,
        eta_at=command.eta_at,
        next_update_at=_promised(handoff, command.next_update_at, now),
    )
    return (*entered, Fact(event=acknowledged, body=command.body))


def _updated(
    handoff: Handoff,
    command: commands.Acknowledge | commands.Update,
    entered: Facts,
    now: int,
    around: Surroundings,
) -> Facts:
    """Return an update. What it does not mention stays as it was last said."""
    _acknowledged(handoff)
    said = handoff.ack
    position = command.position
    if position is None:
        position = said.position if said else around.position
    updated = events.Updated(
        attempt=handoff.attempt,
        position=position,
        eta_at=command.eta_at if command.eta_at is not None else said and said.eta_at,
        next_update_at=_promised(handoff, command.next_update_at, now),
    )
    return (*entered, Fact(event=updated, body=command.body))


def _promised(handoff: Handoff, next_update_at: int | None, now: int) -> int:
    """Return when the next word is owed: as promised, and at the latest as agreed."""
    latest = now + handoff.terms.update_every_ms
    return latest if next_update_at is None else max(min(next_update_at, latest), now)


def _queue(
    handoff: Handoff, command: commands.Acknowledge, by: Actor, now: int, around: Surroundings
) -> Facts:
    """Acknowledge what waits for a free slot. Nothing is leased, and no attempt begins."""
    if by.agent != handoff.recipient:
        _not_the_recipient(handoff, by)
    if handoff.final:
        raise AlreadyFinishedError(f"the handoff is {handoff.state}")
    if command.attempt is not None:
        raise InvalidRequestError(
            "a queued acknowledgement names no attempt",
            next_step="Leave out `attempt`; or leave out `queued`, to accept the delivery.",
        )
    if handoff.state is not State.OFFERED:
        return ()  # another process of the recipient has it, and the caller is shown that
    if clocks.running(handoff, ClockName.RETRY) is not None:
        raise WrongStateError(
            "the handoff waits for its retry",
            next_step="Wait until it is offered again.",
        )
    said = handoff.queued
    if said is None and around.queued_acks >= around.limits.queued_acks_max:
        raise LimitReachedError(
            f"{around.limits.queued_acks_max} handoffs are acknowledged as queued already",
            next_step="Take some of them first. Until then its accept clock runs.",
        )
    eta_at = command.eta_at if command.eta_at is not None else said and said.eta_at
    event = events.Queued(
        position=command.position or around.place,
        eta_at=eta_at,
        next_update_at=_promised(handoff, command.next_update_at, now),
    )
    return (Fact(event=event, body=command.body),)


def _block(handoff: Handoff, command: commands.Block, by: Actor, around: Surroundings) -> Facts:
    entered = _fence(handoff, command.attempt, by)
    if handoff.question is not None:
        raise AlreadyBlockedError
    _acknowledged(handoff)
    if len(handoff.answers) >= around.limits.answers_max:
        raise LimitReachedError(f"{around.limits.answers_max} questions were asked already")
    checkpoint = _checkpoint(handoff, command.checkpoint)
    blocked = events.Blocked(
        attempt=handoff.attempt,
        kind=QuestionKind.QUESTION,
        asked=command.asked or handoff.sender,
        parked=command.park or command.checkpoint is not None,
    )
    return (*entered, *checkpoint, Fact(event=blocked, body=command.body))


def _counter(handoff: Handoff, command: commands.Counter, by: Actor, around: Surroundings) -> Facts:
    entered = _take_directly_or_fence(handoff, command.attempt, by, around.binding)
    if _refused(entered):
        return entered
    if handoff.question is not None:
        raise AlreadyBlockedError
    if len(handoff.answers) >= around.limits.answers_max:
        raise LimitReachedError(f"{around.limits.answers_max} questions were asked already")
    directly = _delivered(entered)
    blocked = events.Blocked(
        attempt=handoff.attempt + 1 if directly else handoff.attempt,
        kind=QuestionKind.TERMS,
        asked=handoff.origin,
        proposed=command.proposal,
    )
    return (*entered, Fact(event=blocked, body=command.body))


def _reject(handoff: Handoff, command: commands.Reject, by: Actor, around: Surroundings) -> Facts:
    entered = _take_directly_or_fence(handoff, command.attempt, by)
    if handoff.state is State.BLOCKED:
        raise WrongStateError("a question is open: fail it instead, or wait for the answer")
    return (*entered, *next_candidate(handoff, "rejected", around, command.body))


def _complete(
    handoff: Handoff, command: commands.Complete, by: Actor, _now: int, _around: Surroundings
) -> Facts:
    attempt = command.attempt
    if handoff.outcome is not None and _takes_late_result(handoff, attempt, by):
        return (Fact(event=events.LateResultKept(attempt=handoff.attempt), body=command.body),)
    completed = Fact(event=events.Completed(attempt=handoff.attempt), body=command.body)
    if handoff.live and attempt == handoff.attempt and by.agent == handoff.recipient:
        entered = ()  # as most are
    else:
        entered = _fence(handoff, attempt, by)
    if handoff.ack is None:
        _acknowledged(handoff)
    return (*entered, completed)


def _takes_late_result(handoff: Handoff, attempt: int | None, by: Actor) -> bool:
    """After `expired` or `attempts_exhausted` the last attempt may still hand in its result."""
    if handoff.state not in DEAD or handoff.late_result is not None or attempt is None:
        return False
    if handoff.decision is not None or attempt != handoff.attempt or by.agent != handoff.recipient:
        return False
    # Not of whom it was given to since, and never delivered.
    delivered = (r for r in handoff.receipts if r.rung is Rung.DELIVERED)
    if not any((r.by, r.attempt) == (handoff.recipient, attempt) for r in delivered):
        return False
    assert handoff.outcome is not None, "a final handoff has an outcome"
    return handoff.state is State.EXPIRED or handoff.outcome.code == "attempts_exhausted"


def _fail(
    handoff: Handoff, command: commands.Fail, by: Actor, now: int, around: Surroundings
) -> Facts:
    entered = _fence(handoff, command.attempt, by)
    _acknowledged(handoff)
    if not command.retryable:
        failed = events.Failed(attempt=handoff.attempt, code=command.code)
        return (*entered, Fact(event=failed, body=command.body))
    if handoff.tries + 1 >= handoff.terms.attempts_max:
        return (*entered, exhausted(handoff, command.body))
    returned = events.Returned(
        reason="retry",
        attempt=handoff.attempt,
        tried=True,
        not_before=now + clocks.retry_wait_ms(handoff, around.retry_wait_ms),
    )
    return (*entered, Fact(event=returned, body=command.body))


def _release(
    handoff: Handoff, command: commands.Release, by: Actor, now: int, around: Surroundings
) -> Facts:
    entered = _fence(handoff, command.attempt, by)
    kept = _checkpoint(handoff, command.checkpoint) if handoff.ack else ()
    if handoff.state is State.BLOCKED:
        return (*entered, *kept, Fact(event=events.Parked(attempt=handoff.attempt)))
    tried = handoff.releases >= around.limits.releases_free_max
    if tried and handoff.tries + 1 >= handoff.terms.attempts_max:
        return (*entered, *kept, exhausted(handoff, command.body))
    wait = around.retry_wait_ms if tried else 0
    returned = events.Returned(
        reason="released",
        attempt=handoff.attempt,
        tried=tried,
        not_before=now + wait if wait else None,
    )
    return (*entered, *kept, Fact(event=returned, body=command.body))


def _record_step(
    handoff: Handoff, command: commands.RecordStep, by: Actor, around: Surroundings
) -> Facts:
    entered = _fence(handoff, command.attempt, by)
    if any(step.name == command.name for step in handoff.steps):
        return ()  # the first record counts, and the caller is shown it
    _acknowledged(handoff)
    if len(handoff.steps) >= around.limits.steps_max:
        raise LimitReachedError(f"{around.limits.steps_max} steps are recorded already")
    recorded = events.StepRecorded(attempt=handoff.attempt, name=command.name)
    return (*entered, Fact(event=recorded, body=command.body))


def _checkpoint(handoff: Handoff, body: bytes | None) -> Facts:
    if body is None:
        return ()
    return (Fact(event=events.Checkpointed(attempt=handoff.attempt), body=body),)


# --- questions and counters ---------------------------------------------------------------------


def _open_question(handoff: Handoff, version: int, kind: QuestionKind) -> Question:
    question = handoff.question
    if question is None or question.version != version:
        raise StaleQuestionError
    if question.kind is not kind:
        verbs = "answer" if question.kind is QuestionKind.QUESTION else "agree or decline"
        raise InvalidRequestError(f"this is a {question.kind}", next_step=f"Use {verbs}.")
    return question


def _answer(handoff: Handoff, command: commands.AnswerQuestion, by: Actor) -> Facts:
    late = handoff.withdrawn
    asked = late is not None and late.kind is QuestionKind.QUESTION
    if late and asked and late.version == command.question and handoff.state in DEAD:
        _require(by, "one who was asked, the requester or a person", late.asked, handoff.origin)
        if handoff.decision is not None:
            raise AlreadyDecidedError
        kept = events.LateAnswerKept(question=late.version, by=by.agent)
        return (Fact(event=kept, body=command.body),)
    question = _open_question(handoff, command.question, QuestionKind.QUESTION)
    _require(by, "one who was asked, the requester or a person", question.asked, handoff.origin)
    answered = events.Answered(question=question.version, by=by.agent)
    return (Fact(event=answered, body=command.body), _go_on(handoff))


def _agree(handoff: Handoff, command: commands.Agree, by: Actor) -> Facts:
    question = _open_question(handoff, command.question, QuestionKind.TERMS)
    _require(by, "requester", handoff.origin)
    proposed = question.proposed
    assert proposed is not None, "a counter proposes terms"
    wanted: dict[str, Any] = {
        name: value
        for name in proposed.__struct_fields__
        if (value := getattr(proposed, name)) is not None
    }
    if proposed.timeout_ms is not None:  # agreed on, so it holds whatever was asked for before
        wanted["timeout_asked_ms"] = proposed.timeout_ms
    agreed = events.Agreed(question=question.version, terms=replace(handoff.terms, **wanted))
    return (Fact(event=agreed), _go_on(handoff))


def _go_on(handoff: Handoff) -> Fact:
    """Wake the attempt that asked if it still lives, else put the handoff back in the inbox."""
    if handoff.live:
        return Fact(event=events.Resumed(attempt=handoff.attempt))
    return Fact(event=events.Returned(reason="answered", attempt=handoff.attempt))


# --- routing and the requester's commands -------------------------------------------------------


def _cancel(handoff: Handoff, command: commands.Cancel, by: Actor) -> Facts:
    _require(by, "requester", handoff.origin)
    if handoff.final:
        raise AlreadyFinishedError(f"the handoff is {handoff.state}")
    cancelled = Fact(event=events.Cancelled(), body=command.body)
    # A requester that withdraws its own handoff has the outcome with the answer.
    settled = command.settled or by.agent == handoff.origin
    return (cancelled, Fact(event=events.Settled())) if settled else (cancelled,)


def _reassign(handoff: Handoff, command: commands.Reassign, by: Actor) -> Facts:
    _require(by, "requester", handoff.origin)
    if handoff.final:
        raise AlreadyFinishedError(f"the handoff is {handoff.state}")
    if handoff.join is not None:
        raise WrongStateError("a group is the relay's to hold", next_step="Reassign its members.")
    moved = reassigned(
        handoff, command.capability, command.to, reason="reassigned", routed=command.routed
    )
    return (Fact(event=moved, body=command.body),)


def _settle(
    handoff: Handoff, command: commands.Settle, by: Actor, _now: int, _around: Surroundings
) -> Facts:
    if by.agent != handoff.origin:
        _require(by, "requester")
    if handoff.outcome is None:
        raise NotFinishedError(f"the handoff is {handoff.state}")
    if handoff.settled_at is not None:
        return ()
    settled = Fact(event=events.Settled(next_leg=command.next_leg))
    if handoff.receipts[-1].rung is not _FINISHED:
        return (settled,)
    seen = events.OutcomeDelivered(to=command.next_agent or handoff.origin)
    return (Fact(event=seen), settled)


def _close_group(handoff: Handoff, command: commands.CloseGroup) -> Facts:
    if handoff.join is None or handoff.state is not State.ACCEPTED:
        return ()
    if reached(handoff.join):
        return (Fact(event=events.Completed(attempt=handoff.attempt), body=command.body),)
    failed = events.Failed(attempt=handoff.attempt, code="join_not_reached")
    return (Fact(event=failed, body=command.body),)


def _erase(handoff: Handoff, by: Actor) -> Facts:
    _require(by, "requester", handoff.origin)
    if handoff.settled_at is None:
        raise WrongStateError(
            f"the handoff is {handoff.state}, and somebody still needs what it says",
            next_step="Settle it if it has ended, else cancel it; then erase it.",
        )
    if undecided(handoff):
        raise WrongStateError(
            "nobody has decided about this dead letter",
            next_step="Discard it, or redrive it; then erase it.",
        )
    return (Fact(event=events.Erased()),)


def _dismiss(handoff: Handoff, command: commands.Dismiss, by: Actor) -> Facts:
    reader = command.reader or by.agent
    if reader != by.agent and not by.operator:
        raise ForbiddenError(f"only {reader} or an operator may dismiss a notice to {reader}")
    if not may_be_told(handoff, reader):
        raise NotFoundError(
            f"{reader} has no notice about this handoff",
            next_step="`nodrop inbox` shows the notices that wait for you.",
        )
    # With nothing since its last dismissal there is nothing to record.
    if any(n.reader == reader and n.dismissed == handoff.version for n in handoff.notices):
        return ()
    return (Fact(event=events.Dismissed(reader=reader)),)


def _decide_dead_letter(
    handoff: Handoff,
    command: commands.Redrive | commands.AcceptLate | commands.Discard,
    by: Actor,
) -> Facts:
    _require(by, "requester", handoff.origin)
    if not handoff.final:
        raise NotFinishedError(f"the handoff is {handoff.state}")
    if handoff.decision is not None:
        raise AlreadyDecidedError(f"it was {handoff.decision}")
    if handoff.state in DEAD and handoff.next_leg is not None:
        raise AlreadyDecidedError("a fallback took its place")
    if handoff.join is not None and not isinstance(command, commands.Discard):
        raise WrongStateError(
            "a group is not tried again as a whole",
            next_step="Fan out once more what is missing; then discard this one.",
        )
    # The successor, or the person's decision, takes over what was owed.
    settled = () if handoff.settled_at is not None else (Fact(event=events.Settled()),)
    match command:
        case commands.Redrive():
            redriven = events.Redriven(successor=command.successor)
            return (Fact(event=redriven, body=command.body), *settled)
        case commands.AcceptLate():
            if handoff.late_result is None:
                raise WrongStateError("it has no late result to accept")
            return (Fact(event=events.AcceptedLate(successor=command.successor)), *settled)
        case commands.Discard():
            return (Fact(event=events.Discarded(), body=command.body), *settled)


# --- the table ----------------------------------------------------------------------------------


def _offer_again(
    _handoff: Handoff, _command: object, _by: Actor, _now: int, _around: Surroundings
) -> Facts:
    raise ConflictError("a handoff with this id exists")


def _mark_outcome_delivered(
    handoff: Handoff, _command: object, _by: Actor, _now: int, _around: Surroundings
) -> Facts:
    if handoff.receipts[-1].rung is not _FINISHED:
        return ()
    return (Fact(event=events.OutcomeDelivered(to=handoff.origin)),)


def _update(
    handoff: Handoff, command: commands.Update, by: Actor, now: int, around: Surroundings
) -> Facts:
    return _updated(handoff, command, _fence(handoff, command.attempt, by), now, around)


def _leave_checkpoint(handoff: Handoff, command: commands.Checkpoint, by: Actor) -> Facts:
    entered = _fence(handoff, command.attempt, by)
    _acknowledged(handoff)
    return (*entered, *_checkpoint(handoff, command.body))


def _decline(handoff: Handoff, command: commands.Decline, by: Actor, around: Surroundings) -> Facts:
    _open_question(handoff, command.question, QuestionKind.TERMS)
    _require(by, "requester", handoff.origin)
    return next_candidate(handoff, "declined", around, command.body)


def _move_member(handoff: Handoff, command: commands.MoveMember) -> Facts:
    moved = handoff.join is not None and handoff.state is State.ACCEPTED
    return (Fact(event=events.MemberMoved(member=command.member)),) if moved else ()


def _consume(handoff: Handoff) -> Facts:
    open_still = handoff.state in DEAD and handoff.decision is None
    return (Fact(event=events.Joined()),) if open_still else ()


def _lapse_lease(
    handoff: Handoff, command: commands.LapseLease, now: int, around: Surroundings
) -> Facts:
    held = handoff.live and handoff.process == command.process
    return lapse(handoff, "lease_lapsed", now, around) if held else ()


def _lapse_queue(handoff: Handoff, now: int, around: Surroundings) -> Facts:
    waits = handoff.queued is not None and handoff.state is State.OFFERED
    return lapse_queue(handoff, now, around) if waits else ()


def _revive(handoff: Handoff, command: commands.Revive) -> Facts:
    mine = handoff.revivable and handoff.process == command.process
    return _revived(handoff) if mine else ()


MEANING: Final[
    Mapping[type[Command], Callable[[Handoff, Any, Actor, int, Surroundings], Facts]]
] = {
    commands.Offer: _offer_again,
    commands.Deliver: lambda h, c, _by, _now, around: _deliver(h, c, around.binding),
    commands.Acknowledge: _acknowledge,
    commands.Complete: _complete,
    commands.MarkOutcomeDelivered: _mark_outcome_delivered,
    commands.Settle: _settle,
    commands.Update: _update,
    commands.Block: lambda h, c, by, _now, around: _block(h, c, by, around),
    commands.Counter: lambda h, c, by, _now, around: _counter(h, c, by, around),
    commands.Reject: lambda h, c, by, _now, around: _reject(h, c, by, around),
    commands.Fail: _fail,
    commands.Release: _release,
    commands.RecordStep: lambda h, c, by, _now, around: _record_step(h, c, by, around),
    commands.Checkpoint: lambda h, c, by, _now, _around: _leave_checkpoint(h, c, by),
    commands.AnswerQuestion: lambda h, c, by, _now, _around: _answer(h, c, by),
    commands.Agree: lambda h, c, by, _now, _around: _agree(h, c, by),
    commands.Decline: lambda h, c, by, _now, around: _decline(h, c, by, around),
    commands.Cancel: lambda h, c, by, _now, _around: _cancel(h, c, by),
    commands.Reassign: lambda h, c, by, _now, _around: _reassign(h, c, by),
    commands.Redrive: lambda h, c, by, _now, _around: _decide_dead_letter(h, c, by),
    commands.AcceptLate: lambda h, c, by, _now, _around: _decide_dead_letter(h, c, by),
    commands.Discard: lambda h, c, by, _now, _around: _decide_dead_letter(h, c, by),
    commands.MoveMember: lambda h, c, _by, _now, _around: _move_member(h, c),
    commands.CloseGroup: lambda h, c, _by, _now, _around: _close_group(h, c),
    commands.Consume: lambda h, _c, _by, _now, _around: _consume(h),
    commands.Erase: lambda h, _c, by, _now, _around: _erase(h, by),
    commands.Dismiss: lambda h, c, by, _now, _around: _dismiss(h, c, by),
    commands.Note: lambda _h, c, _by, _now, _around: (Fact(event=events.Noted(), body=c.body),),
    commands.LapseLease: lambda h, c, _by, now, around: _lapse_lease(h, c, now, around),
    commands.LapseQueue: lambda h, _c, _by, now, around: _lapse_queue(h, now, around),
    commands.Revive: lambda h, c, _by, _now, _around: _revive(h, c),
    commands.Tick: lambda h, _c, _by, now, around: tick(h, now, around),
    commands.CountAnew: lambda h, _c, _by, now, around: count_anew(h, now, around),
}
"""Decisions by command about an existing handoff. `isinstance` takes ten times as long with structs of msgspec."""
