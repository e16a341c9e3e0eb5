"""Where the relay may send things by itself: public addresses, and those an operator allowed.

Whoever names an address for the relay to call could otherwise reach what only the relay can reach.
It is looked at when it is named, so that the caller hears of it, and again by whoever connects, to
the very address that is connected to: a name may lead elsewhere by then.
"""

import asyncio
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpcore
import httpx

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.addresses import is_public

_SCHEMES: Final = {"http": 80, "https": 443}
_URL_CHARS_MAX: Final = 2_000
_CONNECTIONS_MAX: Final = 100
_ANSWER_BYTES_MAX: Final = 8 * 1_048_576
"""Of one answer, or of one stream until it is opened again."""


class Addresses:
    """What may be called."""

    def __init__(self, allowed: Collection[str] = ()) -> None:
        """Allow public addresses, and `allowed`: HOST, or HOST:PORT, as an operator wrote it."""
        self._allowed = frozenset(name.lower() for name in allowed)

    def also(self, url: str) -> "Addresses":
        """Return the same with the host and port of `url` allowed, as an operator said."""
        host, port = _place(url)
        return Addresses({*self._allowed, f"{host}:{port}"})

    async def check(self, url: str, *, path: str) -> None:
        """Refuse an address that would not be called.

        Raises:
            InvalidRequestError: it is no address, or a private one.
        """
        try:
            host, port = _place(url)
        except ValueError as error:
            raise _wrong(path, str(error)) from None
        if self._is_allowed(host, port):
            return
        try:
            found = await _resolve(host, port)
        except OSError:
            return  # it leads nowhere today; whoever connects looks again
        if not _public(found):
            raise _wrong(path, f"{host} is not a public address, and no operator has allowed it")

    def client(self, *, timeout_seconds: float, **named: Any) -> httpx.AsyncClient:
        """Return a client that connects to nothing else, follows nobody and asks no proxy."""
        timeout = httpx.Timeout(timeout_seconds)
        transport = _Transport(_Guard(self))
        return httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False, **named)

    async def pick(self, host: str, port: int) -> str:
        """Return the address to connect to.

        Raises:
            OSError: there is none that may be.
        """
        found = await _resolve(host, port)
        if not self._is_allowed(host, port) and not _public(found):
            raise OSError(f"{host} is not a public address")
        return found[0]

    def _is_allowed(self, host: str, port: int) -> bool:
        return host in self._allowed or f"{host}:{port}" in self._allowed


class _Guard(httpcore.AsyncNetworkBackend):
    """Connects to what was looked at, and to nothing else."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses
        # Its type is another one where anyio is missing, which it is not.
        self._inner = cast("httpcore.AsyncNetworkBackend", httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  # the base class's own
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        try:
            address = await self._addresses.pick(host, port)
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Bounded(httpx.AsyncByteStream):
    """A body that is read so far and no further, whoever sends it."""

    def __init__(self, inner: httpx.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._inner:
            size += len(chunk)
            if size > _ANSWER_BYTES_MAX:
                raise httpx.ReadError(f"more than {_ANSWER_BYTES_MAX} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Transport(httpx.AsyncHTTPTransport):
    """httpx's own, with our way of connecting, for which it has no argument."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await super().handle_async_request(request)
        assert isinstance(answer.stream, httpx.AsyncByteStream), "the asynchronous transport's"
        answer.stream = _Bounded(answer.stream)
        return answer

    def __init__(self, guard: _Guard) -> None:
        super().__init__(verify=_trust())
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=_trust(),
            max_connections=_CONNECTIONS_MAX,
            network_backend=guard,
        )


@functools.cache
def _trust() -> ssl.SSLContext:
    """Return whom the system trusts; reading that takes a tenth of a second."""
    return ssl.create_default_context()


def _place(url: str) -> tuple[str, int]:
    if len(url) > _URL_CHARS_MAX or not url.isascii() or not url.isprintable():
        raise ValueError(f"expected at most {_URL_CHARS_MAX} printable ASCII characters")
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.username is not None:
        raise ValueError("expected http(s)://HOST[:PORT]/… without a user")
    return parts.hostname.lower(), parts.port or _SCHEMES[parts.scheme]


async def _resolve(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


def _public(found: list[str]) -> bool:
    """Whether all of them are: one private address among them is enough to be led astray."""
    return bool(found) and all(map(is_public, found))


def _wrong(path: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {message}", errors=(Problem(path=path, message=message),))
