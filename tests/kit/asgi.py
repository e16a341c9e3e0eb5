"""Speaks ASGI to an application in this process: HTTP requests and WebSockets without a server.

Like the listener, it first gives an application that has `take_exchange` a request without ASGI. For tests of doors. Every wait is bounded, and nothing is buffered that a server would not buffer.
"""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote

import msgspec
from starlette.types import ASGIApp, Message, Scope

from nodrop.protocol import asgi

WAIT_SECONDS_MAX: Final = 30.0


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body, decoded."""
        return msgspec.json.decode(self.body)


class Visitor:
    """Somebody at the door: an application, and the headers this visitor always sends."""

    def __init__(
        self,
        application: ASGIApp,
        headers: Mapping[str, str] | None = None,
        *,
        whole: bool = True,
    ) -> None:
        """Be at `application`; `whole`: give it requests without ASGI, where it has a way for that."""
        self._application = application
        self._whole = whole
        self._take: Callable[[Whole], bool] | None = getattr(application, "take_exchange", None)
        self._headers = {"host": "127.0.0.1:6377", **(headers or {})}
        self.known: Any = None
        """What the application knows of this visitor's connection."""

    def with_headers(self, **headers: str) -> "Visitor":
        """Return the same visitor with further headers; `_` stands for `-`."""
        more = {name.replace("_", "-"): value for name, value in headers.items()}
        return Visitor(self._application, self._headers | more, whole=self._whole)

    async def request(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        *,
        json: Any = msgspec.UNSET,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Return the answer to one request; the pieces of a body arrive one by one."""
        async with self.exchange(method, target, body, json=json, headers=headers) as exchange:
            return await exchange.response()

    @asynccontextmanager
    async def exchange(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] = b"",
        *,
        json: Any = msgspec.UNSET,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator["Exchange"]:
        """Begin a request; whatever is still under way at the end is cancelled."""
        if json is not msgspec.UNSET:
            body = msgspec.json.encode(json)
        pieces = [body] if isinstance(body, bytes) else body
        scope = {**self._scope("http", target, headers), "method": method}
        exchange = Exchange(pieces)
        whole = None
        if self._whole and isinstance(body, bytes) and _is_all(body, scope):
            whole = Whole(self, scope, body, exchange)
        if whole is None or self._take is None or not self._take(whole):
            exchange.begin(self._application(scope, exchange.receive, exchange.send))
        try:
            yield exchange
        finally:
            await exchange.end()

    @asynccontextmanager
    async def channel(
        self, target: str = "/v1/channel", *, headers: Mapping[str, str] | None = None
    ) -> AsyncGenerator["Channel"]:
        """Open a WebSocket; it is disconnected at the end."""
        channel = Channel()
        scope = self.websocket_scope(channel, target, headers)
        task = asyncio.ensure_future(self._application(scope, channel.receive, channel.send))
        try:
            channel.say({"type": "websocket.connect"})
            yield channel
            channel.say({"type": "websocket.disconnect", "code": 1000})
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await asyncio.wait({task})
            task.result()
        finally:
            await _cancel(task)

    def websocket_scope(
        self, channel: "Channel", target: str, headers: Mapping[str, str] | None = None
    ) -> Scope:
        """Return what a WebSocket begins with."""
        return {**self._scope("websocket", target, headers), "extensions": {asgi.CHANNEL: channel}}

    def _scope(self, kind: str, target: str, headers: Mapping[str, str] | None) -> Scope:
        path, _, query = target.partition("?")
        sent = self._headers | dict(headers or {})
        return {
            "type": kind,
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http" if kind == "http" else "ws",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(k.lower().encode(), v.encode("latin-1")) for k, v in sent.items()],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 6377),
        }


class Exchange:
    """One HTTP request under way."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self.task: asyncio.Future[None] | None = None
        """The application, where it answers by ASGI."""
        self._pieces = iter(pieces)
        self._sent = 0
        self._gone = asyncio.Event()
        self.left: Callable[[], None] = lambda: None
        """Tells the server that took it without ASGI that the client is gone."""
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._next = next(self._pieces, None)

    @property
    def pieces_read(self) -> int:
        """How many pieces of the body the application took."""
        return self._sent

    def begin(self, application: Awaitable[None]) -> None:
        """Have it answered by ASGI."""
        self.task = asyncio.ensure_future(application)

    async def over(self) -> None:
        """Return when the application has let go of it."""
        if self.task is not None:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await self.task

    async def end(self) -> None:
        """Cancel what is still under way."""
        self.left()
        if self.task is not None:
            await _cancel(self.task)

    def leave(self) -> None:
        """Go away without waiting for the answer."""
        self._gone.set()
        self.left()

    def tell(self, message: Message) -> None:
        """Be told something without ASGI."""
        self._messages.put_nowait(message)

    async def receive(self) -> Message:
        """Be asked for more by the application."""
        if self._next is None and self._sent:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        piece, self._next = self._next or b"", next(self._pieces, None)
        self._sent += 1
        return {"type": "http.request", "body": piece, "more_body": self._next is not None}

    async def send(self, message: Message) -> None:
        """Be told something by the application."""
        self._messages.put_nowait(message)

    async def started(self) -> Message:
        """Return the message that begins the answer."""
        return await _next_of(self._messages, self.task)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body of the answer as it comes."""
        more = True
        while more:
            message = await _next_of(self._messages, self.task)
            more = message.get("more_body", False)
            yield message.get("body", b"")

    async def response(self) -> Response:
        """Return the whole answer."""
        start = await self.started()
        body = b"".join([chunk async for chunk in self.chunks()])
        headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        return Response(status=start["status"], headers=headers, body=body)


class Whole(asgi.Exchange):
    """A request that is given to the application whole."""

    def __init__(self, visitor: Visitor, scope: Scope, body: bytes, exchange: Exchange) -> None:
        self.method = scope["method"]
        self.path = scope["raw_path"]
        self.query = scope["query_string"]
        self.pairs = scope["headers"]
        self.headers = dict(self.pairs)
        self.body = body
        self.known = visitor.known
        self._address: str = scope["client"][0]
        self._visitor = visitor
        self._exchange: Exchange | None = exchange
        exchange.left = self._leave

    @property
    def address(self) -> str:
        """Where the visitor is."""
        return self._address

    def prove(self, team: str, agent: str, known: Any) -> None:
        """Hear whose token it carried: the visitor's later requests come over the same connection."""
        del team, agent
        self._visitor.known = known

    def answer(self, status: int, headers: Sequence[asgi.Header], body: bytes) -> None:
        """Take the answer."""
        exchange = self._end()
        if exchange is not None:
            length = (b"content-length", b"%d" % len(body))
            start = {"type": "http.response.start", "status": status, "headers": [*headers, length]}
            exchange.tell(start)
            exchange.tell({"type": "http.response.body", "body": body})
            if self.ended is not None:
                self.ended(status)

    def answer_by(self, application: Any, status: int) -> None:
        """Have the answer sent by ASGI."""
        exchange = self._end()
        if exchange is not None:
            exchange.begin(application({}, exchange.receive, exchange.send))
            if self.ended is not None:
                self.ended(status)

    def _leave(self) -> None:
        if self._end() is not None:
            if self.left is not None:
                self.left()
            if self.ended is not None:
                self.ended(0)

    def _end(self) -> Exchange | None:
        exchange, self._exchange = self._exchange, None
        return exchange


class Channel:
    """One WebSocket."""

    def __init__(self) -> None:
        self.can_write = True
        """False: the application has sent as much as a reader that fell asleep may leave unread."""
        self.close_code: int | None = None
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._outgoing: asyncio.Queue[Message] = asyncio.Queue()
        self._awaited = False
        self._wakes = asyncio.Event()
        self._wakes.set()
        self.detach()

    def attach(self, take: Callable[[bytes], bool], drained: Callable[[], None]) -> None:
        """Have messages passed to `take` while the application waits in `receive`."""
        self._take, self._drained = take, drained

    def detach(self) -> None:
        """Have every message passed to `receive`."""
        self._take: Callable[[bytes], bool] = lambda _: False
        self._drained: Callable[[], None] = lambda: None

    def write(self, messages: Sequence[bytes]) -> None:
        """Be told something by the application, without ASGI."""
        for message in messages:
            self._outgoing.put_nowait({"type": "websocket.send", "text": message.decode()})

    def sleep(self) -> None:
        """Read nothing that the application sends."""
        self.can_write = False
        self._wakes.clear()

    def wake(self) -> None:
        """Read again."""
        self.can_write = True
        self._wakes.set()
        self._drained()

    def say(self, message: Message) -> None:
        """Put an event before the application."""
        self._incoming.put_nowait(message)

    def tell(self, *frames: Any) -> None:
        """Send frames, each as JSON; bytes are sent as they are."""
        for frame in frames:
            data = frame if isinstance(frame, bytes) else msgspec.json.encode(frame)
            if self._awaited and self._incoming.empty() and self._take(data):
                continue
            if isinstance(frame, bytes):
                self.say({"type": "websocket.receive", "bytes": frame})
            else:
                self.say({"type": "websocket.receive", "text": data.decode()})

    async def frame(self) -> Any:
        """Return the next frame of the application, decoded."""
        while True:
            message = await _next_of(self._outgoing)
            if message["type"] == "websocket.send":
                return msgspec.json.decode(message["text"])
            if message["type"] == "websocket.close":
                raise AssertionError(f"closed with {message.get('code')}")

    async def closed(self) -> int | None:
        """Return the code with which the application closes; frames before are passed over."""
        while (message := await _next_of(self._outgoing))["type"] != "websocket.close":
            pass
        return message.get("code")

    async def taken(self) -> None:
        """Return once the application took everything that was said."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self._incoming.join()

    async def receive(self) -> Message:
        """Be asked for more by the application."""
        self._awaited = True
        try:
            message = await self._incoming.get()
        finally:
            self._awaited = False
        self._incoming.task_done()
        return message

    async def send(self, message: Message) -> None:
        """Be told something by the application."""
        await self._wakes.wait()
        self._outgoing.put_nowait(message)


def _is_all(body: bytes, scope: Scope) -> bool:
    """Whether nothing is missing of a body, by the account of its head."""
    declared = dict[bytes, bytes](scope["headers"]).get(b"content-length")
    return declared is None or declared == b"%d" % len(body)


async def _next_of(
    messages: asyncio.Queue[Message], task: asyncio.Future[None] | None = None
) -> Message:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        coming = asyncio.ensure_future(messages.get())
        await asyncio.wait({coming, task} if task else {coming}, return_when="FIRST_COMPLETED")
        if not coming.done():
            coming.cancel()
            assert task is not None
            task.result()
            raise AssertionError("the application returned without an answer")
        return coming.result()


async def _cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
