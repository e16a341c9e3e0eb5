"""The gate before every networked door: requests must name this relay, pages must come from it.

A web page that the user has open elsewhere can reach a relay on loopback: by a name of its own
that it lets resolve to 127.0.0.1 (DNS rebinding), or by a plain cross-site request. The first
shows in `Host`, the second in `Origin`. Who is asking, and for what, is for the doors behind.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from nodrop.model.errors import ForbiddenError, InvalidRequestError, NodropError
from nodrop.protocol.asgi import Exchange, Header, address_of, refuse

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
MCP_PATH: Final = "/mcp"
_OPERATIONS: Final = b"/v1/"
_A2A_PATHS: Final = re.compile(r"(?:/teams/[^/]+)?/agents/|/\.well-known/|/a2a(?:/|$)|/search$")
_MANIFEST_PATH: Final = re.compile(r"(?:/teams/[^/]+)?/agents/[^/]+")
"""A2A posts here; whoever reads it asks for the agent's manifest."""
_POLICY_VIOLATION: Final = 1008
_CLOSE: Final = (b"connection", b"close")


class Gate:
    """One ASGI application: HTTP and WebSocket requests that may come in, to the door they want."""

    def __init__(
        self,
        *,
        http: ASGIApp,
        websocket: ASGIApp,
        mcp: ASGIApp | None = None,
        a2a: ASGIApp | None = None,
        hosts: Collection[str] = LOOPBACK,
        addresses: bool = False,
        origins: Collection[str] = (),
        refused: Callable[[NodropError, str | None], None] = lambda _error, _address: None,
    ) -> None:
        """Let in what names one of `hosts`.

        With `addresses` any bare IP address will do, for a relay that listens on all of its own:
        an address cannot be rebound. Pages of this relay's own origin may call it, and pages of
        `origins`. `refused` hears of what is turned away, and where it came from.
        """
        self._doors = {"http": http, "websocket": websocket, "mcp": mcp or http, "a2a": a2a or http}
        self._take: Callable[[Exchange], bool] | None = getattr(http, "take_exchange", None)
        self._hosts = frozenset(host.lower() for host in hosts)
        self._addresses = addresses
        self._origins = frozenset(origins)
        self._refused = refused
        self._let_in: set[bytes] = set()
        """`Host` headers that were found to name this relay, so many that are asked for over and over."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of ASGI."""
        door = self._doors[_kind(scope)]
        error = self._why_not(dict(scope["headers"]), scope["headers"])
        if error is None:
            await door(scope, receive, send)
            return
        self._refused(error, address_of(scope))
        # 422, as elsewhere, is for what was understood.
        status = HTTPStatus.BAD_REQUEST if isinstance(error, InvalidRequestError) else None
        await _turn_away(scope, send, error, status=status)

    def take_exchange(self, exchange: Exchange) -> bool:
        """Let an operation in without ASGI, by which everything else comes, and is refused."""
        if self._take is None or not exchange.path.startswith(_OPERATIONS):
            return False
        headers, pairs = exchange.headers, exchange.pairs
        plain = len(headers) == len(pairs) and b"origin" not in headers
        if not (plain and headers.get(b"host") in self._let_in):
            if self._why_not(headers, pairs) is not None:
                return False
            if len(self._let_in) < _KNOWN_HOSTS_MAX:
                self._let_in.add(headers.get(b"host", b""))
        return self._take(exchange)

    def _why_not(
        self, headers: Mapping[bytes, bytes], pairs: Collection[Header]
    ) -> NodropError | None:
        """Return why a request may not come in, if it may not."""
        host, origin = headers.get(b"host", b""), headers.get(b"origin")
        if len(headers) != len(pairs) and (twice := _said_twice(pairs)):
            why = f"the header {twice} is there more than once"
            error: NodropError = InvalidRequestError(why, next_step="Send it once.")
            error.suspect = "header_twice"
        elif not self._names_this_relay(host):
            why = f"the host {_shown(host)} is not a name of this relay"
            how = "Use an address that the relay listens on, or start it with this host allowed."
            error = ForbiddenError(why, next_step=how)
            error.suspect = "foreign_host"
        elif origin is not None and not self._is_own_page(origin, host):
            why = f"pages of {_shown(origin)} may not call this relay"
            how = "Open the relay's own address, or start it with this origin allowed."
            error = ForbiddenError(why, next_step=how)
            error.suspect = "foreign_origin"
        else:
            return None
        return error

    def _names_this_relay(self, host: bytes) -> bool:
        name = _name_in(host)
        return name in self._hosts or (self._addresses and _is_address(name))

    def _is_own_page(self, origin: bytes, host: bytes) -> bool:
        text = origin.decode("latin-1").lower()
        return text in self._origins or text in {f"{s}://{_shown(host)}" for s in _SCHEMES}


def _kind(scope: Scope) -> str:
    """Return the door that a connection wants."""
    path: str = scope["path"]
    if scope["type"] != "http" or path.startswith(
        _OPERATIONS.decode()
    ):  # most are for these, and pass at once
        return scope["type"]
    if path == MCP_PATH:
        return "mcp"
    if scope["method"] in {"GET", "HEAD"} and _MANIFEST_PATH.fullmatch(path):
        return "http"
    return "a2a" if _A2A_PATHS.match(path) else "http"


_SCHEMES: Final = ("http", "https")
_SAID_ONCE: Final = frozenset(
    {
        b"host",
        b"origin",
        b"authorization",
        b"idempotency-key",
        b"content-type",
        b"content-encoding",
        b"last-event-id",
    }
)
"""Headers of which there is one: with two, whoever looks may see another than we do."""
_KNOWN_HOSTS_MAX: Final = 256
_HOST: Final = re.compile(rb"(?:\[([0-9A-Fa-f:.]+)\]|([0-9A-Za-z._-]+))(?::[0-9]{1,5})?")


def _name_in(host: bytes) -> str:
    """Return the name in a `Host` header, without the port; an empty one if there is none."""
    parts = _HOST.fullmatch(host)
    return (parts[1] or parts[2]).decode().lower() if parts else ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _said_twice(pairs: Collection[Header]) -> str | None:
    names = Counter(name for name, _ in pairs if name in _SAID_ONCE)
    return next((name.decode() for name, count in names.items() if count > 1), None)


def _shown(header: bytes) -> str:
    return header.decode("latin-1")[:200].lower()


async def _turn_away(
    scope: Scope, send: Send, error: NodropError, *, status: int | None = None
) -> None:
    if scope["type"] == "http":
        await refuse(send, error, status=status, headers=[_CLOSE])
    elif (kind := "websocket.http.response") in scope.get("extensions", {}):
        await refuse(send, error, status=status, headers=[_CLOSE], kind=kind)
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
