"""One WebSocket connection that has said hello. It ends; `websocket` is what outlives it.

Frames that are sent within one turn of the event loop leave as one JSON array. What follows from a lone
message leaves at once: nothing else is expected to go with it.
"""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import suppress
from typing import Any, Final

import aiohttp
import msgspec

from nodrop.client.statuses import refusal
from nodrop.protocol.errors import from_json
from nodrop.protocol.pushed import Outcome

HELLO_ID: Final = 0
PING_SECONDS: Final = 10.0
"""How long a connection may be silent before it is pinged; one that does not answer within half of
this is lost."""
PING_SECONDS_MIN: Final = 1.0
CLOSE_SECONDS_MAX: Final = 1.0
INCOMING_BYTES_MAX: Final = 268_435_456
"""The largest frame taken from a relay: a page of the largest handoffs fits."""
BATCH_BYTES_MAX: Final = 262_144
"""Frames are gathered up to this; the relay's own bound on a frame is larger."""
TOO_BIG: Final = aiohttp.WSCloseCode.MESSAGE_TOO_BIG


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a relay says: an answer, the outcome of an offer that is followed, or a push."""

    id: int | None = None
    ok: msgspec.Raw = msgspec.Raw()
    error: dict[str, Any] | None = None
    follows: bool = False
    handoff: msgspec.Raw = msgspec.Raw()
    outcome: Outcome | None = None
    delivery: dict[str, Any] | None = None
    offered: dict[str, Any] | None = None


_DECODER: Final = msgspec.json.Decoder(Message | list[Message])
_TEXT: Final = aiohttp.WSMsgType.TEXT


class LostError(ConnectionError):
    """The connection ended, or said something that is not the protocol."""


class Channel:
    """A connection; `Channel.open` makes it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, hello: Mapping[str, Any]) -> None:
        self._socket = socket
        self.agent: str = hello["agent"]
        self.process: str = hello["process"]
        self.heard = False
        """Whether the relay said anything after its hello."""
        self.closed = False
        """Whether this end closed it."""
        self._outgoing: list[bytes] = []
        self._credit: int | None = None
        """Granted since frames were last sent."""
        self._at_once = False
        """Whether the next frame that is sent follows from a lone message."""
        self._flushes = False
        """Whether what is gathered will be written without a further word."""
        self._writing: asyncio.Task[None] | None = None
        """Writes on where the socket took no more; what is sent meanwhile follows."""
        self._call_soon = asyncio.get_running_loop().call_soon

    @classmethod
    async def open(
        cls,
        session: aiohttp.ClientSession,
        url: str,
        hello: Mapping[str, Any],
        *,
        ping_seconds: float = PING_SECONDS,
    ) -> "Channel":
        """Connect and say hello.

        Raises:
            OSError, aiohttp.ClientError: nobody is there, or not for long.
            NodropError: the relay refused.
        """
        try:
            socket = await session.ws_connect(
                url,
                heartbeat=ping_seconds,
                max_msg_size=INCOMING_BYTES_MAX,
                timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS_MAX),  # pyright: ignore[reportCallIssue]  # made by a decorator it does not see through
            )
        except aiohttp.WSServerHandshakeError as error:
            raise refusal(error.status, f"{url} answered {error.status}") from error
        try:
            frame = msgspec.json.encode({"id": HELLO_ID, "op": "hello", **hello})
            await socket.send_frame(frame, _TEXT)
            return cls(socket, _welcome(await socket.receive()))
        except BaseException:
            await _hang_up(socket)
            raise

    def send(self, frame: bytes) -> None:
        """Send a frame with all others of this turn of the loop. If the connection is lost, so is it."""
        self._outgoing.append(frame)
        if self._at_once:
            self._flush()
        elif not self._flushes:
            self._flush_soon()

    def add(self, frame: bytes) -> None:
        """Send a frame that nobody waits for, with the next one or at the end of this turn."""
        self._outgoing.append(frame)
        if not self._flushes:
            self._flush_soon()

    def grant(self, n: int) -> None:
        """Grant credit for `n` more deliveries, in one frame with what else is granted this turn."""
        self._credit = n if self._credit is None else self._credit + n
        if not self._flushes:
            self._flush_soon()

    async def read(self, take: Callable[[Message], None]) -> int | None:
        """Hand every message to `take` until the connection ends; return its close code."""
        receive, decode = self._socket.receive, _DECODER.decode
        while True:
            received = await receive()
            try:
                if received.type is not _TEXT:
                    return self._socket.close_code
                messages: Message | list[Message] = decode(received.data)
            except msgspec.DecodeError:  # it is not the protocol
                return self._socket.close_code
            self.heard = self._flushes = True
            if isinstance(messages, list):
                self._at_once = False
                for message in messages:
                    take(message)
                self._flush_soon()  # after all whom they wake
            else:
                take(messages)
                if self._outgoing or self._credit is not None:
                    self._flush()
                self._at_once, self._flushes = True, False

    async def close(self) -> None:
        """End the connection."""
        self.closed = True
        if self._writing is not None:
            self._writing.cancel()
        await _hang_up(self._socket)

    def _flush_soon(self) -> None:
        self._flushes = True
        self._call_soon(self._flush)

    def _flush(self) -> None:
        """Write what was gathered. That hardly ever waits, so no task is made for it before it does."""
        self._flushes = self._at_once = False
        if not self._outgoing and self._credit is None:
            return
        if self._writing is not None or self.closed:
            return
        writing = self._write()
        try:
            awaited = writing.send(None)
        except StopIteration:
            return
        self._writing = asyncio.create_task(_go_on(writing, awaited))

    async def _write(self) -> None:
        try:
            while self._outgoing or self._credit is not None:
                frames, self._outgoing = self._outgoing, []
                if self._credit is not None:
                    frames.append(b'{"op":"credit","n":%d}' % self._credit)
                    self._credit = None
                for batch in frames if len(frames) == 1 else _batches(frames):
                    await self._socket.send_frame(batch, _TEXT)
        except (OSError, aiohttp.ClientError):
            pass  # the reader notices, and what was not answered is sent again
        finally:
            self._writing = None


def pings_every(heartbeat_seconds: float | None) -> float:
    """Return how long a connection may be silent, for a process with such a heartbeat.

    A lease is three heartbeats: a dead connection is noticed, and replaced, well before that.
    """
    if heartbeat_seconds is None:
        return PING_SECONDS
    return min(max(heartbeat_seconds / 2, PING_SECONDS_MIN), PING_SECONDS)


async def _hang_up(socket: aiohttp.ClientWebSocketResponse) -> None:
    response = socket._response  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # nothing public ends it for good
    transport = response.connection.transport if response.connection else None
    with suppress(TimeoutError):  # where nothing is read, a goodbye cannot be said
        async with asyncio.timeout(2 * CLOSE_SECONDS_MAX):
            await socket.close()
    # aiohttp does not let go of the connection where the other end vanished without a word.
    response.close()
    if transport is not None:
        transport.abort()


async def _go_on(begun: Coroutine[Any, Any, None], awaited: asyncio.Future[Any]) -> None:
    """Go on with what was begun without a task, and awaits something."""
    await asyncio.wait([awaited])
    await _rest_of(begun)


@types.coroutine
def _rest_of(begun: Coroutine[Any, Any, None]) -> Generator[Any, Any, None]:
    yield from begun.__await__()


def _batches(frames: list[bytes]) -> list[bytes]:
    """Return the frames gathered into arrays, none larger than it has to be."""
    joined = b",".join(frames)
    if len(joined) < BATCH_BYTES_MAX:
        return [b"[%b]" % joined]
    batches: list[bytes] = []
    gathered: list[bytes] = []
    size = 0
    for frame in frames:
        if gathered and size + len(frame) > BATCH_BYTES_MAX:
            batches.append(_array(gathered))
            gathered, size = [], 0
        gathered.append(frame)
        size += len(frame) + 1
    batches.append(_array(gathered))
    return batches


def _array(frames: list[bytes]) -> bytes:
    return frames[0] if len(frames) == 1 else b"[" + b",".join(frames) + b"]"


def _welcome(received: aiohttp.WSMessage) -> dict[str, Any]:
    """Return the answer to hello."""
    if received.type is not _TEXT:
        raise LostError(f"the connection ended: {received.type.name}")
    try:
        said: Message | list[Message] = _DECODER.decode(received.data)
    except msgspec.DecodeError as error:
        raise LostError("the other end does not speak the protocol") from error
    answer = said[0] if isinstance(said, list) else said
    if answer.error is not None:
        raise from_json(answer.error)
    return msgspec.json.decode(answer.ok, type=dict[str, Any])
