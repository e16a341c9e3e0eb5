"""Following handoffs: whoever waits for what happens next, until the relay stops."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Final, TypeVar

from nodrop.model.errors import CursorUnknownError
from nodrop.servers.a2a.calling.visit import View, Way

log = logging.getLogger("nodrop.a2a")

T = TypeVar("T")

LOOK_SECONDS: Final = 30
"""How long one look at the log waits; a follower then looks again."""


class Following:
    """Everybody who follows a handoff."""

    def __init__(self) -> None:
        self._closing = asyncio.Event()

    def close(self) -> None:
        """Let nobody wait any longer: the relay is about to stop."""
        self._closing.set()

    async def entries(self, way: Way, handoff_id: str, *, after: int = 0) -> AsyncGenerator[View]:
        """Yield the entries about a handoff as they are committed, until the relay stops."""
        while True:
            fields = {"handoff_id": handoff_id, "after": after, "wait": LOOK_SECONDS}
            try:
                page = await self.unless_closing(way.call("log", fields))
            except CursorUnknownError as error:
                log.warning("handoff %s is followed from its beginning: %s", handoff_id, error)
                after = 0
                continue
            if page is None:
                return
            for entry in page["entries"]:
                yield entry
            after = page["after"]

    async def unless_closing(self, call: Coroutine[Any, Any, T]) -> T | None:
        """Return what `call` returns; None once the relay stops."""
        answer = asyncio.ensure_future(call)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            await asyncio.wait({answer, closing}, return_when=asyncio.FIRST_COMPLETED)
            return answer.result() if answer.done() else None
        finally:
            for task in (answer, closing):
                task.cancel()
            await asyncio.gather(answer, closing, return_exceptions=True)
