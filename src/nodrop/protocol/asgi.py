"""What every door on ASGI reads and says alike: whose token came, from where, and why not.

Doors do not know each other, so this is no door's. It takes the mappings and messages of ASGI as
they are, and no framework. What passes most often passes beside ASGI: `Channel` and `Exchange`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from nodrop.model.errors import NodropError, UnauthenticatedError, forget_frames
from nodrop.protocol.errors import document, retry_after

Header = tuple[bytes, bytes]
Headers = dict[bytes, bytes]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[MutableMapping[str, Any], Any, Send], Awaitable[None]]

PROVE: Final = "nodrop.prove"
"""The ASGI extension by which a listener is told whose token came over a connection."""
CHANNEL: Final = "nodrop.channel"
"""The ASGI extension by which WebSocket messages come and go without a task: a `Channel`."""

_PROBLEM: Final[Header] = (b"content-type", b"application/problem+json")
_CHALLENGE: Final[Header] = (b"www-authenticate", b"Bearer")


class Channel(Protocol):
    """A WebSocket as its listener has it."""

    @property
    def can_write(self) -> bool:
        """Whether the client has read what was sent, all but a little."""
        ...

    def write(self, messages: Sequence[bytes]) -> None:
        """Send texts, each as one message. A connection that ended takes them and sends nothing."""
        ...

    def attach(self, take: Callable[[bytes], bool], drained: Callable[[], None]) -> None:
        """Pass messages to `take` while the application waits in `receive`, which gets those refused.

        `drained` is called when `can_write` becomes true again.
        """
        ...

    def detach(self) -> None:
        """Call neither any more."""
        ...


class Exchange(ABC):
    """An HTTP request that arrived whole, and its answer, without the events of ASGI.

    An application that has a method `take_exchange` is given it first. False: nothing was done with it, and it
    comes again by ASGI. True: it is answered once, then or later.
    """

    method: str
    path: bytes
    query: bytes
    pairs: Sequence[Header]
    headers: Headers
    """The same by name. Of those that were sent twice, the last."""
    body: bytes
    """Until `take_exchange` returns."""
    known: Any
    """What was last told by `prove` over the same connection; None: nothing, or it may not be so now."""
    left: Callable[[], None] | None = None
    """Called if the client leaves before it is answered."""
    ended: Callable[[int], None] | None = None
    """Called with the status of the answer; 0: the client left before."""

    @property
    @abstractmethod
    def address(self) -> str | None:
        """Where it comes from."""

    @abstractmethod
    def prove(self, team: str, agent: str, known: Any) -> None:
        """Tell the listener whose valid token the request carried, and what later ones over its connection may know.

        Raises:
            QueueFullError: that agent has too many connections open.
        """

    @abstractmethod
    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        """Send the answer; the length of the body is added to its headers. Harmless once it left."""

    @abstractmethod
    def answer_by(self, application: ASGIApp, status: int) -> None:
        """Have the answer, of so many bytes that they take long to be read, sent by ASGI."""


def bearer_in(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the token that a request carries; None: it carries none."""
    scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() != b"bearer" or not secret:
        return None
    return secret.strip().decode("latin-1")


def address_of(scope: Mapping[str, Any]) -> str | None:
    """Return where a connection comes from."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else None


def prove(scope: Mapping[str, Any], team: str, agent: str) -> None:
    """Tell the listener, if there is one, whose valid token a request carried.

    Raises:
        QueueFullError: that agent has too many connections open.
    """
    extensions: Mapping[str, Any] = scope.get("extensions", {})
    if (told := extensions.get(PROVE)) is not None:
        told(team, agent)


def channel_of(scope: Mapping[str, Any]) -> Channel:
    """Return the WebSocket that `scope` is about."""
    return scope["extensions"][CHANNEL]


async def refuse(
    send: Send,
    error: NodropError,
    *,
    status: int | None = None,
    headers: Sequence[Header] = (),
    kind: Literal["http.response", "websocket.http.response"] = "http.response",
) -> None:
    """Send the problem document of `error`, under another status than its own if there is one."""
    status, sent, body = refusal(error, status=status)
    sent = [*sent, (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": f"{kind}.start", "status": status, "headers": sent})
    await send({"type": f"{kind}.body", "body": body})


def refusal(error: NodropError, *, status: int | None = None) -> tuple[int, list[Header], bytes]:
    """Return the status, headers and body that `error` is told with, the length of the body apart."""
    forget_frames(error)
    problem = document(error, status=status)
    headers: list[Header] = [_PROBLEM]
    if (seconds := retry_after(error)) is not None:
        headers.append((b"retry-after", b"%d" % math.ceil(seconds)))
    if isinstance(error, UnauthenticatedError):
        headers.append(_CHALLENGE)
    return problem.status, headers, msgspec.json.encode(problem)
