"""Handoffs without a relay: events folded as the machine folds them, and the entries they make.

For tests of what keeps or shows handoffs. Nothing here decides: a test that wants to know what a
command leads to asks `model.machine`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from nodrop.log.port import Changes, row_of
from nodrop.model import machine, mail
from nodrop.model.events import Event, Offered
from nodrop.model.handoff import Backoff, Handoff, Priority, Terms
from nodrop.model.limits import DEFAULT
from nodrop.protocol import events as wire_events
from nodrop.protocol.entries import Draft
from nodrop.testing.clock import T0

TEAM: Final = "default"
SENDER: Final = "inbox_monitor"
RECIPIENT: Final = "code_agent"


def handoff_id(number: int) -> str:
    """Return an id in the form of a UUIDv7; a greater number gives a later id."""
    return f"{T0 + number:012x}"[:8] + f"-{(T0 + number) & 0xFFFF:04x}-7000-8000-{number:012x}"


def terms(**changes: Any) -> Terms:
    """Return the protocol's default terms with `changes`."""
    standard: dict[str, Any] = {
        "priority": Priority.MEDIUM,
        "accept_within_ms": DEFAULT.accept_within_ms,
        "update_every_ms": DEFAULT.update_every_ms,
        "deadline_at": T0 + DEFAULT.deadline_ms,
        "answer_within_ms": DEFAULT.answer_within_ms,
        "outcome_within_ms": DEFAULT.outcome_within_ms,
        "attempts_max": DEFAULT.attempts_max,
        "backoff": Backoff(first_ms=DEFAULT.backoff_first_ms, factor_percent=200, max_ms=300_000),
    }
    return Terms(**{**standard, **changes})


def offered(**changes: Any) -> Offered:
    """Return the least offer there can be, from `SENDER` to `RECIPIENT`, with `changes`."""
    standard: dict[str, Any] = {
        "sender": SENDER,
        "origin": changes.get("sender", SENDER),
        "recipient": RECIPIENT,
        "terms": terms(),
        "correlation_id": "chain",
    }
    return Offered(**{**standard, **changes})


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff, and the entries that tell how it came to be."""

    handoff: Handoff
    entries: tuple[Draft, ...]

    @property
    def changes(self) -> Changes:
        """What a relay would write of it."""
        return Changes(entries=self.entries, rows=(row_of(self.handoff),))


def story(
    *events: Event,
    number: int = 1,
    team: str = TEAM,
    at: int = T0,
    by: str = SENDER,
    command_id: str | None = None,
    bodies: Mapping[int, bytes] | None = None,
    after: Handoff | None = None,
) -> Story:
    """Fold `events` onto `after`, or into the new handoff of that `number`.

    `bodies` are by the version of the event that brings them.
    """
    handoff, drafts = after, list[Draft]()
    named = handoff.id if handoff else handoff_id(number)
    for event in events:
        handoff = machine.evolve(handoff, event, team=team, handoff_id=named, by=by, at=at)
        name, data = wire_events.encode(event)
        drafts.append(
            Draft(
                team=team,
                at=at,
                type=name,
                actor=by,
                handoff_id=named,
                version=handoff.version,
                correlation_id=handoff.correlation_id,
                command_id=command_id,
                data=msgspec.Raw(data),
                body=(bodies or {}).get(handoff.version),
                mail=tuple((item.reader, item.kind.value) for item in mail.items(event, handoff)),
            )
        )
    assert handoff is not None, "a story has at least one event"
    return Story(handoff=handoff, entries=tuple(drafts))
