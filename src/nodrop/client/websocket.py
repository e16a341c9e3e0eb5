"""The WebSocket transport: one channel at a time, repaired when it breaks.

Whatever was not answered when a connection broke is sent again unchanged over the next one; the
`command_id` inside keeps the relay from doing anything twice. It is sent a bounded number of times: the relay
may have stopped over it.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, Final

import aiohttp
import msgspec

from nodrop.client import retrying
from nodrop.client.channel import TOO_BIG, Channel, Message, pings_every
from nodrop.client.retrying import Retrying
from nodrop.client.tokens import Tokens
from nodrop.core.errors import (
    InvalidRequestError,
    NodropError,
    TooLargeError,
    UnansweredError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
)
from nodrop.wire.decoding import encode_strict
from nodrop.wire.errors import from_json
from nodrop.wire.operations import OPERATIONS

_LOG: Final = logging.getLogger("nodrop.client")

FIRST_SECONDS_MAX: Final = 2.0
"""How long a person waits to hear that no relay is there."""
CONNECT_SECONDS_MAX: Final = 10.0
"""One try to connect, the hello included."""

_LOST_TWICE: Final = 2
_UNREACHED: Final = (OSError, aiohttp.ClientError, UnavailableError)
"""What may be different a moment later. A refusal that is the caller's fault is not among them."""


class _Call:
    """A frame, kept until it is answered."""

    __slots__ = ("answer", "frame", "lost", "waits")

    def __init__(self, frame: bytes, answer: asyncio.Future[Message], *, waits: bool) -> None:
        self.frame = frame
        self.answer = answer
        self.waits = waits
        """Whether no answer is expected before something happens."""
        self.lost = 0
        """How many connections ended after it was sent and before it was answered."""


class WebSocketTransport:
    """Calls and deliveries over `/v1/channel`."""

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        agent: str | None = None,
        process: str | None = None,
        heartbeat_seconds: float | None = None,
        first_seconds_max: float | None = FIRST_SECONDS_MAX,
        policy: Retrying = retrying.DEFAULT,
    ) -> None:
        """Prepare a transport to the channel at `url`; nothing is sent yet.

        Args:
            url: `ws(s)://…/v1/channel`.
            tokens: where the token comes from.
            agent: whose token it must be; None takes it as it is.
            process: as which process deliveries will be taken, if any will.
            heartbeat_seconds: how often that process will give a sign of life.
            first_seconds_max: how long to try for a first connection; None tries for ever.
            policy: how to try again.
        """
        self.agent = agent
        self._url = url
        self._tokens = tokens
        self._first_seconds_max = first_seconds_max
        self._policy = policy
        self._ids = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._process = process
        self._heartbeat_seconds = heartbeat_seconds
        self._stream: _Pushed | None = None
        self._session: aiohttp.ClientSession | None = None
        self._channel: Channel | None = None
        self._opening = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        self._ended: NodropError | None = None

    async def open(self) -> None:
        """Make the first connection. Every call does so by itself if it has not been made.

        Raises:
            UnreachableError: no relay answered in time.
            NodropError: the relay refused.
        """
        async with self._opening:
            if self._ended is not None:
                raise self._ended
            if self._running is None:
                delays = self._policy.delays()
                channel = await self._connect(delays, within=self._first_seconds_max)
                self._resume(channel)
                self._running = asyncio.create_task(self._run(channel))
                self._running.add_done_callback(self._stopped)

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the answer; see `transport.Transport`."""
        if self._running is None or self._ended is not None:
            await self.open()
        call_id = next(self._ids)
        message = {"id": call_id, "op": operation, **fields}
        if handoff is not None:
            message["handoff_id"] = handoff
        if name is not None:
            message["name"] = name
        frame = encode_strict(message)
        waits = bool(fields.get("wait"))
        try:
            return await self._ask(call_id, frame, waits=waits)
        except UnansweredError:
            raise
        except UnavailableError:
            # A command without an id might be carried out twice.
            if "command_id" not in fields and OPERATIONS[operation].changes:
                raise
        return await self._policy.until_taken(lambda: self._ask(call_id, frame, waits=waits))

    async def deliveries(self, *, process: str, heartbeat_seconds: float, credit: int) -> "_Pushed":
        """Take work as `process`; see `transport.Transport`."""
        assert self._stream is None, "one stream of deliveries per transport"
        self._stream = _Pushed(self, credit)
        if (process, heartbeat_seconds) != (self._process, self._heartbeat_seconds):
            self._process, self._heartbeat_seconds = process, heartbeat_seconds
            await self.hello_again()  # which process this is belongs into the hello
        elif self._channel is not None:
            self.send_credit(credit)
        await self.open()
        return self._stream

    async def close(self) -> None:
        """Give up the connection."""
        self._end(InvalidRequestError("the connection was closed", next_step="Connect again."))
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        if self._channel is not None:
            await self._channel.close()
        if self._session is not None:
            await self._session.close()

    async def hello_again(self) -> None:
        """Give up the connection, if there is one, for another."""
        if self._channel is not None:
            await self._channel.close()

    def send_credit(self, n: int) -> None:
        """Tell the relay that `n` more deliveries may come. Lost with the connection."""
        if self._channel is not None:
            self._channel.send(msgspec.json.encode({"op": "credit", "n": n}))

    async def _ask(self, call_id: int, frame: bytes, *, waits: bool) -> Message:
        if self._ended is not None:
            raise self._ended
        call = _Call(frame, asyncio.get_running_loop().create_future(), waits=waits)
        self._calls[call_id] = call
        if self._channel is not None:
            self._channel.send(frame)
        try:
            return await call.answer
        finally:
            self._calls.pop(call_id, None)

    # --- the connection -------------------------------------------------------------------------

    async def _run(self, channel: Channel) -> None:
        """Keep a connection until closed, or until the relay no longer lets us in."""
        delays = self._policy.delays()
        while True:
            try:
                code = await channel.read(self._take)
            finally:
                self._channel = None
                await channel.close()
            if code == TOO_BIG:
                self._refuse_largest()
            lost = self._count_lost()
            # What was lost twice may be why: it comes back ever later.
            if channel.heard and lost < _LOST_TWICE:
                delays = self._policy.delays()
            channel = await self._connect(delays, within=None)
            self._resume(channel)

    async def _connect(self, delays: Iterator[float], *, within: float | None) -> Channel:
        give_up_at = None if within is None else self._policy.now() + within
        while True:
            delay = next(delays)
            if delay:
                await self._policy.sleep(delay)
            try:
                async with asyncio.timeout(within or CONNECT_SECONDS_MAX):
                    return await self._connect_once()
            except _UNREACHED as error:
                if give_up_at is not None and self._policy.now() >= give_up_at:
                    raise UnreachableError(
                        f"{self._url}: {error or type(error).__name__}"
                    ) from error

    async def _connect_once(self) -> Channel:
        if self._session is None:
            self._session = aiohttp.ClientSession()
        token = await self._tokens.current()
        try:
            channel = await self._greet(self._session, token)
        except UnauthenticatedError:
            token = await self._tokens.renewed(token)
            if token is None:
                raise
            channel = await self._greet(self._session, token)
        if self.agent not in {None, channel.agent}:
            await channel.close()
            raise UnauthenticatedError(
                f"the token is {channel.agent}'s, not {self.agent}'s",
                next_step=f"Leave out the agent, or use a token of {self.agent}.",
            )
        self.agent = channel.agent
        self._process = channel.process
        return channel

    async def _greet(self, session: aiohttp.ClientSession, token: str | None) -> Channel:
        hello: dict[str, Any] = {"token": token, "resume": self._process, "batch": True}
        if self._heartbeat_seconds is not None:
            hello["heartbeat_seconds"] = self._heartbeat_seconds
        every = pings_every(self._heartbeat_seconds)
        return await Channel.open(session, self._url, hello, ping_seconds=every)

    def _resume(self, channel: Channel) -> None:
        """Go on over `channel`: with what was not answered, and the credit that was not used."""
        self._channel = channel
        for call in self._calls.values():
            if not call.answer.done():
                channel.send(call.frame)
        if self._stream is not None:
            credit = self._stream.resumed()
            if credit:
                self.send_credit(credit)

    def _take(self, message: Message) -> None:
        """Hand a message to whoever waits for it."""
        if message.get("push") == "delivery":
            if self._stream is not None:
                self._stream.push(message["delivery"])
            return
        call = self._calls.pop(message.get("id", 0), None)
        if call is None:
            if "error" in message:  # about a frame without an id, or the caller is gone
                _LOG.warning("the relay refused something: %s", message["error"])
            return
        if call.answer.done():
            return
        if "error" in message:
            call.answer.set_exception(from_json(message["error"]))
        else:
            call.answer.set_result(message["ok"])

    def _count_lost(self) -> int:
        """Refuse the calls that were sent too often; return how often one of the others was."""
        most, lost = self._policy.unanswered_max, 0
        for call in self._calls.values():
            if call.waits or call.answer.done():
                continue
            call.lost += 1
            lost = max(lost, call.lost)
            if call.lost >= most:
                error = UnansweredError(f"{most} connections ended before the relay answered")
                call.answer.set_exception(error)
        return lost

    def _refuse_largest(self) -> None:
        """Refuse the call that made the relay hang up; sending it again would do so again."""
        if not self._calls:
            return
        largest = max(self._calls.values(), key=lambda call: len(call.frame))
        if not largest.answer.done():
            error = TooLargeError(f"{len(largest.frame)} bytes are more than the relay takes")
            largest.answer.set_exception(error)

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        assert error is not None, "a connection is kept until it is cancelled or refused"
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """Refuse everything that waits, and everything later."""
        refusal = error if isinstance(error, NodropError) else UnreachableError(repr(error))
        self._ended = self._ended or refusal
        for call in self._calls.values():
            if not call.answer.done():
                call.answer.set_exception(refusal)
        if self._stream is not None:
            self._stream.end(refusal)


class _Pushed:
    """Deliveries as the relay pushes them, and the credit that bounds them.

    The relay takes one from the credit for whatever it pushes, repeats included. A new connection
    begins without any, and repeats what was not acknowledged.
    """

    def __init__(self, transport: WebSocketTransport, credit: int) -> None:
        self._transport = transport
        self._unspent = credit
        self._owed = 0
        """Pushed beyond the credit before the connection broke; kept back from what comes next."""
        self._waiting: deque[Message] = deque()
        self._something = asyncio.Event()
        self._closed = False
        self._refusal: NodropError | None = None
        self.breaks = 0
        """How many connections there were after the first."""

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._closed:
            while self._waiting and not self._closed:
                yield self._waiting.popleft()
            if self._refusal is not None:
                raise self._refusal
            if not self._closed:
                self._something.clear()
                await self._something.wait()

    def grant(self, n: int) -> None:
        """Let `n` more come."""
        if self._closed:
            return
        self._unspent += n
        kept = min(self._owed, n)
        self._owed -= kept
        if n > kept:
            self._transport.send_credit(n - kept)

    def resumed(self) -> int:
        """Return the credit to begin a new connection with."""
        self.breaks += 1
        self._owed = max(-self._unspent, 0)
        return 0 if self._closed else max(self._unspent, 0)

    def push(self, delivery: Message) -> None:
        """Take what the relay pushed."""
        self._unspent -= 1
        self._waiting.append(delivery)
        self._something.set()

    def end(self, refusal: NodropError) -> None:
        """Tell the reader that nothing will come any more."""
        self._refusal = refusal
        self._something.set()

    async def close(self) -> None:
        """Stop taking. Credit cannot be withdrawn, so the next connection begins without any."""
        self._closed = True
        self._something.set()
        await self._transport.hello_again()
