"""The socket under the networked doors: uvicorn, held to the relay's bounds and its own end.

Serves whatever ASGI application it is given and knows none of the doors.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import uvicorn
from starlette.types import ASGIApp

from nodrop.core.errors import UnavailableError

_SHUTDOWN_SECONDS_MAX: Final = 5
_PING_SECONDS: Final = 15.0
"""A connection that answers no ping for so long again is gone: noticed within 30 s."""
_KEEP_ALIVE_SECONDS: Final = 75
"""Longer than clients keep an idle connection, so that they never meet a closing one."""
_UNREAD_MS_MAX: Final = 30_000
"""How long sent bytes may stay unread before the kernel gives a connection up."""

_REACHED_BY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # looked up, not bound to
ANY_ADDRESS: Final = frozenset(_REACHED_BY)


class TLS(msgspec.Struct, frozen=True, kw_only=True):
    """What a relay proves its name with."""

    certificate: Path
    key: Path


@asynccontextmanager
async def listen(
    application: ASGIApp,
    *,
    host: str,
    port: int,
    frame_bytes_max: int,
    tls: TLS | None = None,
    before_shutdown: Callable[[], None] = lambda: None,
) -> AsyncGenerator[str]:
    """Serve `application`; yields its address once it can be reached. Port 0 is any free one.

    At the end nothing new is let in, `before_shutdown` is called so that waiting requests can be
    answered, and those that run are given a few seconds.

    Raises:
        UnavailableError: the address cannot be listened on, or the certificate not used.
    """
    listener = _bind(host, port)
    config = uvicorn.Config(
        application,
        interface="asgi3",
        http="httptools",
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws_max_size=frame_bytes_max,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PING_SECONDS,
        ws_per_message_deflate=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS_MAX,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    try:
        config.load()
    except OSError as error:
        listener.close()
        raise UnavailableError(f"the certificate cannot be used: {error}") from None
    url = _url(host, listener.getsockname()[1], tls)
    server = _Server(config, before_shutdown)
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="nodrop doors")
    try:
        await asyncio.wait({serving, server.up}, return_when=asyncio.FIRST_COMPLETED)
        if server.up.done():
            yield url
    finally:
        server.should_exit = True
        await serving  # which also tells what kept it from listening


class _Server(uvicorn.Server):
    """uvicorn that says when it is up, and leaves signals to those who know what else must end."""

    def __init__(self, config: uvicorn.Config, before_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._before_shutdown = before_shutdown

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none: uvicorn would raise them again before the store is closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        await super().startup(sockets)
        self.up.set_result(None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer what waits, and wait for what runs."""
        self._before_shutdown()
        await super().shutdown(sockets)


def _bind(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        listener = socket.create_server(address, family=family)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            next_step="Stop what listens there, or choose another address.",
        ) from None
    if sys.platform == "linux":  # inherited by every connection
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS_MAX)
    return listener


def _url(host: str, port: int, tls: TLS | None) -> str:
    name = _REACHED_BY.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"
