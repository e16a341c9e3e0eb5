"""A decision that needs something from the store first: it comes back, or somebody is told why not."""

import asyncio
from random import Random
from typing import Any, cast
from unittest.mock import create_autospec

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store, Wanted
from nodrop.model.errors import (
    RelayFaultError,
    StoreFullError,
    StoreUnavailableError,
    UnavailableError,
)
from nodrop.model.limits import DEFAULT
from nodrop.relay.batch import Batch
from nodrop.relay.bodies import Bodies
from nodrop.relay.delivery.deliveries import Deliveries
from nodrop.relay.directory.register import Register
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.consequences import Consequences
from nodrop.relay.handoffs.following import Following
from nodrop.relay.identity.statements import Statements
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.loop import Loop
from nodrop.relay.timers import Timers
from nodrop.testing.clock import FakeClock
from nodrop_proof.simulate.ids import SeededIds

KEY = ("default", "a handoff", 1)


class SlowBodies:
    """A store whose bodies come when they are let through."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.through = asyncio.Event()
        self.error: Exception | None = None
        self._store = MemoryStore()

    async def bodies(self, *_: object) -> dict[tuple[str, int], bytes]:
        self.asked.set()
        await self.through.wait()
        if self.error is not None:
            raise self.error
        return {KEY[1:]: b"what was missing"}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Started:
    """A loop, and a job of its that needs a body."""

    def __init__(self) -> None:
        self.store = SlowBodies()
        store = cast("Store", self.store)
        self.bodies = Bodies(store)
        clock = FakeClock()
        deliveries = create_autospec(Deliveries, instance=True)
        deliveries.serve.return_value = False
        consequences = create_autospec(Consequences, instance=True)
        consequences.promised = {}
        following = create_autospec(Following, instance=True)
        following.followers = {}
        self.engine = Engine(store, clock=clock, limits=DEFAULT)
        self.loop = Loop(
            self.engine,
            store,
            timers=create_autospec(Timers, instance=True),
            deliveries=deliveries,
            consequences=consequences,
            following=following,
            statements=create_autospec(Statements, instance=True),
            register=Register(DEFAULT),
            bodies=self.bodies,
            clock=clock,
            ids=SeededIds(clock, Random(1)),
            committed=lambda _: None,
            flush=lambda: None,
        )
        self.decided = 0

    async def submit(self) -> asyncio.Future[bytes | None]:
        """Have the job decided; return when it waits for the store."""
        await self.loop.start()

        def decide(_: Batch) -> bytes | None:
            self.decided += 1
            return self.bodies.cached(KEY)

        waiting = self.engine.submit(FunctionJob(Wanted(), decide))
        async with asyncio.timeout(30):
            await self.store.asked.wait()
        return waiting


async def test_a_job_that_lacks_a_body_is_decided_once_the_store_gave_it() -> None:
    started = Started()
    waiting = await started.submit()
    started.store.through.set()
    async with asyncio.timeout(30):
        assert await waiting == b"what was missing"
    assert started.decided == 2
    await started.loop.stop()


async def test_a_job_that_waits_for_the_store_when_the_relay_stops_is_refused() -> None:
    started = Started()
    waiting = await started.submit()
    await started.loop.stop()
    started.store.through.set()
    with pytest.raises(UnavailableError, match="stopping"):
        async with asyncio.timeout(30):
            await waiting
    assert started.decided == 1


async def test_what_the_store_gives_while_the_last_commit_ends_is_refused_too() -> None:
    started = Started()
    waiting = await started.submit()
    stopping = asyncio.create_task(started.loop.stop())
    started.store.through.set()  # the fetch and the stop are both under way
    async with asyncio.timeout(30):
        await stopping
        with pytest.raises(UnavailableError, match="stopping"):
            await waiting
    assert started.decided == 1


@pytest.mark.parametrize(
    ("error", "told"),
    [(StoreFullError(), StoreFullError), (OSError("a defect"), StoreUnavailableError)],
)
async def test_a_store_that_cannot_give_it_is_told_to_whoever_waits(
    error: Exception, told: type[Exception]
) -> None:
    started = Started()
    started.store.error = error
    waiting = await started.submit()
    started.store.through.set()
    async with asyncio.timeout(30):
        with pytest.raises(told):
            await waiting
    await started.loop.stop()


async def test_a_job_whose_body_never_stays_at_hand_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = Started()
    monkeypatch.setattr("nodrop.relay.bodies.BYTES_MAX", 0)  # a cache that keeps nothing
    started.store.through.set()
    waiting = await started.submit()
    async with asyncio.timeout(30):
        with pytest.raises(RelayFaultError):
            await waiting
    assert 2 <= started.decided <= 20
    await started.loop.stop()
