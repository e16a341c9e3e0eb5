"""Duties: what one of several engines on a store does for all, such as sending an inbox on."""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Final

from nodrop.log.port import Fleet
from nodrop.model.errors import NodropError

log = logging.getLogger("nodrop.relay")

CLAIM_SECONDS: Final = 1.0
"""How often engines that share a store see who does what. By the time that really passes, like the
waits of a connection."""


class Duties:
    """Which of them fall to this engine."""

    def __init__(self, fleet: Fleet | None = None) -> None:
        self._fleet = fleet

    async def claim(self, duties: Collection[str]) -> Collection[str]:
        """Return those of `duties` that are this engine's to do, and no other's that serves."""
        if self._fleet is None or not duties:
            return duties
        return await self._fleet.claim(duties)

    async def hold(self, duty: str, do: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something for as long as it is this engine's to do, from the start each time."""
        doing: asyncio.Task[None] | None = None
        try:
            while True:
                try:
                    mine = bool(await self.claim((duty,)))
                except NodropError as error:
                    log.warning("whose duty %s is is not known: %s", duty, error)
                else:
                    doing = await _turned(doing, do if mine else None)
                await self.pause(asyncio.Event())
        finally:
            await _turned(doing, None)

    async def pause(self, changed: asyncio.Event, *, failed: bool = False) -> None:
        """Return when `changed` is set, or when it is time to claim again, or to try again.

        Another engine may have gone, and left what it did to whoever asks for it.
        """
        alone = self._fleet is None and not failed
        with suppress(TimeoutError):
            async with asyncio.timeout(None if alone else CLAIM_SECONDS):
                await changed.wait()


async def _turned(
    doing: asyncio.Task[None] | None, do: Callable[[], Coroutine[Any, Any, None]] | None
) -> asyncio.Task[None] | None:
    """Return what is being done from now on."""
    if doing is None:
        return None if do is None else asyncio.create_task(do())
    if do is None:
        doing.cancel()
        await asyncio.gather(doing, return_exceptions=True)
        return None
    return doing
