"""Who hears of an event: the items it puts into inboxes.

An inbox is a view of the log: an item points at the entry that made it, and reading one never
consumes it. An item stays open for as long as its handoff still waits for that reader.
"""

from enum import StrEnum
from typing import Final

from nodrop.model import events
from nodrop.model.events import Event
from nodrop.model.following import next_leg, undecided
from nodrop.model.handoff import FINAL, Handoff, QuestionKind, Value


class Kind(StrEnum):
    """What an inbox item is about."""

    HANDOFF = "handoff"
    OUTCOME = "outcome"
    QUESTION = "question"
    COUNTER = "counter"
    NOTICE = "notice"
    MESSAGE = "message"


class Item(Value, frozen=True, kw_only=True):
    """One reader, one reason to look."""

    reader: str
    kind: Kind


_HANDOFF: Final = Kind.HANDOFF
_OUTCOME: Final = Kind.OUTCOME

ASIDE: Final = frozenset(
    {
        events.Delivered,
        events.Queued,
        events.QueueLapsed,
        events.Acknowledged,
        events.OutcomeDelivered,
        events.Settled,
    }
)
"""What happens to every handoff, and is in nobody's inbox."""
_FOR_THE_RECIPIENT: Final = frozenset({events.Offered, events.Ready})
ENDINGS: Final = frozenset(
    {events.Completed, events.Failed, events.Rejected, events.Expired, events.Cancelled}
)
"""What makes an outcome."""


def items(event: Event, after: Handoff) -> tuple[Item, ...]:
    """Return what `event`, which led to `after`, puts into whose inbox."""
    kind = type(event)
    if kind in _FOR_THE_RECIPIENT:
        return (Item(reader=after.recipient, kind=_HANDOFF),)
    if kind in ENDINGS:
        told: tuple[Item, ...] = ()
        # The middle of a chain has no outcome of its own to tell, the next leg takes over; nor has
        # a member of a group.
        if after.member_of is None and (not after.legs or next_leg(after) is None):
            told = (Item(reader=after.origin, kind=_OUTCOME),)
        if after.withdrawn is None and not after.watchers:
            return told
        return (*told, *_withdrawn(after), *_notices(after))
    if kind in ASIDE:
        return ()
    match event:
        case events.Returned() | events.Reassigned():
            return (Item(reader=after.recipient, kind=_HANDOFF), *_withdrawn(after))
        case events.Blocked():
            terms = event.kind is QuestionKind.TERMS
            kind = Kind.COUNTER if terms else Kind.QUESTION
            return (Item(reader=event.asked, kind=kind),)
        case events.Answered() | events.Agreed() if after.live:
            return (Item(reader=after.recipient, kind=Kind.NOTICE),)
        case events.Nudged():
            return (Item(reader=event.to, kind=Kind.NOTICE),)
        case events.Escalated():
            return (Item(reader=event.notify, kind=Kind.NOTICE),) if event.notify else ()
        case events.Updated():
            return _notices(after)
        case events.LateResultKept():
            return (Item(reader=after.origin, kind=Kind.NOTICE),)
        case _:
            return ()


def is_open(kind: Kind, entry_version: int | None, handoff: Handoff, reader: str) -> bool:
    """Whether an item still waits for `reader`."""
    match kind:
        case Kind.HANDOFF:
            return handoff.recipient == reader and handoff.state not in FINAL
        case Kind.OUTCOME:
            return handoff.final and handoff.settled_at is None
        case Kind.QUESTION | Kind.COUNTER:
            return handoff.question is not None and handoff.question.version == entry_version
        case Kind.NOTICE if _dismissed(handoff, entry_version, reader):
            return False
        case Kind.NOTICE if undecided(handoff) and _escalated_to(handoff, reader):
            return True  # the requester may have taken the outcome; this one is to decide
        case Kind.NOTICE | Kind.MESSAGE:
            return handoff.settled_at is None


def may_be_told(handoff: Handoff, reader: str) -> bool:
    """Whether there may be a notice about `handoff` in the inbox of `reader`."""
    if reader == handoff.origin or reader in handoff.asked or reader in handoff.watchers:
        return True
    asked = (handoff.question, handoff.withdrawn)
    if any(question is not None and question.asked == reader for question in asked):
        return True
    return any(notice.reader == reader for notice in handoff.notices)


def _dismissed(handoff: Handoff, entry_version: int | None, reader: str) -> bool:
    return any(
        notice.reader == reader and (entry_version or 0) <= notice.dismissed
        for notice in handoff.notices
    )


def _escalated_to(handoff: Handoff, reader: str) -> bool:
    return any(step.notify == reader for step in handoff.escalation)


def _withdrawn(after: Handoff) -> tuple[Item, ...]:
    if after.withdrawn is None:
        return ()
    return (Item(reader=after.withdrawn.asked, kind=Kind.NOTICE),)


def _notices(after: Handoff) -> tuple[Item, ...]:
    if not after.watchers:
        return ()
    return tuple(Item(reader=watcher, kind=Kind.NOTICE) for watcher in after.watchers)
