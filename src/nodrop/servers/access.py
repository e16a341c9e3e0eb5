"""Access log: one line of `nodrop.access` for each request and each connection, where it is wanted.

A line has the path and not the query, where a wait or a cursor may be, nor any header.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nodrop.protocol.asgi import Exchange, address_of

LOG: Final = logging.getLogger("nodrop.access")


class AccessLog:
    """An ASGI application around another one, which tells what was asked and how it was answered."""

    def __init__(self, application: ASGIApp, now: Callable[[], float] = time.monotonic) -> None:
        self._application = application
        self._take: Callable[[Exchange], bool] | None = getattr(application, "take_exchange", None)
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
            method = scope.get("method", "WEBSOCKET")
            self._log(address_of(scope), method, scope["path"], began, status)

    def take_exchange(self, exchange: Exchange) -> bool:
        """Have one request answered without ASGI, and log it."""
        if self._take is None:
            return False
        path = unquote(exchange.path.decode())
        exchange.ended = partial(self._log, exchange.address, exchange.method, path, self._now())
        return self._take(exchange)

    def _log(self, address: str | None, method: str, path: str, began: float, status: int) -> None:
        took_ms = (self._now() - began) * 1_000
        LOG.info("%s %s %s %s %.0f ms", address or "-", method, path, status or "-", took_ms)
