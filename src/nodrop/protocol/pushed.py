"""An offer whose outcome the relay pushes, as a transport hands it to the SDK."""

import asyncio
from typing import Any

import msgspec

from nodrop.protocol.views import OfferedView


class Outcome(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a handoff ended."""

    state: str
    at: str
    by: str
    code: str | None = None
    reason: str | None = None
    result: Any = None
    verified: bool = False


class Brief(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What is needed at once of a handoff that was stored, or has ended."""

    id: str
    state: str = ""
    origin: str = ""
    next_leg: str | None = None
    settled_at: str | None = None


class Ended(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An outcome as it was pushed."""

    brief: Brief | OfferedView
    handoff: Any
    """The handoff that ended: JSON, or what is written as such."""
    outcome: Outcome


class Followed:
    """The outcome of an offer, for any number of callers who wait until the relay pushes it."""

    __slots__ = ("_waiting", "done", "ended")

    def __init__(self) -> None:
        self.done = False
        self.ended: Ended | None = None
        """None where it has to be asked for."""
        self._waiting: list[asyncio.Future[None]] = []

    def end(self, ended: Ended | None) -> None:
        """Tell those who wait. Only the first time counts."""
        if self.done:
            return
        self.done, self.ended = True, ended
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def wait(self, seconds: float | None) -> bool:
        """Return whether it is done: once it is, or the time is up."""
        if self.done:
            return True
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiting)
        try:
            await waiting
            return self.done
        finally:
            self._waiting.remove(waiting)
            if timer is not None:
                timer.cancel()


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Stored(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to an offer that is followed."""

    brief: Brief | OfferedView
    answer: Any
    """As a whole: JSON, or what is written as such."""
    followed: Followed | None
    """The outcome, once the relay has pushed it; None: it has to be asked for."""
