"""What callers may send about outlets: places outside the relay that hear of an agent's inbox."""

from nodrop.protocol.requests import Command, Request
from nodrop.protocol.view import View


class PutOutlet(Command, frozen=True, kw_only=True):
    """Have what comes into an inbox sent on, each item at least once and with a stable id."""

    url: str
    kind: str = "webhook"
    """`webhook`: posted and signed (Standard Webhooks). `notify`: told to a person, by Apprise."""
    inbox: str | None = None
    """Whose; the caller's own by default."""
    kinds: tuple[str, ...] = ()
    """Only these kinds of items; all by default."""
    secret: str | None = None
    """What webhooks are signed with; one is made by default."""
    allow_private: bool = False
    """It may lead to an address that is not public. For operators."""
    test: bool = False
    """Send something at once, to see whether it arrives."""


class RemoveOutlet(Command, frozen=True, kw_only=True):
    """Send nothing there any more."""


class ListOutlets(Request, frozen=True, kw_only=True):
    """Where the inboxes that the caller may look after are sent to."""


class OutletView(View, frozen=True, kw_only=True):
    """An outlet, without its secrets."""

    name: str
    kind: str
    agent: str
    place: str
    kinds: tuple[str, ...]
    after: int
    """Everything up to here was sent, or given up on."""
    sent: int
    given_up: int
    failing: str | None
    """Why the last try did not work out; None: it did."""


class OutletAnswer(View, frozen=True, kw_only=True):
    """An outlet; the secret is told once, when it is made."""

    outlet: OutletView
    secret: str | None = None


class OutletsAnswer(View, frozen=True, kw_only=True):
    """Outlets."""

    outlets: tuple[OutletView, ...]


ANSWERS: dict[str, type[View]] = {"outlet": OutletAnswer, "outlets": OutletsAnswer}
"""The answer shapes that `protocol.operations` names."""
