"""The bound on how many handlers of a capability run at once."""

import asyncio

from nodrop.client.working.running import Slot


async def taken(slot: Slot, order: list[int], number: int) -> None:
    await slot.wait()
    order.append(number)


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_room_goes_to_who_has_waited_longest() -> None:
    slot, order = Slot(0), list[int]()
    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(taken(slot, order, number))
        await turns()
        assert order == []
        slot.release()
        await turns()
        assert order == [0]
        slot.release()
        slot.release()
    assert (order, slot.free) == ([0, 1, 2], 0)
    slot.release()
    assert slot.free == 1


async def test_who_is_cancelled_takes_no_room() -> None:
    slot, order = Slot(0), list[int]()
    first, second = (asyncio.create_task(taken(slot, order, number)) for number in range(2))
    await turns()
    first.cancel()
    await turns()
    slot.release()
    await turns()
    assert (order, slot.free) == ([1], 0)
    assert second.done()


async def test_room_that_comes_with_a_cancellation_goes_to_the_next() -> None:
    slot, order = Slot(0), list[int]()
    first, second = (asyncio.create_task(taken(slot, order, number)) for number in range(2))
    await turns()
    slot.release()  # it is the first one's, which has not gone on yet
    first.cancel()
    await turns()
    assert (order, slot.free) == ([1], 0)
    assert first.cancelled()
    assert second.done()
