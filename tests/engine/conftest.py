"""A relay on a memory store that fails when told to, and a clock that moves when told to."""

import itertools
from collections.abc import AsyncGenerator
from typing import cast

import pytest

from nodrop.engine.relay import Relay
from nodrop.store import Store
from nodrop.stores.memory import MemoryStore
from nodrop.testing.clock import FakeClock
from nodrop.testing.faulty import FaultyStore


class CountedIds:
    """Ids in order, so that a failing test reads well."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"019b76da-a800-7000-8000-{next(self._numbers):012d}"

    def secret(self) -> str:
        return f"secret-{next(self._numbers)}"


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
async def relay(store: FaultyStore, clock: FakeClock) -> AsyncGenerator[Relay]:
    kept = cast("Store", store)  # what it does not do itself it leaves to a store
    relay = await Relay.start(kept, clock=clock, ids=CountedIds(), signer=NoSigner())
    await relay.ensure_team("default")
    yield relay
    await relay.stop()
