"""Alarms: one sleeper for everybody who waits."""

import asyncio
from collections.abc import Generator

import pytest

from nodrop.relay.alarms import Alarms
from nodrop.testing.clock import T0, FakeClock


class CountedClock(FakeClock):
    """Also counts who sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: list[int] = []

    async def sleep_until(self, at: int) -> None:
        self.sleeps.append(at - T0)
        await super().sleep_until(at)


@pytest.fixture
def clock() -> CountedClock:
    return CountedClock()


@pytest.fixture
def alarms(clock: CountedClock) -> Generator[Alarms]:
    alarms = Alarms(clock)
    yield alarms
    alarms.close()


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_each_rings_when_it_is_time_and_not_before(
    alarms: Alarms, clock: CountedClock
) -> None:
    rung: list[str] = []
    for name, ms in (("late", 300), ("early", 100), ("also early", 100)):
        alarms.set(T0 + ms, lambda name=name: rung.append(name))
    await turn()
    clock.advance(99)
    await turn()
    assert rung == []
    clock.advance(1)
    await turn()
    assert sorted(rung) == ["also early", "early"]
    clock.advance(500)
    await turn()
    assert rung[2:] == ["late"]


async def test_a_thousand_who_wait_are_one_sleeper(alarms: Alarms, clock: CountedClock) -> None:
    rung: list[int] = []
    for ms in range(1_000):
        alarms.set(T0 + 1_000 + ms, lambda ms=ms: rung.append(ms))
    await turn()
    assert clock.sleeps == [1_000]
    clock.advance(5_000)
    await turn()
    assert rung == list(range(1_000))


async def test_an_earlier_alarm_is_not_slept_through(alarms: Alarms, clock: CountedClock) -> None:
    rung: list[str] = []
    alarms.set(T0 + 1_000, lambda: rung.append("late"))
    await turn()
    alarms.set(T0 + 10, lambda: rung.append("early"))
    await turn()
    clock.advance(10)
    await turn()
    assert rung == ["early"]


async def test_a_cancelled_alarm_does_not_ring_and_nobody_wakes_for_it(
    alarms: Alarms, clock: CountedClock
) -> None:
    rung: list[str] = []
    gone = [alarms.set(T0 + ms, lambda: rung.append("gone")) for ms in (10, 10, 20, 30)]
    alarms.set(T0 + 40, lambda: rung.append("there"))
    await turn()
    for alarm in (*gone, gone[0]):  # twice is harmless
        alarms.cancel(alarm)
    clock.advance(10)
    await turn()
    assert clock.sleeps == [10, 40]  # once for what was armed, then for what is left
    clock.advance(30)
    await turn()
    assert rung == ["there"]


async def test_one_that_fails_when_it_rings_takes_no_other_with_it(
    alarms: Alarms, clock: CountedClock
) -> None:
    rung: list[str] = []

    def fail() -> None:
        raise RuntimeError("cannot be heard")

    alarms.set(T0 + 10, fail)
    alarms.set(T0 + 20, lambda: rung.append("there"))
    await turn()
    clock.advance(20)
    await turn()
    assert rung == ["there"]


@pytest.mark.parametrize("done", [True, False])
async def test_waiting_ends_with_what_is_waited_for_or_with_the_time(
    alarms: Alarms, clock: CountedClock, *, done: bool
) -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(alarms.until(future, T0 + 100))
    await turn()
    assert not waiting.done()
    if done:
        future.set_result("done")
    else:
        clock.advance(100)
    await turn()
    assert waiting.done()
    assert future.done() is done
