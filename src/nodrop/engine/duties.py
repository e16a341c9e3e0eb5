"""Duties: what one of several engines on a store does for all, such as sending an inbox on."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from nodrop.store import Fleet

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

    async def pause(self, changed: asyncio.Event) -> None:
        """Return when `changed` is set, or when it is time to claim again.

        Another engine may have gone, and left what it did to whoever asks for it.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(None if self._fleet is None else CLAIM_SECONDS):
                await changed.wait()
