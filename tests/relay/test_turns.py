"""Turns: so many of one agent's at a time, the others in line; who gives up costs nobody anything."""

import asyncio
from collections.abc import Generator
from contextlib import AsyncExitStack
from typing import Any
from unittest import mock

import pytest

from nodrop.model.errors import QueueFullError
from nodrop.relay.room import Turns

ALICE, MALLORY = ("default", "alice"), ("default", "mallory")


class Queue:
    """Those who want a turn, and who has one."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}

    def ask(self, name: str, key: tuple[str, str] = ALICE) -> asyncio.Task[None]:
        async def work() -> None:
            async with self._turns.turn(key):
                self.began.append(name)
                await self.ends[name].wait()

        self.ends[name] = asyncio.Event()
        return asyncio.create_task(work())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_turns_are_given_in_order_and_others_do_not_wait() -> None:
    queue = Queue(Turns(2))
    asked = [queue.ask(f"alice {n}") for n in range(4)] + [queue.ask("mallory", MALLORY)]
    await settled()
    assert queue.began == ["alice 0", "alice 1", "mallory"]
    queue.ends["alice 1"].set()
    await settled()
    assert queue.began[3:] == ["alice 2"]
    for end in queue.ends.values():
        end.set()
    await asyncio.gather(*asked)
    assert queue.began[4:] == ["alice 3"]


async def test_who_gives_up_loses_no_turn_for_those_behind() -> None:
    queue = Queue(Turns(1))
    first, second, third, fourth = (queue.ask(name) for name in ("1st", "2nd", "3rd", "4th"))
    await settled()
    second.cancel()
    queue.ends["1st"].set()  # its turn goes to the second, which is gone
    await asyncio.gather(first, second, return_exceptions=True)
    await settled()
    assert queue.began == ["1st", "3rd"]
    queue.ends["3rd"].set()
    await third
    fourth.cancel()  # its turn came in this very moment
    await asyncio.gather(fourth, return_exceptions=True)
    fifth = queue.ask("5th")
    await settled()
    assert queue.began[-1] == "5th"
    queue.ends["5th"].set()
    await fifth


async def test_a_line_has_room_for_so_many() -> None:
    turns = Turns(1)
    queue = Queue(turns)
    asked = [queue.ask(f"alice {n}") for n in range(3)]
    await settled()
    with pytest.raises(QueueFullError, match="2 requests of alice wait"):
        async with turns.turn(ALICE, waiting_max=2):
            pass
    async with turns.turn(MALLORY, waiting_max=2):
        pass
    asked[1].cancel()
    await settled()
    late = asyncio.create_task(turns.turn(ALICE, waiting_max=2).__aenter__())
    for end in queue.ends.values():
        end.set()
    await asyncio.gather(*asked, late, return_exceptions=True)
    assert late.exception() is None


class Compared(asyncio.Future[Any]):
    """A future that counts how often it is compared with another."""

    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)


class SemaphoreTurns(Turns):
    """As a semaphore of asyncio does it: a control."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._semaphore = asyncio.Semaphore(most)

    def turn(self, key: tuple[str, str], *, waiting_max: int | None = None) -> Any:
        del key, waiting_max
        return self._semaphore


@pytest.fixture
def compared() -> Generator[type[Compared]]:
    Compared.times = 0

    def made(self: asyncio.AbstractEventLoop) -> Compared:
        return Compared(loop=self)

    with mock.patch.object(asyncio.BaseEventLoop, "create_future", made):
        yield Compared


@pytest.mark.parametrize(("turns", "is_right"), [(Turns, True), (SemaphoreTurns, False)])
async def test_a_thousand_who_give_up_at_once_do_not_look_for_one_another(
    compared: type[Compared],
    turns: type[Turns],
    is_right: bool,  # noqa: FBT001  # pytest passes it by name
) -> None:
    async with AsyncExitStack() as stack:
        queue = Queue(turns(1))
        first = queue.ask("first")
        await settled()
        waiting = [queue.ask(f"alice {n}") for n in range(1_000)]
        await settled()
        stack.callback(first.cancel)
        for each in reversed(waiting):
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert (compared.times < 10 * len(waiting)) is is_right
