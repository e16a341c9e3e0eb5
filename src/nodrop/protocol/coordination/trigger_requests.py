"""What callers may send about events, and the rules that make handoffs of them."""

from typing import Any

from nodrop.protocol.requests import Command, Offer, Request


class Emit(Command, frozen=True, kw_only=True):
    """Tell of an event. The same id again is the same event."""

    type: str
    event_id: str | None = None
    source: str | None = None
    data: Any = None


class PutTrigger(Command, frozen=True, kw_only=True):
    """A rule: when an event of type `on` meets `when`, `offer` is handed off, once per event id."""

    on: str
    """A type, or the beginning of one followed by `*`."""
    when: str = "true"
    """A condition in CEL over `event`: its `id`, `type`, `source`, `at` and `data`."""
    offer: Offer
    """Title, payload and other words are templates over `event`."""
    from_file: bool = False


class RemoveTrigger(Command, frozen=True, kw_only=True):
    """Take a rule away."""


class TestTrigger(Request, frozen=True, kw_only=True):
    """What a rule, stored or sent along, would have made of past events."""

    trigger: str | None = None
    rule: PutTrigger | None = None
    after: int = 0
    limit: int | None = None


class ListTriggers(Request, frozen=True, kw_only=True):
    """The rules of the team."""
