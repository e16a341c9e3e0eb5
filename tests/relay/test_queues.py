import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from nodrop.log.port import Page, Store
from nodrop.model.errors import StoreUnavailableError
from nodrop.model.handoff import Handoff
from nodrop.relay.delivery.queues import Queues


class SlowLists:
    """A store whose lists take until they are let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.lists = 0
        self.broken = False

    async def list_handoffs(self, _: Page) -> Sequence[Handoff]:
        self.lists += 1
        await self.gate.wait()
        if self.broken:
            raise StoreUnavailableError
        return ()


@pytest.fixture
def store() -> SlowLists:
    return SlowLists()


@pytest.fixture
def queues(store: SlowLists) -> Queues:
    return Queues(cast("Store", store))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_many_who_ask_at_once_make_one_look_into_the_store(
    queues: Queues, store: SlowLists
) -> None:
    asking = [asyncio.create_task(queues.know("default", "a")) for _ in range(64)]
    await turn()
    assert store.lists == 1
    asking[0].cancel()  # the first gives up, and nobody else minds
    store.gate.set()
    told = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(each) for each in told] == [asyncio.CancelledError] + [type(None)] * 63
    await queues.know("default", "a")
    assert store.lists == 1


async def test_a_look_that_failed_is_told_to_all_and_taken_again(
    queues: Queues, store: SlowLists
) -> None:
    store.broken = True
    store.gate.set()
    told = await asyncio.gather(
        *(queues.know("default", "a") for _ in range(3)), return_exceptions=True
    )
    assert [type(each) for each in told] == [StoreUnavailableError] * 3
    store.broken = False
    await queues.know("default", "a")
    assert store.lists == 2
