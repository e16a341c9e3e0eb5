"""The load of a run: callers that always have something in flight.

They leave it to the SDK to get over whatever happens to their relay. Each has one handoff at a
time; a few share a connection.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from nodrop.client.client import Client
from nodrop.client.transports.connecting import connect
from nodrop.model.errors import UnavailableError
from nodrop_proof.chaos.caller import Caller
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import ServedRelay
from nodrop_proof.chaos.worker import NAME as WORKER

KEYLESS: Final = "keyless"
"""CONTROL: offers carry neither an idempotency key nor a command id."""

CONNECTIONS: Final = 8
CHAIN_EVERY: Final = 8
"""Every so manyth handoff has a second leg."""
FLOW_SECONDS_MAX: Final = 60.0
FINISH_SECONDS_MAX: Final = 120.0
NOBODY: Final = "nobody"
"""An agent that never comes."""
FILLERS_PER_CONNECTION: Final = 32

_LOG: Final = logging.getLogger("nodrop.chaos")


class Callers:
    """A number of callers at one relay; `calling` sets them to work."""

    def __init__(
        self, callers: list[Caller], *, name: str, pause: Callable[[], float] = lambda: 0.0
    ) -> None:
        """Gather them.

        Args:
            callers: one for each connection.
            name: how what they ask for is called.
            pause: how many seconds each does nothing between two handoffs.
        """
        self._callers = callers
        self._name = name
        self._pause = pause
        self._numbers = itertools.count()
        self._stored = 0
        self._enough = 0
        self._reached = asyncio.Event()
        self._offering = asyncio.Event()
        self._stopping = False

    async def flowing(self, answers: int) -> None:
        """Return when `answers` more offers were answered as stored.

        Raises:
            UnavailableError: they were not, in all this time.
        """
        self._enough = self._stored + answers
        self._reached.clear()
        try:
            async with asyncio.timeout(FLOW_SECONDS_MAX):
                await self._reached.wait()
        except TimeoutError as error:
            missing = self._enough - self._stored
            raise UnavailableError(f"{missing} offers got no answer from the relay") from error

    async def offering(self) -> None:
        """Return when somebody hands something off, before the relay can have answered."""
        self._offering.clear()
        async with asyncio.timeout(FLOW_SECONDS_MAX):
            await self._offering.wait()

    def stop(self) -> None:
        """Let every caller finish what it waits for, and begin nothing more."""
        self._stopping = True

    async def _call(self, number: int) -> None:
        """Be one of them."""
        caller = self._callers[number % len(self._callers)]
        while not self._stopping:
            serial = next(self._numbers)
            ask = f"{self._name}-{serial}"
            legs = 2 if serial % CHAIN_EVERY == 0 else 1
            self._offering.set()
            handoff = await caller.hand_off(ask, to=WORKER, legs=legs)
            self._stored += 1
            if self._stored >= self._enough:
                self._reached.set()
            await caller.outcome(ask, handoff)
            await asyncio.sleep(self._pause())

    @asynccontextmanager
    async def at_work(self, count: int) -> AsyncGenerator[None]:
        """Have `count` of them call while the block runs, and then get their last outcomes."""
        tasks = [asyncio.create_task(self._call(number)) for number in range(count)]
        try:
            yield
            self.stop()
            await asyncio.wait(tasks, timeout=FINISH_SECONDS_MAX)
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    _LOG.error("a caller gave up", exc_info=ended)

    async def fill(self, count: int) -> None:
        """Hand off `count` that nobody takes, and that stay open."""
        asks = iter([f"{self._name}-open-{number}" for number in range(count)])

        async def fill_in(caller: Caller) -> None:
            for ask in asks:
                await caller.hand_off(ask, to=NOBODY, waits=False)

        async with asyncio.TaskGroup() as group:
            for caller in self._callers * FILLERS_PER_CONNECTION:
                group.create_task(fill_in(caller))


@asynccontextmanager
async def calling(
    relay: ServedRelay,
    record: Record,
    *,
    callers: int,
    name: str = "ask",
    pause: Callable[[], float] = lambda: 0.0,
    controls: Collection[str] = (),
    fill: int = 0,
) -> AsyncGenerator[Callers]:
    """Keep `callers` at work; at the end each gets its last outcome, or is given up on.

    Before they begin, `fill` handoffs are stored that stay open.
    """
    async with connected(relay) as clients:
        keyless = KEYLESS in controls
        each = [Caller(client, record, keyless=keyless) for client in clients]
        load = Callers(each, name=name, pause=pause)
        await load.fill(fill)
        async with load.at_work(callers):
            yield load


@asynccontextmanager
async def connected(
    relay: ServedRelay, *, count: int = CONNECTIONS
) -> AsyncGenerator[list[Client]]:
    """Connect as several agents that hand off."""
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                connect(relay.url, agent=f"caller-{number}", home=relay.home)
            )
            for number in range(count)
        ]
