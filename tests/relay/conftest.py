"""A relay on a memory store that fails when told to, and a clock that moves when told to."""

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.limits import DEFAULT, Limits
from nodrop.relay.relay import Relay
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.faulty import FaultyStore


class CountedIds:
    """Ids in order, so that a failing test reads well."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"019b76da-a800-7000-8000-{next(self._numbers):012d}"

    def secret(self) -> str:
        return f"secret-{next(self._numbers)}"

    def salt(self) -> bytes:
        return next(self._numbers).to_bytes(16)


class NoSigner:
    """Signatures are not what these tests are about."""

    @property
    def public_key(self) -> str:
        return "none"

    def sign(self, message: bytes) -> str:
        return f"none over {len(message)} bytes"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
async def started(clock: FakeClock) -> AsyncGenerator[Callable[[Any, Limits], Awaitable[Relay]]]:
    """Start a relay on a store under limits of its own; it is stopped at the end."""
    ids = CountedIds()
    async with AsyncExitStack() as stack:

        async def start(store: Any, limits: Limits = DEFAULT) -> Relay:
            relay = await Relay.start(store, clock=clock, ids=ids, signer=NoSigner(), limits=limits)
            stack.push_async_callback(relay.stop)
            await relay.ensure_team("default")
            return relay

        yield start


@pytest.fixture
async def relay(store: FaultyStore, clock: FakeClock) -> AsyncGenerator[Relay]:
    kept = cast("Store", store)  # what it does not do itself it leaves to a store
    relay = await Relay.start(kept, clock=clock, ids=CountedIds(), signer=NoSigner())
    await relay.ensure_team("default")
    yield relay
    await relay.stop()
