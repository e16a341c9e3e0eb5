"""Where much comes due at once, callers get their turn between."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from nodrop.log.memory import MemoryStore
from nodrop.log.port import LogPage
from nodrop.model.limits import DEFAULT, HOUR, Limits
from nodrop.protocol import requests
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.clock import FakeClock

TOGETHER = 10
COMMIT_MS = 50
SENDER = Caller(team="default", agent="inbox_monitor")


class SlowStore(MemoryStore):
    """Takes time to commit, by the test's clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self.commit_ms = 0

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Any]:
        async with super().transaction() as work:
            yield work
        self._clock.advance(self.commit_ms)


async def expired(store: SlowStore) -> int:
    """Return how many have expired once nobody has anything to do before time passes."""
    for _ in range(500):
        await asyncio.sleep(0)
    page = LogPage(team="default", after=0, limit=500)
    return sum(entry.type == "handoff.expired.v1" for entry in await store.log(page))


async def test_clocks_that_ran_out_together_leave_callers_as_much_time_as_they_take(
    started: Callable[[Any, Limits], Awaitable[Relay]], clock: FakeClock
) -> None:
    store = SlowStore(clock)
    relay = await started(store, replace(DEFAULT, batch_commands_max=TOGETHER))
    for number in range(3 * TOGETHER):
        offer = requests.Offer(to="code_agent", deadline="1h", command_id=f"c{number}")
        await relay.call(SENDER, "offer", offer)
    store.commit_ms = COMMIT_MS
    clock.advance(HOUR)
    assert await expired(store) == TOGETHER
    clock.advance(COMMIT_MS - 1)
    assert await expired(store) == TOGETHER, "not before as much time has passed as that took"
    clock.advance(1)
    assert await expired(store) == 2 * TOGETHER
    clock.advance(COMMIT_MS)
    assert await expired(store) == 3 * TOGETHER


async def test_a_slow_commit_puts_off_nothing_that_comes_due_after_it(
    started: Callable[[Any, Limits], Awaitable[Relay]], clock: FakeClock
) -> None:
    store = SlowStore(clock)
    relay = await started(store, replace(DEFAULT, batch_commands_max=TOGETHER))
    for number, deadline in enumerate(("3600000 ms", "3600060 ms")):
        offer = requests.Offer(to="code_agent", deadline=deadline, command_id=f"c{number}")
        await relay.call(SENDER, "offer", offer)
    store.commit_ms = COMMIT_MS
    clock.advance(HOUR)
    assert await expired(store) == 1
    clock.advance(60 - COMMIT_MS)
    assert await expired(store) == 2
