"""Access log: one line of `nodrop.access` for each request and each connection, where it is wanted.

A line has the path and not the query, where a wait or a cursor may be, nor any header.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodrop.protocol.asgi import address_of

LOG: Final = logging.getLogger("nodrop.access")


class AccessLog:
    """An ASGI application around another one, which tells what was asked and how it was answered."""

    def __init__(self, application: ASGIApp, now: Callable[[], float] = time.monotonic) -> None:
        self._application = application
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have one request answered, and log it."""
        began, status = self._now(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._application(scope, receive, noting)
        finally:
            LOG.info(
                "%s %s %s %s %.0f ms",
                address_of(scope) or "-",
                scope.get("method", "WEBSOCKET"),
                scope["path"],
                status or "-",
                (self._now() - began) * 1_000,
            )
