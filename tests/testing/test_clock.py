import asyncio

import pytest

from nodrop.testing.clock import T0, FakeClock


async def sleepers(clock: FakeClock, *times: int) -> list[int]:
    """Start a sleeper for each of `times`; return the list they write themselves into."""
    woken: list[int] = []

    async def sleep(at: int) -> None:
        await clock.sleep_until(at)
        woken.append(at)

    tasks = [asyncio.create_task(sleep(at)) for at in times]
    await asyncio.sleep(0)
    assert all(not task.done() for task in tasks)
    return woken


async def let_run() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_time_moves_only_when_told_to() -> None:
    clock = FakeClock()
    assert clock.now() == T0
    clock.advance(5)
    assert clock.now() == T0 + 5
    clock.set(T0 + 9)
    assert clock.now() == T0 + 9


async def test_sleepers_wake_in_the_order_of_their_times_and_not_before() -> None:
    clock = FakeClock()
    woken = await sleepers(clock, T0 + 30, T0 + 10, T0 + 20, T0 + 10)
    clock.advance(9)
    await let_run()
    assert woken == []
    clock.advance(11)
    await let_run()
    assert woken == [T0 + 10, T0 + 10, T0 + 20]
    clock.set(T0 + 1_000)
    await let_run()
    assert woken[-1] == T0 + 30


async def test_a_time_that_has_come_is_not_waited_for() -> None:
    async with asyncio.timeout(30):
        await FakeClock().sleep_until(T0)


async def test_a_sleeper_that_was_cancelled_does_not_disturb_the_others() -> None:
    clock = FakeClock()
    gone = asyncio.create_task(clock.sleep_until(T0 + 1))
    woken = await sleepers(clock, T0 + 2)
    gone.cancel()
    await let_run()
    clock.advance(2)
    await let_run()
    assert (gone.cancelled(), woken) == (True, [T0 + 2])


def test_time_does_not_run_backwards() -> None:
    clock = FakeClock()
    with pytest.raises(AssertionError):
        clock.set(T0 - 1)
