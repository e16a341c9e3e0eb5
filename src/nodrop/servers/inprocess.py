"""The in-process server: a relay for callers in the same process, exactly as strict as a wire.

`InProcessTransport` has the shape of the client's `Transport` and `Pushing`, and knows nothing of the
client. Requests go through the same reader as the bytes of the other servers, so the same request is
refused with the same words; answers come back as the plain values that JSON would give. Commands are
asked for as a WebSocket connection does: without a task, answered by the commit.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    NotFoundError,
    QueueFullError,
    TooLargeError,
)
from nodrop.protocol.decoding import encode_strict
from nodrop.protocol.pushed import Ended, Followed, Outcome, Stored
from nodrop.protocol.requests import Request
from nodrop.protocol.routes import ROUTES
from nodrop.protocol.views import (
    EndedAnswer,
    PushView,
    View,
    WaitingView,
)
from nodrop.relay.relay import Asking, Caller, Relay, Reply, Subscription

log = logging.getLogger(__name__)

_ENCODER: Final = msgspec.json.Encoder()
_PLAIN: Final = msgspec.json.Decoder(float_hook=float)

_OFFER: Final = "offer"
_READERS: Final = {
    name: msgspec.json.Decoder(ROUTES[name].kind, float_hook=float).decode
    for name in (_OFFER, "ack", "update", "complete", "fail", "settle", "checkpoint", "note")
}
"""The decoders of commands that the relay carries out without a task."""
_LONG_NUMBER: Final = re.compile(rb"[0-9]{19}")
"""It may not fit into 64 bits."""
FOLLOWED_MAX: Final = 4_096
"""Offers of one connection whose outcomes are pushed; those of more have to be asked for."""


class _Call(Asking):
    """A command whose answer a coroutine awaits."""

    __slots__ = ("answer",)

    answer: asyncio.Future[Any]

    def tell(self, reply: Reply) -> None:
        """Take the answer."""
        if not self.answer.done():  # else the caller was cancelled
            self.answer.set_result(reply.answer)

    def refuse(self, error: NodropError) -> None:
        """Take the reason why there is none."""
        if not self.answer.done():
            self.answer.set_exception(error)


class _Offer(_Call):
    """An offer whose outcome is pushed: it is told twice."""

    __slots__ = ("followed", "transport")

    transport: "InProcessTransport"
    followed: Followed | None
    """The outcome, once the offer is stored; None: it has to be asked for."""

    def tell(self, reply: Reply) -> None:
        """Take the answer, or the outcome."""
        answer: Any = reply.answer
        if type(answer) is EndedAnswer:
            self.end(_ended(answer))
        elif not self.answer.done():
            transport, brief = self.transport, answer.handoff
            if len(transport.followed) < FOLLOWED_MAX and not transport.closed:
                self.followed = Followed()
                transport.followed.add(self)
                transport.relay.follow(self, brief.id)
            stored = Stored(brief=brief, answer=answer, followed=self.followed)
            self.answer.set_result(stored)

    def refuse(self, error: NodropError) -> None:
        """Take the reason why there is no answer; or have the outcome asked for."""
        if self.followed is None:
            super().refuse(error)
        else:
            self.end(None)  # who asks is told why

    def end(self, ended: Ended | None) -> None:
        """Push the outcome; None: it has to be asked for."""
        assert self.followed is not None, "it is told of no outcome before"
        self.transport.followed.discard(self)
        self.followed.end(ended)


class _Quiet(Asking):
    """A command that nobody waits for, unless with `flush`."""

    __slots__ = ("_among", "_done")

    _among: "set[_Quiet]"
    """Those of its connection."""
    _done: asyncio.Future[None] | None

    def begin(self, among: "set[_Quiet]") -> None:
        """Be one of those that are being carried out."""
        self._among, self._done = among, None
        among.add(self)

    def tell(self, reply: Reply) -> None:  # noqa: ARG002  # only a refusal is of interest
        """Note that it is durable."""
        self._end()

    def refuse(self, error: NodropError) -> None:
        """Note that it will not be carried out."""
        if not isinstance(error, ForbiddenError):  # it was not ours to say
            log.warning("the relay refused a quiet %s: %s", self.operation, error.detail)
        self._end()

    def done(self) -> "asyncio.Future[None]":
        """Return what is done when it is durable, or was refused."""
        if self._done is None:
            self._done = asyncio.Future()
        return self._done

    def _end(self) -> None:
        self._among.discard(self)
        if self._done is not None and not self._done.done():
            self._done.set_result(None)


class InProcessTransport:
    """One agent's way to a relay in this process."""

    def __init__(
        self,
        relay: Relay,
        caller: Caller,
        *,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.relay = relay
        self._limits = relay.limits
        self._brackets_max = relay.limits.json_levels_max + 1
        self.caller = caller
        self._on_close = on_close
        self._waiting: set[asyncio.Task[Reply]] = set()
        self.followed: set[_Offer] = set()
        """Offers whose outcomes are still to come."""
        self.quiet: set[_Quiet] = set()
        """Quiet commands that are being carried out."""
        self._streams: set[InProcessDeliveries] = set()
        self.closed = False

    @property
    def agent(self) -> str:
        """Who is asking."""
        return self.caller.agent

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Return the answer in plain values.

        Raises:
            NodropError: the relay refused.
        """
        return _plain(await self._asked(operation, fields, handoff, name))

    def carry_out(self, operation: str, fields: Mapping[str, Any], handoff: str) -> Awaitable[View]:
        """Have a command carried out whose answer is not read.

        Raises:
            NodropError: the relay refused.
        """
        request = self._command(operation, fields, handoff)
        call = _Call(self.caller, operation, request, handoff, quiet=True)
        answer = call.answer = asyncio.Future()
        self.relay.ask(call)
        return answer

    async def _asked(
        self,
        operation: str,
        fields: Mapping[str, Any],
        handoff: str | None,
        name: str | None,
    ) -> View:
        """Return the answer as the relay gives it."""
        if operation in _READERS:
            request = self._command(operation, fields, handoff)
            return await self._answered(_Call(self.caller, operation, request, handoff))
        request, name = self._read(operation, fields, handoff, name)
        call = self.relay.call(self.caller, operation, request, reference=handoff, name=name)
        reply = await (self._park(call) if getattr(request, "wait", 0) else call)
        return reply.answer

    async def call_followed(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> Stored:
        """Make an offer and have its outcome pushed.

        Raises:
            NodropError: the relay refused.
        """
        assert handoff is name is None, "only offers are followed"
        offer = _Offer(self.caller, operation, self._command(operation, fields, None))
        offer.transport, offer.followed = self, None
        return await self._answered(offer)

    def tell(self, operation: str, fields: Mapping[str, Any], *, handoff: str) -> None:
        """Have a command carried out that nobody waits for."""
        try:
            request = self._command(operation, fields, handoff)
        except NodropError as error:
            log.warning("%s of %s cannot be told: %s", operation, handoff, error)
            return
        quiet = _Quiet(self.caller, operation, request, handoff, quiet=True)
        quiet.begin(self.quiet)
        self.relay.ask(quiet)

    async def flush(self) -> None:
        """Return when all that was told is durable, or was refused."""
        if self.quiet:
            await asyncio.wait([quiet.done() for quiet in self.quiet])

    def _command(self, operation: str, fields: Mapping[str, Any], handoff: str | None) -> Request:
        """Return the request of a command. One that needs a closer look gets it from `_read`."""
        read = _READERS.get(operation)
        if read is not None and (handoff or operation == _OFFER) and not self.closed:
            data = encode_strict(fields)
            brackets = data.count(b"{") + data.count(b"[")
            # What is read again as it was had no key that is written like another.
            if (
                len(data) <= self._limits.frame_bytes_max
                and _LONG_NUMBER.search(data) is None
                and (
                    brackets == 1
                    or (brackets <= self._brackets_max and _PLAIN.decode(data) == fields)
                )
                and fields.get("signature") is None
            ):
                try:
                    return read(data)
                except msgspec.DecodeError:
                    pass
        return self._read(operation, fields, handoff, None)[0]

    def _read(
        self, operation: str, fields: Mapping[str, Any], handoff: str | None, name: str | None
    ) -> tuple[Request, str | None]:
        """Return the request that `fields` are, and the name that it is about."""
        if self.closed:
            raise _closed()
        route = ROUTES.get(operation)
        if route is None:
            raise NotFoundError(f"no operation is called {operation!r}")
        limits = self._limits
        data = encode_strict(fields)
        if len(data) > limits.frame_bytes_max:
            raise TooLargeError(f"the request is larger than {limits.frame_bytes_max} bytes")
        request = route.from_body(data, name=name, limits=limits)
        if route.named:
            name = name or route.name_in(request)
        route.check_address(reference=handoff, name=name)
        return request, name if route.named else None

    async def _answered(self, asking: _Call) -> Any:
        answer = asking.answer = asyncio.Future()
        self.relay.ask(asking)
        try:
            return await answer
        except asyncio.CancelledError:
            self.relay.leave(asking)
            raise

    async def _park(self, call: Coroutine[Any, Any, Reply]) -> Reply:
        """Return what `call` returns, unless this end is closed before."""
        task: asyncio.Task[Reply] = asyncio.ensure_future(call)
        self._waiting.add(task)
        try:
            await asyncio.wait({task})
            if task.cancelled():
                raise _closed()
            return task.result()
        finally:
            self._waiting.discard(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def deliveries(
        self, *, process: str, heartbeat_seconds: float, credit: int
    ) -> "InProcessDeliveries":
        """Take work as `process`, beginning with `credit` deliveries."""
        if self.closed:
            raise _closed()
        stream = InProcessDeliveries(waiting_max=self.relay.limits.credit_max)
        await stream.open(
            self.relay.subscribe(
                self.caller,
                process=process,
                heartbeat_seconds=heartbeat_seconds,
                deliver=stream.put,
                offered=stream.put_waiting,
            ),
            credit,
        )
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Give up the connection. Calls that wait are refused."""
        if self.closed:
            return
        self.closed = True
        for task in self._waiting:
            task.cancel()
        for offer in tuple(self.followed):
            self.relay.leave(offer)
            offer.end(None)
        for stream in self._streams:
            await stream.close()
        if self._on_close is not None:
            await self._on_close()


class InProcessDeliveries:
    """Deliveries to one process of this agent."""

    breaks = 0
    """A relay in the same process is never out of reach."""

    def __init__(self, *, waiting_max: int) -> None:
        self._waiting_max = waiting_max
        self._unread: deque[dict[str, Any]] = deque()
        self._reader: asyncio.Future[None] | None = None
        """Waits for something to read."""
        self._error: NodropError | None = None
        """Why it ended, if it was not closed."""
        self._offers: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._listens = False
        """Whether anybody reads what waits."""
        self._subscription: Subscription | None = None

    async def open(self, subscription: Subscription, credit: int) -> None:
        """Begin, with what an earlier stream of the same process left unacknowledged."""
        self._subscription = subscription
        try:
            await subscription.prepare()
            await subscription.resume()
            subscription.grant(credit)
        except BaseException:
            subscription.close()
            raise

    def put(self, deliveries: Sequence[PushView]) -> None:
        """Have deliveries read. Credit bounds them, so more than the bound is somebody's fault."""
        if len(self._unread) + len(deliveries) > self._waiting_max:
            self._end(QueueFullError("deliveries are not read as fast as credit is granted"))
            return
        self._unread.extend(map(_plain, deliveries))
        self._wake()

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield deliveries until closed."""
        while self._subscription is not None or self._unread:
            while self._unread:
                yield self._unread.popleft()
            if self._subscription is not None:
                self._reader = asyncio.get_running_loop().create_future()
                await self._reader
        if self._error is not None:
            raise self._error

    async def hand_to(self, take: Callable[[dict[str, Any]], None]) -> None:
        """Hand deliveries to `take`, until closed."""
        async for delivery in self:
            take(delivery)

    def put_waiting(self, offers: Sequence[WaitingView]) -> None:
        """Have it read what waits without credit."""
        for offer in offers if self._listens else ():
            self._offers.put_nowait(_plain(offer))

    async def waiting(self) -> AsyncIterator[dict[str, Any]]:
        """Yield what waits for the agent without credit, until closed."""
        self._listens = True
        while (offer := await self._offers.get()) is not None:
            yield offer

    def grant(self, n: int) -> None:
        """Let `n` more deliveries come."""
        if self._subscription is not None:
            self._subscription.grant(n)

    def show_life(self) -> None:
        """Tell the relay that this process is alive."""
        if self._subscription is not None:
            self._subscription.hear()

    async def close(self) -> None:
        """Stop taking. What was delivered stays leased to the process."""
        self._end(None)

    def _wake(self) -> None:
        """Have the reader look for what there is."""
        reader, self._reader = self._reader, None
        if reader is not None and not reader.done():
            reader.set_result(None)

    def _end(self, error: NodropError | None) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription, self._error = None, error
            self._wake()
            self._offers.put_nowait(None)


def _closed() -> InvalidRequestError:
    """Return what every transport answers once it is closed: asking again would not help."""
    return InvalidRequestError("the connection was closed", next_step="Connect again.")


def _plain(view: View) -> dict[str, Any]:
    """Return a view as JSON would give it back, payloads that are kept as bytes included."""
    return msgspec.json.decode(_ENCODER.encode(view))


def _ended(answer: EndedAnswer) -> Ended:
    """Return an outcome as it is pushed."""
    said = answer.outcome
    outcome = Outcome(
        state=said.state,
        at=said.at,
        by=said.by,
        code=said.code,
        reason=said.reason,
        result=None if said.result is msgspec.UNSET else msgspec.json.decode(said.result),
        verified=said.verified,
    )
    return Ended(brief=answer.handoff, handoff=answer.handoff, outcome=outcome)
