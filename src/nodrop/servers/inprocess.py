"""The in-process door: a relay for callers in the same process, exactly as strict as a wire.

`InProcessTransport` has the shape of the client's `Transport` and knows nothing of the client.
Requests go through the same reader as the bytes of the other doors, so the same request is refused
with the same words; answers come back as the plain values that JSON would give.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec

from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    NotFoundError,
    QueueFullError,
    TooLargeError,
)
from nodrop.protocol.decoding import encode_strict
from nodrop.protocol.routes import ROUTES
from nodrop.protocol.views import PushView, View, WaitingView
from nodrop.relay.relay import Caller, Relay, Reply, Subscription


class InProcessTransport:
    """One agent's way to a relay in this process."""

    def __init__(
        self,
        relay: Relay,
        caller: Caller,
        *,
        on_close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._relay = relay
        self._caller = caller
        self._on_close = on_close
        self._waiting: set[asyncio.Task[Reply]] = set()
        self._streams: set[InProcessDeliveries] = set()
        self._closed = False

    @property
    def agent(self) -> str:
        """Who is asking."""
        return self._caller.agent

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
        if self._closed:
            raise _closed()
        route = ROUTES.get(operation)
        if route is None:
            raise NotFoundError(f"no operation is called {operation!r}")
        limits = self._relay.limits
        data = encode_strict(fields)
        if len(data) > limits.frame_bytes_max:
            raise TooLargeError(f"the request is larger than {limits.frame_bytes_max} bytes")
        request = route.from_fields(data, name=name, limits=limits)
        name = name or route.name_in(request)
        route.check_address(reference=handoff, name=name)
        call = self._relay.call(
            self._caller, operation, request, reference=handoff, name=name if route.named else None
        )
        reply = await (self._park(call) if getattr(request, "wait", 0) else call)
        return _plain(reply.answer)

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
        if self._closed:
            raise _closed()
        stream = InProcessDeliveries(waiting_max=self._relay.limits.credit_max)
        await stream.open(
            self._relay.subscribe(
                self._caller,
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
        if self._closed:
            return
        self._closed = True
        for task in self._waiting:
            task.cancel()
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
        self._queue: asyncio.Queue[dict[str, Any] | NodropError | None] = asyncio.Queue()
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
        if self._queue.qsize() + len(deliveries) > self._waiting_max:
            self._end(QueueFullError("deliveries are not read as fast as credit is granted"))
            return
        for delivery in deliveries:
            self._queue.put_nowait(_plain(delivery))

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        """Yield deliveries until closed."""
        while (delivery := await self._queue.get()) is not None:
            if isinstance(delivery, NodropError):
                raise delivery
            yield delivery

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

    def _end(self, error: NodropError | None) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
            self._queue.put_nowait(error)
            self._offers.put_nowait(None)


def _closed() -> InvalidRequestError:
    """Return what every transport answers once it is closed: asking again would not help."""
    return InvalidRequestError("the connection was closed", next_step="Connect again.")


def _plain(view: View) -> dict[str, Any]:
    """Return a view as JSON would give it back, payloads that are kept as bytes included."""
    return msgspec.json.decode(msgspec.json.encode(view))
