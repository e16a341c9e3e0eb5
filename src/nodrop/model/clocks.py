"""Clock arithmetic: which clocks run on a handoff, and the one due time.

The lease of a process with a heartbeat is not here: heartbeats are not events, so its end is the
engine's knowledge and is handed in where a due time is told to somebody.
"""

from collections.abc import Iterable
from typing import Final

from nodrop.model.handoff import (
    Backoff,
    ClockName,
    Escalation,
    Handoff,
    Priority,
    Rung,
    Timer,
    When,
)
from nodrop.model.limits import HOUR, Limits

HEAD_START_MS: Final[dict[Priority, int]] = {
    Priority.URGENT: 4 * HOUR,
    Priority.HIGH: 2 * HOUR,
    Priority.MEDIUM: HOUR,
    Priority.LOW: 0,
}
"""How much older than it is a handoff counts in the queue. Because it is a head start and not a
class of its own, everything else grows old enough in the end: nothing starves."""

_STEP: Final = ClockName.STEP
"""Named once: Python 3.11 looks a member of an enum up by a hook of its class, which takes long."""
_SIGNS: Final = frozenset({Rung.DELIVERED, Rung.ACKNOWLEDGED})


def rank(handoff: Handoff) -> int:
    """Return the place in the recipient's queue: the smallest is taken first."""
    return handoff.stored_at - HEAD_START_MS[handoff.terms.priority]


def due_at(handoff: Handoff, lease_until: int | None = None) -> int | None:
    """Return when the relay acts next if nobody else does; None once nothing is owed."""
    due = lease_until if handoff.live else None
    for timer in handoff.timers:
        if due is None or timer.at < due:
            due = timer.at
    return due


def owed_at(handoff: Handoff) -> int | None:
    """Return by when the holder owes its next move; None once the handoff has ended.

    Unlike `due_at` it does not move when a reminder is sent or a heartbeat comes: in the past, the
    holder is late since then.
    """
    terms = handoff.terms
    if handoff.outcome is not None:
        return None
    if handoff.question is not None:
        owed = handoff.question.asked_at + terms.answer_within_ms
    elif handoff.queued is not None and handoff.queued.next_update_at is not None:
        owed = handoff.queued.next_update_at
    elif handoff.ack is not None and handoff.ack.next_update_at is not None:
        owed = handoff.ack.next_update_at
    else:
        retry = running(handoff, ClockName.RETRY)
        owed = (retry.at if retry else handoff.offered_at) + terms.accept_within_ms
    return min(owed, terms.deadline_at)


def ran_out(handoff: Handoff, now: int) -> Timer | None:
    """Return the clock to act on, if any ran out.

    The first that did; but a deadline before everything else, because it is a time and not a length.
    """
    out = (t for t in handoff.timers if t.at <= now)
    return min(out, key=lambda t: (t.name is not ClockName.DEADLINE, t.at), default=None)


def lease_until(handoff: Handoff, seen_at: int, limits: Limits, *, now: int) -> int | None:
    """Return when the process last seen at `seen_at` loses this delivery.

    Being delivered and acknowledged are signs of life as well, for this one delivery; not if they
    lie in the future, though: then the clock was set back since.
    """
    if not handoff.live or handoff.heartbeat_ms is None:
        return None
    missed = limits.lease_heartbeats if handoff.ack else limits.lease_heartbeats_unacknowledged
    last, attempt = seen_at, handoff.attempt
    for receipt in handoff.receipts:
        if receipt.attempt == attempt and last < receipt.at <= now and receipt.rung in _SIGNS:
            last = receipt.at
    if handoff.ack is not None and handoff.ack.at is not None and last < handoff.ack.at <= now:
        last = handoff.ack.at
    return last + missed * handoff.heartbeat_ms


def backoff_ms(backoff: Backoff, tries: int) -> int:
    """Return how long the retry after `tries` used tries waits."""
    factor = min((backoff.factor_percent / 100) ** max(tries - 1, 0), 1e12)
    return int(min(backoff.first_ms * factor, backoff.max_ms))


def retry_wait_ms(handoff: Handoff, budget_ms: int) -> int:
    """Return how long the next try waits: its backoff, or longer if the retry budget says so."""
    return max(backoff_ms(handoff.terms.backoff, handoff.tries + 1), budget_ms)


def running(handoff: Handoff, name: ClockName) -> Timer | None:
    """Return the clock called `name` if it runs."""
    for timer in handoff.timers:
        if timer.name is name:
            return timer
    return None


def armed(timers: Iterable[Timer], *added: Timer) -> tuple[Timer, ...]:
    """Return `timers` with `added`, each taking the place of its namesake."""
    for new in added:
        name, step = new.name, new.step
        timers = (*[t for t in timers if t.name is not name or t.step != step], new)
    return tuple(timers)


def disarmed(timers: Iterable[Timer], *names: ClockName) -> tuple[Timer, ...]:
    """Return `timers` without those called `names`."""
    return tuple([t for t in timers if t.name not in names])


def steps_begun(steps: tuple[Escalation, ...], when: When, since: int) -> tuple[Timer, ...]:
    """Return the clocks of the escalation steps of an episode that began at `since`."""
    begun: tuple[Timer, ...] = ()
    for index, step in enumerate(steps):
        if step.when is when:
            length = step.after_ms
            begun += (Timer(name=_STEP, at=since + length, length_ms=length, step=index),)
    return begun


def steps_armed(
    timers: tuple[Timer, ...], steps: tuple[Escalation, ...], when: When, *, since: int
) -> tuple[Timer, ...]:
    """Return `timers` with the clocks of an episode that began at `since`, anew where they run."""
    return armed(timers, *steps_begun(steps, when, since))


def steps_disarmed(
    timers: Iterable[Timer], steps: tuple[Escalation, ...], *whens: When
) -> tuple[Timer, ...]:
    """Return `timers` without the steps of episodes that are over."""
    return tuple([t for t in timers if t.step is None or steps[t.step].when not in whens])
