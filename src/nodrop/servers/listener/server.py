"""The socket under the networked doors: uvicorn, held to the relay's bounds and its own end.

Serves whatever ASGI application it is given and knows none of the doors.
"""

import asyncio
import functools
import logging
import socket
import ssl
import struct
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGIReceiveEvent
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.http11 import Request
from websockets.protocol import State

from nodrop.model.errors import InvalidRequestError, NodropError, TooLargeError, UnavailableError
from nodrop.protocol.asgi import CHANNEL, PROVE, Exchange, Header
from nodrop.protocol.errors import document
from nodrop.servers.listener.connections import Connections

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS_MAX: Final = 5
_DATE_SECONDS: Final = 1.0
"""How often the date of answers is renewed."""
_KEPT_BY_KERNEL: Final = sys.platform == "linux"
"""Whether the kernel asks idle connections if they are still there, at no cost to this process."""
_PROBE_SECONDS: Final = 15
"""How long a connection is silent before the kernel asks: one that is gone is noticed within 30 s."""
_PING_SECONDS: Final = 300.0 if _KEPT_BY_KERNEL else 15.0
"""The same question to the client itself, which a proxy in between cannot answer in its place."""
_PONG_SECONDS_MAX: Final = 15.0
_UNREAD_MS_MAX: Final = 30_000
"""How long sent bytes may stay unread before the kernel gives a connection up."""
_HEAD_BYTES_MAX: Final = 65_536
"""The head of a request; a chunk's too."""

_UNCOUNTED_BYTES: Final = 65_536
"""Of an unfinished message; the kernel holds as many for every connection."""

_WHOLE_SECONDS: Final = 0.1
"""How long a request is kept until all of its body is there; ASGI takes it as it comes."""

_REACHED_BY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # looked up, not bound to
ANY_ADDRESS: Final = frozenset(_REACHED_BY)


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a connection may take."""

    head_seconds: float = 15.0
    """Until a request's head is there; before it, until a TLS handshake is done."""
    parting_seconds: float = 5.0
    """How long whoever was refused may go on talking, so that the refusal is not lost in a reset."""


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
    patience: Patience = Patience(),  # noqa: B008  # a frozen value
    connections: Connections | None = None,
    before_shutdown: Callable[[], None] = lambda: None,
) -> AsyncGenerator[str]:
    """Serve `application`; yields its address once it can be reached. Port 0 is any free one.

    One that has a method `take_exchange` is first given requests without ASGI (`nodrop.protocol.asgi.Exchange`).

    At the end nothing new is let in, `before_shutdown` is called so that waiting requests can be
    answered, and those that run are given a few seconds. `connections` bounds how many there may be.

    Raises:
        UnavailableError: the address cannot be listened on, or the certificate not used.
    """
    listener = _bind(host, port)
    connections = Connections() if connections is None else connections  # an empty one is false
    config = _Config(
        application,
        patience=patience,
        open_connections=connections,
        interface="asgi3",
        http=_Http,
        ws=_WebSocket,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws_max_size=frame_bytes_max,
        ws_ping_interval=_PING_SECONDS,
        ws_ping_timeout=_PONG_SECONDS_MAX,
        ws_per_message_deflate=False,
        backlog=connections.backlog,
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
        server.end()
        await serving  # which also tells what kept it from listening


class _Config(uvicorn.Config):
    """What every connection finds: uvicorn's configuration, and ours."""

    def __init__(
        self,
        application: ASGIApp,
        *,
        patience: Patience,
        open_connections: Connections,
        **named: Any,
    ) -> None:
        super().__init__(application, **named)
        self.take: Callable[[Exchange], bool] | None = getattr(application, "take_exchange", None)
        self.patience = patience
        self.open_connections = open_connections
        self.lost = asyncio.Event()
        """Set by every connection that ends."""
        self.handshakes: WeakSet[ssl.SSLObject] = WeakSet()
        """TLS handshakes under way. One that is given up is freed, and so no longer here."""

    def load(self) -> None:
        """Get ready to serve, with a bound on handshakes: a connection counts once its own is done."""
        super().load()
        if self.ssl is not None:
            self.ssl.wrap_bio = partial(self._shake_hands, self.ssl.wrap_bio)

    def _shake_hands(
        self, wrap: Callable[..., ssl.SSLObject], incoming: ssl.MemoryBIO, *args: Any, **named: Any
    ) -> ssl.SSLObject:
        """Begin a handshake. One too many fails as if its client had gone."""
        made = wrap(incoming, *args, **named)
        if self.open_connections.has_room_to_shake_hands(len(self.handshakes)):
            self.handshakes.add(made)
        else:
            incoming.write_eof()
        return made


class _Server(uvicorn.Server):
    """uvicorn that says when it is up, and leaves signals to those who know what else must end.

    It waits for events; uvicorn's own looks ten times a second, and takes 0.2 s or more to end.
    """

    config: _Config

    def __init__(self, config: _Config, before_shutdown: Callable[[], None]) -> None:
        super().__init__(config)
        self.up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._before_shutdown = before_shutdown
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Begin to shut down."""
        self.should_exit = True
        self._ending.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Capture none: uvicorn would raise them again before the store is closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen. uvicorn's own sets no bound on a TLS handshake."""
        config, patience = self.config, self.config.patience
        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(
                self._protocol,
                sock=listener,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=patience.head_seconds if config.ssl else None,
                ssl_shutdown_timeout=patience.parting_seconds if config.ssl else None,
            )
            for listener in sockets or ()
        ]
        self.started = True
        self.up.set_result(None)

    def _protocol(self) -> asyncio.Protocol:
        return _Http(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    async def main_loop(self) -> None:
        """Renew the date that answers carry, until the end."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, answer what waits, and wait for what runs."""
        self._before_shutdown()
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in tuple(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(_SHUTDOWN_SECONDS_MAX):
                await self._ended()
        except TimeoutError:
            running = tuple(self.server_state.tasks)
            log.warning(
                "cancelled %d requests that ran on for %d s", len(running), _SHUTDOWN_SECONDS_MAX
            )
            for task in running:
                task.cancel()

    async def _ended(self) -> None:
        """Return once no connection is open and no request runs."""
        state, lost = self.server_state, self.config.lost
        while state.connections:
            lost.clear()
            await lost.wait()
        while state.tasks:
            await asyncio.wait(state.tasks)


class _Http(HttpToolsProtocol):
    """HTTP whose heads are bounded in size and time, and whose refusals arrive.

    A timer is set only while something is overdue: a request that comes in one piece costs none.
    """

    config: _Config
    parser: Any
    """None at the end."""
    cycle: Any
    """The last request: None before the first, `_Exchange` if it is answered without ASGI."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._patience = self.config.patience
        self._open = self.config.open_connections
        self._take = self.config.take
        self._overdue: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        """Received since anything was made of it."""
        self._in_head = False
        self._parting = False
        self._body: bytearray | None = None
        """Of a request that may be answered without ASGI, should all of it have come."""
        self.exchange: _Exchange | None = None
        """The last request that was taken without ASGI; it may be answered."""
        self.known: Any = None
        """What the application knows of this connection, which it has proven; None: nothing, or it may not be so now."""
        self._idle_since: float | None = None
        """When the last request was answered; None: something came since."""
        self._idling: asyncio.TimerHandle | None = None
        """Looks whether the connection is idle for too long; not set anew for each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Expect a request."""
        super().connection_made(transport)
        if (shaken := transport.get_extra_info("ssl_object")) is not None:
            self.config.handshakes.discard(shaken)
        self._expect(self._patience.head_seconds, self._refuse_slow)
        self._open.made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing more."""
        self._expect_no_more()
        self._idle_no_more()
        self._open.lost(self.transport)
        if self.exchange is not None:
            self.exchange.leave()
        super().connection_lost(exc)
        # It holds this connection, which would not be freed without the collector.
        self.cycle = self.exchange = self.known = None
        self.pipeline.clear()
        self.config.lost.set()

    def data_received(self, data: bytes) -> None:
        """Take what came, as long as it becomes something."""
        if self._parting:
            return
        self._idle_since = None
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _HEAD_BYTES_MAX and not self._parting:
            self._refuse_large()
        elif self._overdue is None:
            if self._in_head:
                self._expect(self._patience.head_seconds, self._refuse_slow)
            elif self._body is not None:
                self._overdue = self.loop.call_later(_WHOLE_SECONDS, self._begin_asgi)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._in_head = True

    def on_headers_complete(self) -> None:
        """Have a request answered, now that its head is there, or wait for the rest of what came."""
        if self._parting:
            return
        self._in_head = False
        large = self._head_bytes > _HEAD_BYTES_MAX and self._measure_head() > _HEAD_BYTES_MAX
        self._head_bytes = 0
        if self._overdue is not None:
            self._expect_no_more()
        if large:
            self._refuse_large()
            return
        if self.known is None:  # else it has shown a token, and is never closed to make room
            self._open.begin(self.transport)
        if (
            self._take is not None
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and not self.transport.is_closing()
            and not self.expect_100_continue
            and not self.parser.should_upgrade()
        ):  # it can be answered at once: nothing before it is, or waits to be read
            self._body = bytearray()
        else:
            self._begin_asgi()

    def start(self, cycle: RequestResponseCycle, application: Any) -> None:
        """Have an answer sent by ASGI."""
        self._start_asgi_task(cycle, application)

    def _begin_asgi(self) -> None:
        """Have a request answered by ASGI, with as much of its body as there is."""
        self._expect_no_more()
        self.known = None  # this request may prove it anew, without our knowing
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        self.scope["extensions"] = {PROVE: partial(self._open.prove, self.transport)}  # pyright: ignore[reportGeneralTypeIssues]  # ours
        super().on_headers_complete()
        if self.cycle is not None:  # None for an upgrade
            self.cycle.transport = _Parting(self)
        body, self._body = self._body, None
        if body:
            super().on_body(bytes(body))

    def on_body(self, body: bytes) -> None:
        """Take a piece of a body."""
        self._head_bytes = 0
        if self._parting:
            return
        if self._body is not None:
            if len(self._body) + len(body) <= _UNCOUNTED_BYTES:
                self._body += body
                return
            self._begin_asgi()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._head_bytes = 0
        if self._parting:
            return
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if self._body is not None:
            assert self._take is not None, "else it would not be gathered"
            before = self.cycle
            self.cycle = self.exchange = exchange = _Exchange(self, bytes(self._body))
            if self._take(exchange):
                self._body = None
                exchange.body = b""  # it was read, and the answer may be long in coming
                return
            self.cycle, self.exchange = before, None
            self._begin_asgi()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """End an answer. Who is answered before having said everything is not listened to long."""
        if self.known is None:
            self._open.end(self.transport)
        if not self.transport.is_closing():
            if self.flow.read_paused:
                self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())
            else:
                self._idle_since = self.loop.time()
                if self._idling is None:
                    self._look_if_idle()
        cycle = self.cycle
        if cycle.more_body and cycle.response_complete and not self._parting:
            self._expect(self._patience.parting_seconds, self.transport.close)

    def _look_if_idle(self) -> None:
        """Close the connection if nothing came for too long, or look again when that may be so."""
        self._idling = None
        if self._idle_since is None or self.transport.is_closing():
            return
        proven = self._open.proven(self.transport)
        most = self._open.keep_alive_seconds if proven else self._open.keep_alive_unproven_seconds
        left = self._idle_since + most - self.loop.time()
        if left > 0:
            self._idling = self.loop.call_later(left, self._look_if_idle)
        else:
            self.transport.close()

    def _idle_no_more(self) -> None:
        if self._idling is not None:
            self._idling.cancel()
            self._idling = None

    def handle_websocket_upgrade(self) -> None:
        """Go on as a WebSocket, unless its head was refused."""
        if not self._parting:
            super().handle_websocket_upgrade()
            # As at the end of a connection: a request before this one would hold it.
            self._idle_no_more()
            self.parser = None
            self.cycle = self.exchange = self.known = None  # as before the first request

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        error = InvalidRequestError(msg, next_step="Send HTTP/1.1.")
        self._refuse(error, HTTPStatus.BAD_REQUEST)

    def part(self) -> None:
        """Close the connection; whoever still talks is let finish, unheard."""
        said_all = self.cycle is not None and not self.cycle.more_body
        if said_all or self.transport.is_closing():
            self.transport.close()
            return
        self._parting = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._expect(self._patience.parting_seconds, self.transport.close)

    def _measure_head(self) -> int:
        """Return the bytes of a head that came together with what follows it.

        Each header has a colon, a space and an end of line besides.
        """
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_large(self) -> None:
        error = TooLargeError(f"the head of the request is larger than {_HEAD_BYTES_MAX} bytes")
        self._refuse(error, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def _refuse_slow(self) -> None:
        why = f"no request within {self._patience.head_seconds:g} s"
        error = InvalidRequestError(why, next_step="Send the whole request at once.")
        self._refuse(error, HTTPStatus.REQUEST_TIMEOUT)

    def _refuse(self, error: NodropError, status: HTTPStatus) -> None:
        self._body = None
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started or self.pipeline:
                self.transport.close()  # an answer is being sent, and this would end up in it
                return
            if self.exchange is not None:
                self.exchange.leave()
            cycle.disconnected = True
            cycle.message_event.set()
        body = msgspec.json.encode(document(error, status=status))
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "content-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.part()

    def _expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        self._expect_no_more()
        self._overdue = self.loop.call_later(seconds, otherwise)

    def _expect_no_more(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


class _Exchange(Exchange):
    """A request that is answered without ASGI: in place of a cycle of uvicorn, as far as one is needed."""

    more_body = False
    response_complete = False
    disconnected = False
    message_event = asyncio.Event()
    """Nothing waits for it."""

    def __init__(self, protocol: _Http, body: bytes) -> None:
        parser = protocol.parser
        self.method = parser.get_method().decode()
        self.path, _, self.query = protocol.url.partition(b"?")
        self.pairs = protocol.headers
        self.headers = dict(self.pairs)
        self.body = body
        self.known = protocol.known
        self._protocol: _Http | None = protocol
        self.keep_alive = parser.get_http_version() != "1.0" and parser.should_keep_alive()

    @property
    def response_started(self) -> bool:
        return self.response_complete

    @property
    def address(self) -> str | None:
        client = None if self._protocol is None else self._protocol.client
        return client[0] if client else None

    def prove(self, team: str, agent: str, known: Any) -> None:
        if self._protocol is not None:
            self._protocol.config.open_connections.prove(self._protocol.transport, team, agent)
            self._protocol.known = known

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is None:
            return
        head = _answer_head(
            status, (*protocol.server_state.default_headers, *headers), self.keep_alive
        )
        protocol.transport.write(b"%bcontent-length: %d\r\n\r\n%b" % (head, len(body), body))
        self.response_complete = True
        if not self.keep_alive:
            protocol.part()
        protocol.on_response_complete()
        if self.ended is not None:
            self.ended(status)

    def answer_by(self, application: ASGIApp, status: int) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is None:
            return
        cycle = RequestResponseCycle(
            scope={"type": "http", "method": self.method},  # pyright: ignore[reportArgumentType]  # all that it reads
            transport=_Parting(protocol),  # pyright: ignore[reportArgumentType]  # all that it needs
            flow=protocol.flow,
            logger=protocol.logger,
            access_logger=protocol.access_logger,
            access_log=False,
            default_headers=protocol.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=self.keep_alive,
            on_response=protocol.on_response_complete,
        )
        cycle.more_body = False
        if protocol.cycle is self:
            protocol.cycle = cycle
        protocol.start(cycle, application)
        if self.ended is not None:
            self.ended(status)

    def leave(self) -> None:
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self.disconnected = True
            if self.left is not None:
                self.left()
            if self.ended is not None:
                self.ended(0)


_CLOSE: Final[Header] = (b"connection", b"close")


@functools.lru_cache(maxsize=64)  # there are few that differ while the date is the same
def _answer_head(status: int, headers: tuple[Header, ...], keep_alive: bool) -> bytes:  # noqa: FBT001  # a key of the cache
    """Return the head of an answer as it is sent, without the length of its body."""
    also = headers if keep_alive else (*headers, _CLOSE)
    return STATUS_LINE[status] + b"".join([b"%b: %b\r\n" % header for header in also])


class _Parting:
    """What an answer sees of its connection: closing it leaves time to be heard."""

    def __init__(self, protocol: _Http) -> None:
        self._protocol = protocol
        self.write = protocol.transport.write
        self.is_closing = protocol.transport.is_closing

    def close(self) -> None:
        self._protocol.part()


class _WebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose refusals arrive, and a `nodrop.protocol.asgi.Channel`."""

    config: _Config

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._parting = False
        self._unfinished = 0
        """Bytes that came since the last message was complete."""
        self._awaited = False
        """Whether the application waits in `receive`: then it is done with all messages before."""
        self._extensions: dict[str, Any] = {}
        self.can_write = True
        self.detach()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no longer."""
        self.config.open_connections.lost(self.transport)
        super().connection_lost(exc)
        self.can_write = True  # what comes now is dropped
        self.config.lost.set()
        self._extensions.clear()  # they hold this connection, which could not be freed

    # --- the channel ---

    def write(self, messages: Sequence[bytes]) -> None:
        """Send texts, each as one message."""
        if self.conn.state is not State.OPEN or self.transport.is_closing():
            return
        parts: list[bytes] = []
        for text in messages:
            if (size := len(text)) < _LENGTH_16_BITS:
                parts += (_HEADS_7_BITS[size], text)
            elif size < _LENGTH_16_BITS_MAX:
                parts += (_head_16_bits(_TEXT, _LENGTH_16_BITS, size), text)
            else:
                parts += (_head_64_bits(_TEXT, _LENGTH_64_BITS, size), text)
        self.transport.write(b"".join(parts))

    def attach(self, take: Callable[[bytes], bool], drained: Callable[[], None]) -> None:
        """Pass messages to `take` while the application waits for one."""
        self._take, self._drained = take, drained

    def detach(self) -> None:
        """Pass every message to the application."""
        self._take: Callable[[bytes], bool] = _leave
        self._drained: Callable[[], None] = _ignore

    def pause_writing(self) -> None:
        self.can_write = False
        super().pause_writing()

    def resume_writing(self) -> None:
        self.can_write = True
        super().resume_writing()
        self._drained()

    async def receive(self) -> ASGIReceiveEvent:
        """Return the next event to the application."""
        self._awaited = True
        try:
            return await super().receive()
        finally:
            self._awaited = False

    # --- what comes in ---

    def handle_connect(self, event: Request) -> None:
        """Have the connection served, and the listener told whose it is."""
        super().handle_connect(event)
        if self.config.ssl is None:  # a TLS transport takes such a limit for a buffer that is full
            # What is written leaves at once, not at the end of this turn: clients work meanwhile.
            self.transport.set_write_buffer_limits(high=0)
        if not self.close_sent:
            self._extensions.update(self.scope.get("extensions") or {})
            self._extensions[PROVE] = partial(self.config.open_connections.prove, self.transport)
            self._extensions[CHANNEL] = self
            self.scope["extensions"] = self._extensions

    def data_received(self, data: bytes) -> None:
        """Take what came, unless it was refused, or too much is on its way without becoming a message."""
        if self._parting:
            return
        self._unfinished += len(data)
        super().data_received(data)
        if self._unfinished > _UNCOUNTED_BYTES and not self._parting:
            connections = self.config.open_connections
            if not connections.hold(self.transport, self._unfinished):
                self.conn.send_close(CloseCode.TRY_AGAIN_LATER)
                self.handle_parser_exception()

    def send_receive_event_to_app(self) -> None:
        """Pass a message on. A text that is none is the client's fault, and no entry in our log."""
        if self._unfinished > _UNCOUNTED_BYTES:
            self.config.open_connections.hold(self.transport, 0)
        self._unfinished = 0
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = [data]
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                data.decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(CloseCode.INVALID_DATA)
                self.handle_parser_exception()
                return
        if self._awaited and self.queue.empty() and self._take(data):
            self.frames = []
            return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Say why the connection ends, and leave time for it to be read."""
        said = self.conn.close_sent
        assert said is not None, "it has been failed"
        self.queue.put_nowait(
            {"type": "websocket.disconnect", "code": said.code, "reason": said.reason}
        )
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self._parting = True
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()
        self.close_timer = self.loop.call_later(
            self.config.patience.parting_seconds, self.transport.close
        )


_TEXT: Final = 0x81
"""A text, and its last frame, as RFC 6455 has it."""
_LENGTH_16_BITS: Final = 126
_LENGTH_64_BITS: Final = 127
_LENGTH_16_BITS_MAX: Final = 65_536
_HEADS_7_BITS: Final = [bytes((_TEXT, size)) for size in range(_LENGTH_16_BITS)]
_head_16_bits: Final = struct.Struct("!BBH").pack
_head_64_bits: Final = struct.Struct("!BBQ").pack


def _leave(_: bytes) -> bool:
    return False


def _ignore() -> None: ...


def _bind(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, address = found[0]
        listener = socket.create_server(address, family=family)
    except OSError as error:
        raise UnavailableError(
            f"cannot listen on {host}, port {port}: {error.strerror or error}",
            next_step="Stop what listens there, or choose another port: --port 0 takes any free one.",
        ) from None
    # Inherited by every connection. asyncio sets it only where a socket names its protocol, which
    # this one does not: a small answer would wait until the client acknowledges its head, for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if sys.platform == "linux":
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MS_MAX)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    return listener


def _url(host: str, port: int, tls: TLS | None) -> str:
    name = _REACHED_BY.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{name}]' if ':' in name else name}:{port}"
