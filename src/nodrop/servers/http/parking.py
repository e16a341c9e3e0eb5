"""Requests that wait: ended by their answer, by the client going away, or by the relay's stop."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from nodrop.model.errors import UnavailableError
from nodrop.servers.http.answers import GoneError

T = TypeVar("T")


class Parking:
    """The calls whose callers are willing to wait."""

    def __init__(self) -> None:
        self._calls: set[asyncio.Task[Any]] = set()
        self.closed = False

    async def park(self, call: Coroutine[Any, Any, T], receive: Receive) -> T:
        """Return what `call` returns, unless the client leaves or the relay stops before.

        Raises:
            GoneError: the client went away.
            UnavailableError: the relay is stopping.
        """
        answer = asyncio.ensure_future(call)
        gone = asyncio.ensure_future(_disconnection(receive))
        self._calls.add(answer)
        if self.closed:
            answer.cancel()
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if answer.cancelled():
                raise UnavailableError("the relay is stopping")
            if answer.done():
                return answer.result()
            raise GoneError
        finally:
            self._calls.discard(answer)
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)
            del answer, gone, task  # their errors would hold this frame, and this frame the tasks

    def close(self) -> None:
        """Let nobody wait any longer."""
        self.closed = True
        for call in self._calls:
            call.cancel()


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
