"""Orphaned chains: work that nobody carries on, and the leg where it stopped."""

from typing import Final

from nodrop.analysis.findings import Finding, Found, Severity, TooLittle
from nodrop.analysis.record import (
    ACCEPTED,
    ASKED,
    CANCELLED,
    COMPLETED,
    EXPIRED,
    NONE,
    OFFERED,
    RETURNED,
    Record,
)

GRACE: Final = 0.25
"""Of the time that was given, on top of it: a relay acts at the deadline, not before."""
OUTCOME_MS: Final = 24 * 3_600_000
"""How long an outcome may wait for its requester where the log does not say."""


def detect(record: Record) -> Found:
    """Return the handoffs at which a chain stopped."""
    found = Found(tested=len(record.chains))
    if not record.has_deadlines and len(record.handoffs):
        found.too_little.append(
            TooLittle(
                detector="orphan",
                subject="log",
                why="no handoff has a deadline, so no silence is too long",
            )
        )
        return found
    h, end = record.handoffs, record.last_at
    for handoff in range(len(h)):
        why = _why(record, handoff, end)
        if why is not None:
            found.findings.append(_finding(record, handoff, why, end))
    return found


def _why(record: Record, handoff: int, end: int) -> str | None:
    h = record.handoffs
    if h["settled_at"][handoff] != NONE or h["decided"][handoff]:
        return None
    if h["ended_at"][handoff] == NONE:
        deadline = h["deadline"][handoff]
        if deadline == NONE:
            return None
        patience = GRACE * max(deadline - h["offered_at"][handoff], 0)
        if end < deadline + patience or h["last_at"][handoff] > deadline:
            return None
        return _silent(record, handoff)
    if h["outcome"][handoff] == CANCELLED:
        return None
    given = h["outcome_ms"][handoff] if h["outcome_ms"][handoff] != NONE else OUTCOME_MS
    if end < h["ended_at"][handoff] + given * (1 + GRACE):
        return None
    if h["outcome"][handoff] == COMPLETED:
        return f"{_sender(record, handoff)} never collected the result"
    if h["outcome"][handoff] == EXPIRED:
        return f"{_silent(record, handoff)} until the deadline; nobody decided since"
    return f"it ended without success, and {_sender(record, handoff)} never decided"


def _silent(record: Record, handoff: int) -> str:
    h = record.handoffs
    whom = record.agents[h["recipient"][handoff]]
    stage = h["stage"][handoff]
    if stage in {OFFERED, RETURNED}:
        return f"it waits in the inbox of {whom}, and was never taken"
    if stage == ASKED:
        return f"{whom} asked, and {_sender(record, handoff)} never answered"
    if stage == ACCEPTED:
        return f"{whom} took it on, and nothing came"
    return f"it was sent to {whom}, which never answered"


def _sender(record: Record, handoff: int) -> str:
    return record.agents[record.handoffs["sender"][handoff]]


def _responsible(record: Record, handoff: int, why: str) -> str:
    h = record.handoffs
    by_sender = f"{_sender(record, handoff)} never" in why
    return record.agents[h["sender" if by_sender else "recipient"][handoff]]


def _finding(record: Record, handoff: int, why: str, end: int) -> Finding:
    h = record.handoffs
    idle = end - h["last_at"][handoff]
    in_queue = h["stage"][handoff] in {OFFERED, RETURNED} and h["ended_at"][handoff] == NONE
    ref = record.ids[handoff]
    return Finding(
        detector="orphan",
        # What was never taken is the queue's trouble, which the detector of bottlenecks tells once.
        severity=Severity.LOW if in_queue else Severity.MEDIUM,
        subject=record.chains[h["chain"][handoff]],
        agents=(_responsible(record, handoff, why),),
        says=f"the chain stopped at {ref}: {why}",
        effect={"idle_hours": round(idle / 3_600_000, 2)},
        tested=f"open past its deadline and {GRACE:.0%} of its time, or ended and not collected",
        benign=("the relay was stopped before the deadline", "it was settled outside of the relay"),
        evidence=(h["offered_seq"][handoff], h["last_seq"][handoff]),
        entries=2,
        since=h["last_at"][handoff],
        until=end,
        action=f"nodrop trace {ref}",
    )
