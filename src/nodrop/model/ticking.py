"""What the relay does when time has passed: the clocks of a handoff, and lapsed leases.

Called by `decisions` only.
"""

from typing import assert_never

from nodrop.model import clocks, events
from nodrop.model.events import Fact
from nodrop.model.following import undecided
from nodrop.model.handoff import ClockName, Handoff, State, Timer
from nodrop.model.routing import next_candidate, reassigned
from nodrop.model.surroundings import Facts, Surroundings


def lapse(handoff: Handoff, reason: str, now: int, around: Surroundings) -> Facts:
    """Take back a delivery whose holder went silent. A question only loses its live asker."""
    if handoff.state is State.BLOCKED:
        return (Fact(event=events.Parked(attempt=handoff.attempt)),)
    if handoff.tries + 1 >= handoff.terms.attempts_max:
        return (exhausted(handoff),)
    returned = events.Returned(
        reason=reason,
        attempt=handoff.attempt,
        tried=True,
        revivable=reason == "lease_lapsed",
        not_before=now + clocks.retry_wait_ms(handoff, around.retry_wait_ms),
    )
    return (Fact(event=returned),)


def lapse_queue(handoff: Handoff, now: int, around: Surroundings) -> Facts:
    """Hold a recipient to its queued acknowledgement no longer: none of its processes is there."""
    lapsed = Fact(event=events.QueueLapsed(reason="agent_silent"))
    if handoff.routed:
        return (lapsed, *next_candidate(handoff, "unacknowledged", around))
    length = handoff.terms.accept_within_ms
    nudged = events.Nudged(
        clock=ClockName.ACCEPT, to=handoff.recipient, again_at=now + length, length_ms=length
    )
    return (lapsed, Fact(event=nudged))


def _break_promise(handoff: Handoff, timer: Timer, now: int, around: Surroundings) -> Facts:
    """Remind the recipient of its word; one that only has it queued is held to it no longer."""
    nudged = _nudge(timer, handoff.recipient, now, around)
    if handoff.state is not State.OFFERED:
        return (nudged,)
    lapsed = Fact(event=events.QueueLapsed(reason="promise_passed"))
    if handoff.routed:
        return (nudged, lapsed, *next_candidate(handoff, "unacknowledged", around))
    return (nudged, lapsed)


def tick(handoff: Handoff, now: int, around: Surroundings) -> Facts:
    """Act on one clock that ran out; the handoff is ticked again until none has."""
    timer = clocks.ran_out(handoff, now)
    if timer is None:
        return ()
    if timer.name is ClockName.DEADLINE:
        if handoff.join is not None:
            # A group ends with its members, which end by then; one that was redriven takes longer.
            again = events.Rearmed(clock=timer.name, at=now + max(timer.length_ms, 1))
            return (Fact(event=again),)
        return (Fact(event=events.Expired()),)
    # Every other clock that ran out while the relay was down counts anew, and a lease is never
    # shorter than the time since the start.
    anew_at = around.up_since + max(timer.length_ms, 1)
    began_before = timer.at - timer.length_ms < around.up_since  # a step may wait for nothing
    missed = began_before and timer.at <= around.up_since and timer.name is not ClockName.RETRY
    if missed or (timer.name is ClockName.LEASE and timer.at < anew_at):
        again = events.Rearmed(clock=timer.name, step=timer.step, at=anew_at)
        return (Fact(event=again),)
    return _fire(handoff, timer, now, around)


def count_anew(handoff: Handoff, now: int, around: Surroundings) -> Facts:
    """Count from the relay's start what began later than now; a deadline is a time, and stays."""
    since = around.up_since
    return tuple(
        Fact(event=events.Rearmed(clock=timer.name, step=timer.step, at=since + timer.length_ms))
        for timer in handoff.timers
        if timer.at - timer.length_ms > now and timer.name is not ClockName.DEADLINE
    )


def _fire(handoff: Handoff, timer: Timer, now: int, around: Surroundings) -> Facts:
    match timer.name:
        case ClockName.RETRY:
            # The wait is over: nobody is late, but those who wait for work want to know.
            return (Fact(event=events.Ready()),)
        case ClockName.LEASE:
            return lapse(handoff, "lease_lapsed", now, around)
        case ClockName.TIMEOUT:
            return lapse(handoff, "timed_out", now, around)
        case ClockName.ACCEPT:
            # While terms are discussed, it is who was asked that keeps the recipient from accepting.
            to = handoff.question.asked if handoff.question else handoff.recipient
            nudged = _nudge(timer, to, now, around)
            if handoff.routed:
                return (nudged, *next_candidate(handoff, "unacknowledged", around))
            return (nudged,)
        case ClockName.PROMISE:
            return _break_promise(handoff, timer, now, around)
        case ClockName.ANSWER:
            assert handoff.question is not None, "the answer clock runs for a question"
            return (_nudge(timer, handoff.question.asked, now, around),)
        case ClockName.OUTCOME:
            to = "me" if timer.fires else handoff.origin
            return (_nudge(timer, to, now, around),)
        case ClockName.STEP:
            return _step(handoff, timer, around)
        case ClockName.DEADLINE:
            return (Fact(event=events.Expired()),)
        case _:
            assert_never(timer.name)


def _step(handoff: Handoff, timer: Timer, around: Surroundings) -> Facts:
    """Carry out an escalation step. Whoever it cannot be given to, somebody is told."""
    assert timer.step is not None, "a step timer names its step"
    step = handoff.escalation[timer.step]
    to = around.step_to
    nobody = step.reassign is not None and to is None
    escalated = events.Escalated(
        step=timer.step,
        when=step.when,
        notify=step.notify or ("me" if nobody else None),
        priority=None if handoff.final else step.raise_to,
    )
    facts = (Fact(event=escalated),)
    if to is None or step.reassign is None:
        return facts
    if not handoff.final:
        moved = reassigned(
            handoff, around.step_capability, to, reason="escalated", routed=around.step_routed
        )
        return (*facts, Fact(event=moved))
    if not undecided(handoff) or around.successor is None:
        return facts
    settled = () if handoff.settled_at is not None else (Fact(event=events.Settled()),)
    return (*facts, Fact(event=events.Redriven(successor=around.successor)), *settled)


def _nudge(timer: Timer, to: str, now: int, around: Surroundings) -> Fact:
    length = min(max(timer.length_ms, 1) * 2, around.limits.rearm_ms_max)
    return Fact(
        event=events.Nudged(clock=timer.name, to=to, again_at=now + length, length_ms=length)
    )


def exhausted(handoff: Handoff, body: bytes | None = None) -> Fact:
    """Return that the last try is used up."""
    failed = events.Failed(attempt=handoff.attempt, code="attempts_exhausted")
    return Fact(event=failed, body=body)
