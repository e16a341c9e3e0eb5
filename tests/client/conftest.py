"""A scripted relay for everything that talks to one through a transport."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

import nodrop
from nodrop.client.client import Client
from nodrop.client.transports.retrying import Retrying
from nodrop.client.working.worker import Pace, Worker
from nodrop.model.errors import NodropError

WAIT_SECONDS_MAX = 30.0

Fields = dict[str, Any]


def delivery(
    handoff_id: str = "h1", *, attempt: int = 1, capability: str | None = "triage", **view: Any
) -> Fields:
    handoff: Fields = {
        "id": handoff_id,
        "ref": f"inbox_monitor/{handoff_id}",
        "state": "delivered",
        "attempt": attempt,
        "capability": capability,
        "payload": {"n": 1},
        **view,
    }
    return {"handoff": handoff, "attempt": attempt, "checkpoint": None, "steps": {}, "answers": {}}


class FakeTransport:
    """Records what is asked for, refuses what it is told to, and delivers what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Fields, str | None]] = []
        self.happened: asyncio.Queue[tuple[str, Fields, str | None]] = asyncio.Queue()
        self.refusals: dict[str, deque[NodropError]] = {}
        self.answers: dict[str, deque[Fields]] = {}
        """What to answer next; where there is nothing, something plausible is answered."""
        self.held: list[tuple[str, int]] = []
        self.stream = FakeStream()
        self.closed = False
        self.process = ""
        self.heartbeat_seconds = 0.0

    async def call(
        self,
        operation: str,
        fields: Mapping[str, Any],
        *,
        handoff: str | None = None,
        name: str | None = None,
    ) -> Fields:
        said = dict(fields) | ({"name": name} if operation == "step" else {})
        self.calls.append((operation, said, handoff))
        self.happened.put_nowait((operation, said, handoff))
        await asyncio.sleep(0)
        if refusals := self.refusals.get(operation):
            raise refusals.popleft()
        if answers := self.answers.get(operation):
            return answers.popleft()
        match operation:
            case "register":
                return {"agent": {"agent_id": name}}
            case "heartbeat":
                return {"held": [list(key) for key in self.held]}
            case "step":
                return {"name": name, "recorded": True, "value": fields["value"]}
            case _:
                return {"handoff": delivery(handoff or "")["handoff"]}

    async def deliveries(
        self, *, process: str, heartbeat_seconds: float, credit: int
    ) -> "FakeStream":
        self.process, self.heartbeat_seconds = process, heartbeat_seconds
        self.stream.granted.append(credit)
        self.stream.opened.set()
        return self.stream

    async def close(self) -> None:
        self.closed = True

    def answer(self, operation: str, *answers: Fields) -> None:
        """Have these answers given, in this order."""
        self.answers.setdefault(operation, deque()).extend(answers)

    def refuse(self, operation: str, *errors: NodropError) -> None:
        """Have these refusals given, in this order."""
        self.refusals.setdefault(operation, deque()).extend(errors)

    def deliver(self, handoff_id: str = "h1", **said: Any) -> None:
        """Push a delivery."""
        self.stream.deliver(delivery(handoff_id, **said))

    def said(self, *besides: str) -> list[str]:
        """What was asked for, besides signing up and the like."""
        return [operation for operation, _, _ in self.calls if operation not in besides]

    async def next(self, operation: str) -> Fields:
        """Wait for a call and return what it said."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                happened, fields, _ = await self.happened.get()
                if happened == operation:
                    return fields


class FakeStream:
    """Deliveries that the test hands over."""

    def __init__(self) -> None:
        self.breaks = 0
        self.granted: list[int] = []
        self.signs_of_life = 0
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self.offers: asyncio.Queue[Fields | None] = asyncio.Queue()
        self._queue: asyncio.Queue[Fields | None] = asyncio.Queue()

    async def waiting(self) -> AsyncIterator[Fields]:
        while (offer := await self.offers.get()) is not None:
            yield offer

    async def __aiter__(self) -> AsyncIterator[Fields]:
        while (item := await self._queue.get()) is not None:
            yield item

    async def hand_to(self, take: Callable[[Fields], None]) -> None:
        async for item in self:
            take(item)

    def deliver(self, item: Fields) -> None:
        self._queue.put_nowait(item)

    def grant(self, n: int) -> None:
        self.granted.append(n)

    def show_life(self) -> None:
        self.signs_of_life += 1

    async def close(self) -> None:
        self.closed.set()


class Ticks:
    """Sleeps that end when the test says so."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[float, asyncio.Future[None]]] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        if seconds == 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((seconds, future))
        await future

    async def tick(self, seconds: float | None = None) -> None:
        """End the oldest sleep that somebody still sleeps; of this length, if one is named."""
        others: list[tuple[float, asyncio.Future[None]]] = []
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                length, future = await self._waiting.get()
                if not future.done() and seconds in {None, length}:
                    break
                others.append((length, future))
        for other in others:
            self._waiting.put_nowait(other)
        future.set_result(None)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def relay() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def ticks() -> Ticks:
    return Ticks()


@pytest.fixture
def agent() -> nodrop.Agent:
    return nodrop.Agent("code_agent")


Soon = Callable[[asyncio.Event], Awaitable[None]]
Working = Callable[..., AbstractAsyncContextManager[asyncio.Event]]


@pytest.fixture
def working(relay: FakeTransport, ticks: Ticks, clock: Clock) -> Working:
    """A worker that works while the block runs, and is stopped at its end."""

    @asynccontextmanager
    async def working(agent: nodrop.Agent, *, grace: float = 10) -> AsyncGenerator[asyncio.Event]:
        policy = Retrying(sleep=ticks.sleep, random=lambda: 1.0)
        pace = Pace(heartbeat_seconds=5, grace_seconds=grace, policy=policy, now=clock)
        client = Client(relay, agent=agent.name)
        worker = Worker(agent, client, process="p", pace=pace)
        stopping = asyncio.Event()
        running = asyncio.create_task(worker.run(stopping))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await relay.stream.opened.wait()
        try:
            yield stopping
        finally:
            stopping.set()
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await running

    return working


class Endless:
    """A handler that goes on until it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
def soon() -> Soon:
    """Wait for an event, not for ever."""

    async def soon(event: asyncio.Event) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await event.wait()

    return soon
