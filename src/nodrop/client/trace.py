"""A chain as the relay traces it."""

from typing import Any

import msgspec

from nodrop.client.handoff import Handoff
from nodrop.client.shown import Shown
from nodrop.client.transports.calls import Calls


class Did(Shown, frozen=True, kw_only=True):
    """Something that the relay did about a break."""

    seq: int
    at: str
    what: str


class Break(Shown, frozen=True, kw_only=True):
    """Where a chain broke, or is late: the leg, who had it, who owes the move, and by which clock."""

    id: str
    ref: str
    kind: str
    leg: int
    legs: int
    agent: str
    state: str
    at: str
    code: str | None = None
    reason: str | None = None
    holder: str | None = None
    clock: str | None = None
    did: tuple[Did, ...] = ()


class Trace(list[Handoff]):
    """Every handoff of a chain, oldest first."""

    def __init__(self, answer: dict[str, Any], calls: Calls) -> None:
        super().__init__(Handoff(view, calls) for view in answer["handoffs"])
        self.view = answer
        """The whole answer, as it came."""
        self.state: str = answer["state"]
        """open, late, broken, completed or cancelled."""
        self.breaks = msgspec.convert(answer["breaks"], tuple[Break, ...])
        """Where it broke, or is late."""
