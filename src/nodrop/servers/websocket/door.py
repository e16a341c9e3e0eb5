"""The WebSocket door: takes a connection from its upgrade over its hello to its end."""

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from nodrop.model.errors import NodropError, NotFoundError, UnauthenticatedError
from nodrop.protocol.asgi import Channel, address_of, bearer_in, channel_of, prove, refuse
from nodrop.protocol.decoding import decode_strict, peek
from nodrop.protocol.routes import split_team
from nodrop.relay.relay import Relay
from nodrop.servers.websocket import frames
from nodrop.servers.websocket.connection import (
    COME_BACK,
    FAULT,
    IN_FLIGHT_MAX,
    UNAUTHENTICATED,
    Connection,
)
from nodrop.servers.websocket.frames import Frame, Hello, Id
from nodrop.servers.websocket.outbox import Outbox

log = logging.getLogger(__name__)
RELAY_LOG: Final = logging.getLogger("nodrop.relay")

HELLO_SECONDS_MAX: Final = 10.0
_CLOSE_SECONDS_MAX: Final = 2.0

TOO_BIG: Final = 1009

_CHANNEL: Final = "channel"


class _EndedError(Exception):
    """The connection is to end; with a code where the client is to be told one."""

    def __init__(self, code: int | None = None) -> None:
        super().__init__(code)
        self.code = code


class WebSocketDoor:
    """The channel of one relay."""

    def __init__(
        self,
        relay: Relay,
        *,
        new_id: Callable[[], str],
        hello_seconds_max: float = HELLO_SECONDS_MAX,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._relay = relay
        self._new_id = new_id
        self._hello_seconds_max = hello_seconds_max
        self._in_flight_max = in_flight_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        try:
            team = _team_in(scope["raw_path"])
        except NotFoundError as error:
            await _reject(scope, send, error)
            return
        await receive()  # websocket.connect
        await send({"type": "websocket.accept"})
        channel, limits = channel_of(scope), self._relay.limits
        outbox = Outbox(
            channel,
            flushes=self._relay.flushes,
            bytes_max=limits.outgoing_bytes_max,
            frame_bytes_max=limits.frame_bytes_max,
        )
        try:
            connection, said = await self._greet(scope, receive, outbox, team)
            with _logged(connection, address_of(scope)):
                code = await self._serve(channel, connection, said, receive, outbox)
        except _EndedError as ended:
            code = ended.code
        if code is not None:
            await _close(send, code)

    # --- hello ---

    async def _greet(
        self, scope: Scope, receive: Receive, outbox: Outbox, team: str | None
    ) -> tuple[Connection, Iterable[bytes]]:
        """Return the connection once its client said who it is, and what it said besides."""
        limits = self._relay.limits
        first = b""
        try:
            async with asyncio.timeout(self._hello_seconds_max):
                first, *rest = frames.split(self._data_in(await receive())) or (b"",)
                connection = await self._welcome(first, scope, outbox, team)
        except TimeoutError:
            error = self._stranger(scope, f"no hello within {self._hello_seconds_max:g} s")
            raise self._turned_away(outbox, None, error) from None
        except NodropError as error:
            raise self._turned_away(outbox, frames.read_id(first, limits), error) from None
        return connection, rest

    async def _welcome(
        self, data: bytes, scope: Scope, outbox: Outbox, team: str | None
    ) -> Connection:
        limits = self._relay.limits
        if peek(data, Frame, limits).op != "hello":
            raise self._stranger(scope, "the first frame must be a hello")
        hello = decode_strict(data, Hello, limits)
        secret = hello.token or bearer_in(dict(scope["headers"]))
        address = address_of(scope)
        caller = await self._relay.authenticate(secret, address=address, operation="hello")
        if team is not None and team != caller.team:
            foreign = NotFoundError("no such team")
            foreign.suspect = "foreign_team"
            self._relay.refuse(caller, "hello", foreign)
            raise foreign
        prove(scope, caller.team, caller.agent)
        process = hello.resume or self._new_id()
        outbox.batch = hello.batch
        welcome = frames.Welcome(team=caller.team, agent=caller.agent, process=process)
        outbox.put(frames.ok(hello.id, welcome))
        return Connection(
            self._relay,
            caller,
            hello,
            process=process,
            outbox=outbox,
            in_flight_max=self._in_flight_max,
        )

    def _stranger(self, scope: Scope, why: str) -> UnauthenticatedError:
        """Return the refusal of one who does not say who it is, once it is in the security log."""
        error = UnauthenticatedError(why)
        self._relay.refusals.note(error, operation="hello", address=address_of(scope))
        return error

    @staticmethod
    def _turned_away(outbox: Outbox, frame_id: Id, error: NodropError) -> _EndedError:
        outbox.put(frames.refusal(frame_id, error))
        outbox.flush()
        return _EndedError(COME_BACK if error.retryable else UNAUTHENTICATED)

    # --- after it ---

    async def _serve(
        self,
        channel: Channel,
        connection: Connection,
        said: Iterable[bytes],
        receive: Receive,
        outbox: Outbox,
    ) -> int | None:
        """Serve a connection to its end; return the code to close it with, if there is to be one."""
        reader = asyncio.create_task(self._read(connection, said, receive))
        channel.attach(connection.take, outbox.drained)
        try:
            await asyncio.wait(
                {reader, outbox.overflowed, connection.failed},
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            channel.detach()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await connection.close()
        if connection.failed.done():
            return connection.failed.result()
        if outbox.overflowed.done():
            return COME_BACK
        return _why(reader)

    async def _read(self, connection: Connection, said: Iterable[bytes], receive: Receive) -> None:
        for frame in said:
            await connection.receive(frame)
        while True:
            await connection.receive(self._data_in(await receive()))

    def _data_in(self, message: Message) -> bytes:
        if message["type"] == "websocket.disconnect":
            raise _EndedError
        text: str | None = message.get("text")
        data: bytes = message["bytes"] if text is None else text.encode()
        if len(data) > self._relay.limits.frame_bytes_max:
            raise _EndedError(TOO_BIG)
        return data


@contextmanager
def _logged(connection: Connection, address: str | None) -> Generator[None]:
    """Log that a connection began and ended: those of workers at INFO, short visits at DEBUG."""
    level = logging.INFO if connection.works else logging.DEBUG
    agent, process = connection.caller.agent, connection.process
    RELAY_LOG.log(level, "%s connected from %s (process %s)", agent, address, process)
    try:
        yield
    finally:
        RELAY_LOG.log(level, "%s disconnected (process %s)", agent, process)


def _why(reader: asyncio.Task[None]) -> int | None:
    # Not raised again: the error would hold the reader, and the reader the error.
    error = reader.exception()
    if isinstance(error, _EndedError):
        return error.code
    log.error("a connection could not be served", exc_info=error)
    return FAULT


def _team_in(raw_path: bytes) -> str | None:
    """Return the team that a channel's path names; None for the token's own."""
    team, path = split_team(raw_path)
    if path != _CHANNEL:
        raise NotFoundError("no such path")
    return team


async def _reject(scope: Scope, send: Send, error: NodropError) -> None:
    if (kind := "websocket.http.response") in scope.get("extensions", {}):
        await refuse(send, error, kind=kind)
    else:
        await send({"type": "websocket.close"})


async def _close(send: Send, code: int) -> None:
    # A client that reads nothing does not read this either, and one that left needs no goodbye;
    # a server that closed the connection itself answers with a RuntimeError.
    with suppress(TimeoutError, OSError, RuntimeError):
        async with asyncio.timeout(_CLOSE_SECONDS_MAX):
            await send({"type": "websocket.close", "code": code})
