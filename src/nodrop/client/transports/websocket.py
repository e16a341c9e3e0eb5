"""The WebSocket transport: one channel at a time, repaired when it breaks.

Whatever was not answered when a connection broke is sent again unchanged over the next one; the
`command_id` inside keeps the relay from doing anything twice. It is sent a bounded number of times: the relay
may have stopped over it.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from nodrop.client.auth.tokens import Tokens
from nodrop.client.transports import retrying, trust
from nodrop.client.transports.channel import TOO_BIG, Channel, Message, pings_every
from nodrop.client.transports.connection_log import ConnectionLog
from nodrop.client.transports.retrying import Retrying
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    TooLargeError,
    UnansweredError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
)
from nodrop.protocol.decoding import encode_strict
from nodrop.protocol.errors import from_json
from nodrop.protocol.pushed import Brief, Ended, Followed, Stored

_LOG: Final = logging.getLogger("nodrop.client")

FIRST_SECONDS_MAX: Final = 2.0
"""How long a person waits to hear that no relay is there."""
CONNECT_SECONDS_MAX: Final = 10.0
"""One try to connect, the hello included."""

TOLD_MAX: Final = 64
"""Quiet commands that are kept before the relay is asked whether they are durable."""
_ANY: Final = msgspec.json.Decoder(dict[str, Any])
_QUIET: Final = b',"quiet":true}'
_SIGN_OF_LIFE: Final = b'{"op":"flush"}'
"""A frame that asks for nothing, and costs the relay no transaction."""
"""How the frame of a quiet command ends."""

_LOST_TWICE: Final = 2
_UNREACHED: Final = (OSError, aiohttp.ClientError, UnavailableError)
"""What may be different a moment later. A refusal that is the caller's fault is not among them."""


_Answer = asyncio.Future[Message]


class _Offered(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The answer to an offer, as far as it is needed at once."""

    handoff: Brief


_BRIEF: Final = msgspec.json.Decoder(Brief)
_OFFERED: Final = msgspec.json.Decoder(_Offered)


class _Call(msgspec.Struct, eq=False):
    """A frame, kept until it is answered."""

    frame: bytes
    answer: _Answer
    waits: bool
    """Whether no answer is expected before something happens."""
    followed: Followed | None = None
    """The outcome, which the relay will push if its answer says so."""
    lost: int = 0
    """How many connections ended after it was sent and before it was answered."""

    def refuse(self, error: NodropError) -> None:
        """Have the caller told why there is no answer."""
        if not self.answer.done():
            self.answer.set_exception(error)


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
        ca: Path | None = None,
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
            ca: certificates of the CAs to trust, if not the system's.
            first_seconds_max: how long to try for a first connection; None tries for ever.
            policy: how to try again.
        """
        self.agent = agent
        self._url = url
        self._tokens = tokens
        self._trusted = trust.context(ca)
        self._first_seconds_max = first_seconds_max
        self._policy = policy
        self._connection_log = ConnectionLog(url, now=policy.now)
        self._ids = itertools.count(1)
        self._calls: dict[int, _Call] = {}
        self._followed: dict[int, Followed] = {}
        """Outcomes that the relay will push, by the ids of their offers."""
        self._told: dict[int, bytes] = {}
        """Quiet commands that may not be durable yet."""
        self._flushing = False
        self._insisting: set[asyncio.Task[None]] = set()
        """Quiet commands that the relay could not take, and is asked for again."""
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
        about = {} if handoff is None else {"handoff_id": handoff}
        if name is not None:
            about["name"] = name
        return _ANY.decode((await self._asked(operation, fields, about)).ok)

    def carry_out(
        self, operation: str, fields: Mapping[str, Any], handoff: str
    ) -> Awaitable[Message]:
        """Have a command carried out whose answer is not read; see `transport.Pushing`."""
        if self._running is None:
            return self._asked(operation, fields, {"handoff_id": handoff, "bare": True})
        call_id = next(self._ids)
        message = {"id": call_id, "op": operation, **fields, "handoff_id": handoff, "bare": True}
        return self._send(call_id, encode_strict(message)).answer

    async def _asked(
        self, operation: str, fields: Mapping[str, Any], besides: Mapping[str, Any]
    ) -> Message:
        """Return the answer to a frame of these fields."""
        if self._running is None or self._ended is not None:
            await self.open()
        call_id = next(self._ids)
        message = {"id": call_id, "op": operation, **fields, **besides}
        frame = encode_strict(message)
        try:
            return await self._send(call_id, frame, bool(fields.get("wait"))).answer
        except UnavailableError as error:
            return await self._again(error, operation, fields, call_id, frame)

    async def call_followed(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> Stored:
        """Make an offer and have its outcome pushed; see `transport.Pushing`."""
        assert handoff is name is None, "only offers are followed"
        if self._running is None or self._ended is not None:
            await self.open()
        call_id = next(self._ids)
        frame = encode_strict({"id": call_id, "op": operation, **fields, "follow": True})
        followed = Followed()
        try:
            call = self._send(call_id, frame)
            call.followed = followed
            answer = await call.answer
        except UnavailableError as error:
            answer = await self._again(error, operation, fields, call_id, frame, followed=followed)
        return Stored(
            brief=_OFFERED.decode(answer.ok).handoff,
            answer=answer.ok.copy(),  # the frame that it came in may hold many others
            followed=followed if answer.follows else None,
        )

    def tell(self, operation: str, fields: Mapping[str, Any], *, handoff: str) -> None:
        """Have a quiet command carried out; see `transport.Pushing`."""
        if self._ended is not None:
            _LOG.warning("%s of %s cannot be told: %s", operation, handoff, self._ended)
            return
        call_id = next(self._ids)
        message = {"id": call_id, "op": operation, "handoff_id": handoff, **fields, "quiet": True}
        self._told[call_id] = frame = encode_strict(message)
        if self._channel is not None:
            self._channel.add(frame)
        if len(self._told) >= TOLD_MAX and not self._flushing:
            self._begin_flush()

    async def flush(self) -> None:
        """Return when all quiet commands are durable, or were refused."""
        while (self._told or self._insisting) and self._ended is None:
            if self._insisting:
                await asyncio.wait(self._insisting)
            else:
                await asyncio.wait([self._begin_flush()])

    async def deliveries(self, *, process: str, heartbeat_seconds: float, credit: int) -> "_Pushed":
        """Take work as `process`; see `transport.Transport`."""
        assert self._stream is None, "one stream of deliveries per transport"
        self._stream = _Pushed(self, credit)
        if (process, heartbeat_seconds) != (self._process, self._heartbeat_seconds):
            self._process, self._heartbeat_seconds = process, heartbeat_seconds
            await self.hello_again()  # which process this is belongs into the hello
        elif self._channel is not None:
            self.grant(credit)
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

    def send_sign_of_life(self) -> None:
        """Send a frame that asks for nothing."""
        if self._channel is not None:
            self._channel.add(_SIGN_OF_LIFE)

    def grant(self, n: int) -> None:
        """Tell the relay that `n` more deliveries may come. Lost with the connection."""
        if self._channel is not None:
            self._channel.grant(n)

    async def _again(
        self,
        error: UnavailableError,
        operation: str,
        fields: Mapping[str, Any],
        call_id: int,
        frame: bytes,
        *,
        followed: Followed | None = None,
    ) -> Message:
        """Send a frame again that the relay could not take; raise `error` where that is not safe."""
        if isinstance(error, UnansweredError) or not retrying.is_repeatable(operation, fields):
            raise error
        waits = bool(fields.get("wait"))

        async def ask() -> Message:
            call = self._send(call_id, frame, waits)
            call.followed = followed
            return await call.answer

        return await self._policy.until_taken(ask)

    def _send(self, call_id: int, frame: bytes, waits: bool = False) -> _Call:  # noqa: FBT001, FBT002  # private, and called often
        """Send a frame, over the next connection too until it is answered."""
        if self._ended is not None:
            raise self._ended
        answer: _Answer = asyncio.Future()
        call = self._calls[call_id] = _Call(frame, answer, waits)
        channel = self._channel
        if channel is not None:
            channel.send(frame)
        return call

    # --- quiet commands -------------------------------------------------------------------------

    def _begin_flush(self) -> _Answer:
        """Ask whether the quiet commands so far are durable."""
        self._flushing = True
        call_id = next(self._ids)
        answer = self._send(call_id, b'{"id":%d,"op":"flush"}' % call_id).answer
        answer.add_done_callback(partial(self._flushed, tuple(self._told)))
        return answer

    def _flushed(self, covered: Sequence[int], answer: asyncio.Future[Message]) -> None:
        self._flushing = False
        if answer.cancelled():
            return
        error = answer.exception()
        if isinstance(error, UnansweredError):  # one of them may be why
            _LOG.warning("quiet commands were given up: %s", error)
        elif error is not None:
            return
        for call_id in covered:
            self._told.pop(call_id, None)

    def _refused_quietly(self, frame: bytes, call_id: int, error: NodropError) -> None:
        if isinstance(error, UnavailableError):
            task = asyncio.create_task(self._insist(call_id, frame))
            self._insisting.add(task)
            task.add_done_callback(self._insisting.discard)
        elif not isinstance(error, ForbiddenError):  # it was not ours to say
            _LOG.warning("the relay refused a quiet command: %s", error.detail)

    async def _insist(self, call_id: int, frame: bytes) -> None:
        """Say a quiet command again, and wait for the answer."""
        loud = frame.removesuffix(_QUIET) + b"}"
        try:
            await self._policy.until_taken(lambda: self._send(call_id, loud).answer)
        except NodropError as error:
            _LOG.warning("the relay refused a quiet command: %s", error.detail)

    # --- the connection -------------------------------------------------------------------------

    async def _run(self, channel: Channel) -> None:
        """Keep a connection until closed, or until the relay no longer lets us in."""
        delays = self._policy.delays()
        while True:
            try:
                code = await channel.read(self._take)
                if not channel.closed:
                    self._connection_log.lost("no close frame" if code is None else f"code {code}")
            finally:
                self._channel = None
                self._follow_no_more()
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
        delay = next(delays)
        while True:
            if delay:
                await self._policy.sleep(delay)
            try:
                async with asyncio.timeout(within or CONNECT_SECONDS_MAX):
                    channel = await self._connect_once()
            except _UNREACHED as error:
                if give_up_at is not None and (
                    trust.is_untrusted(error) or self._policy.now() >= give_up_at
                ):
                    raise trust.unreached(self._url, error) from error
                delay = next(delays)
                patient = give_up_at is None
                self._connection_log.failed(error, again_in=delay, patient=patient)
            else:
                self._connection_log.connected(channel.agent)
                return channel

    async def _connect_once(self) -> Channel:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._trusted)
            self._session = aiohttp.ClientSession(connector=connector)
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
        for frame in self._told.values():  # before a flush that shall cover them
            channel.send(frame)
        # What was refused meanwhile, or whose caller was cancelled, needs no answer any more.
        self._calls = {n: call for n, call in self._calls.items() if not call.answer.done()}
        for call in self._calls.values():
            channel.send(call.frame)
        if self._told and not self._flushing:
            self._begin_flush()  # which bounds how often they are sent
        if self._stream is not None:
            credit = self._stream.resumed()
            if credit is not None:  # also none: what waits for a busy process is told to it
                self.grant(credit)

    def _take(self, message: Message) -> None:
        """Hand a message to whoever waits for it."""
        call_id = message.id or 0  # a push has none, and those of calls begin with 1
        if message.delivery is not None:
            if self._stream is not None:
                self._stream.push(message.delivery)
        elif message.outcome is not None:
            followed = self._followed.pop(call_id, None)
            if followed is None and (call := self._calls.get(call_id)) is not None:
                followed = call.followed  # it ended before its offer was answered
            if followed is not None:
                brief, handoff = _BRIEF.decode(message.handoff), message.handoff.copy()
                followed.end(Ended(brief=brief, handoff=handoff, outcome=message.outcome))
        elif (call := self._calls.pop(call_id, None)) is not None:
            answer = call.answer
            if message.error is not None:
                call.refuse(from_json(message.error))
            elif not answer.done():
                if message.follows and call.followed is not None and not call.followed.done:
                    self._followed[call_id] = call.followed
                answer.set_result(message)
        elif message.error is not None:
            self._take_refusal(call_id, message.error)
        elif message.offered is not None and self._stream is not None:
            self._stream.push_waiting(message.offered)

    def _take_refusal(self, call_id: int, error: dict[str, Any]) -> None:
        """Take a refusal of what nobody waits for."""
        frame = self._told.pop(call_id, None)
        if frame is not None:
            self._refused_quietly(frame, call_id, from_json(error))
        elif (followed := self._followed.pop(call_id, None)) is not None:
            followed.end(None)  # and it has to be asked for
        else:  # about a frame without an id, or the caller is gone
            _LOG.warning("the relay refused something: %s", error)

    def _follow_no_more(self) -> None:
        """Have outcomes asked for that a lost connection would have brought."""
        over, self._followed = self._followed, {}
        for followed in over.values():
            followed.end(None)

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
                call.refuse(error)
        return lost

    def _refuse_largest(self) -> None:
        """Refuse the call that made the relay hang up; sending it again would do so again."""
        if not self._calls:
            return
        largest = max(self._calls.values(), key=lambda call: len(call.frame))
        largest.refuse(TooLargeError(f"{len(largest.frame)} bytes are more than the relay takes"))

    def _stopped(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        assert error is not None, "a connection is kept until it is cancelled or refused"
        if isinstance(error, NodropError):
            self._connection_log.refused(error)
        self._end(error)

    def _end(self, error: BaseException) -> None:
        """Refuse everything that waits, and everything later."""
        refusal = error if isinstance(error, NodropError) else UnreachableError(repr(error))
        self._ended = self._ended or refusal
        for call in self._calls.values():
            call.refuse(refusal)
        self._follow_no_more()
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
        self._waiting: deque[dict[str, Any]] = deque()
        self._offers: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._listens = False
        """Whether anybody reads what waits."""
        self._take: Callable[[dict[str, Any]], None] | None = None
        """Takes deliveries as they are pushed; None: they are kept until they are read."""
        self._reader: asyncio.Future[None] | None = None
        """Waits for something to read."""
        self._closed = False
        self._refusal: NodropError | None = None
        self.breaks = 0
        """How many connections there were after the first."""

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        while not self._closed:
            while self._waiting and not self._closed:
                yield self._waiting.popleft()
            if self._refusal is not None:
                raise self._refusal
            if not self._closed:
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader

    async def hand_to(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Hand deliveries to `take` as they are pushed, until closed."""
        self._take = take
        try:
            async for delivery in self:  # what was pushed before
                take(delivery)
        finally:
            self._take = None

    async def waiting(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what waits for the agent without credit, until closed."""
        self._listens = True
        while (offer := await self._offers.get()) is not None:
            yield offer

    def push_waiting(self, offer: dict[str, Any]) -> None:
        """Take what the relay told of."""
        if self._listens:
            self._offers.put_nowait(offer)

    def grant(self, n: int) -> None:
        """Let `n` more come."""
        if self._closed:
            return
        self._unspent += n
        if self._owed:
            kept = min(self._owed, n)
            self._owed -= kept
            n -= kept
        if n:
            self._transport.grant(n)

    def show_life(self) -> None:
        """Tell the relay that this process is alive."""
        self._transport.send_sign_of_life()

    def resumed(self) -> int | None:
        """Return the credit to begin a new connection with; None: nothing is taken any more."""
        self.breaks += 1
        self._owed = max(-self._unspent, 0)
        return None if self._closed else max(self._unspent, 0)

    def push(self, delivery: dict[str, Any]) -> None:
        """Take what the relay pushed."""
        self._unspent -= 1
        if self._take is not None:
            self._take(delivery)
            return
        self._waiting.append(delivery)
        if self._reader is not None:
            self._wake()

    def _wake(self) -> None:
        """Have the reader look for what there is."""
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    def end(self, refusal: NodropError) -> None:
        """Tell the reader that nothing will come any more."""
        self._refusal = refusal
        self._wake()
        self._offers.put_nowait(None)

    async def close(self) -> None:
        """Stop taking. Credit cannot be withdrawn, so the next connection begins without any."""
        self._closed, self._take = True, None
        self._wake()
        self._offers.put_nowait(None)
        await self._transport.hello_again()
