"""The relay's time: costly requests of one agent wait, many small ones take turns, large ones go aside."""

import asyncio
import threading
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from nodrop.app import open_relay
from nodrop.model.errors import InvalidRequestError, QueueFullError, UnavailableError
from nodrop.model.limits import DEFAULT
from nodrop.protocol.coordination.talk_requests import ListTopics
from nodrop.protocol.requests import GetInbox
from nodrop.relay.asking import Awaited
from nodrop.relay.relay import Caller, Relay
from nodrop.relay.room import COSTLY_SECONDS, SLICE_SECONDS, Shares

ALICE, MALLORY = ("default", "alice"), ("default", "mallory")


@pytest.fixture
def shares() -> Shares:
    return Shares(DEFAULT, used=time.thread_time)


async def test_an_agent_that_used_up_its_slice_waits_for_the_next_turn_of_the_loop(
    shares: Shares,
) -> None:
    for _ in range(10):
        shares.spent(MALLORY, SLICE_SECONDS / 10)
    assert not shares.is_free(MALLORY)
    assert shares.is_free(ALICE)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert shares.is_free(MALLORY)


async def test_waiting_requests_of_one_agent_let_those_of_another_through(shares: Shares) -> None:
    order: list[str] = []

    async def ask(name: str, key: tuple[str, str]) -> None:
        await shares.turn(key)
        order.append(name)
        shares.spent(key, SLICE_SECONDS)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(ask(f"mallory {number}", MALLORY))
        group.create_task(ask("alice", ALICE))
    assert order[:2] == ["mallory 0", "alice"]
    assert order[2:] == [f"mallory {number}" for number in range(1, 5)]


async def test_a_costly_request_makes_its_agent_wait_longer_than_a_turn(shares: Shares) -> None:
    shares.spent(MALLORY, COSTLY_SECONDS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not shares.is_free(MALLORY)


async def test_large_work_of_one_agent_is_done_one_at_a_time_off_the_loop(shares: Shares) -> None:
    here, at_once = threading.get_ident(), 0
    seen: list[tuple[int, int]] = []

    def work() -> None:
        nonlocal at_once
        at_once += 1
        seen.append((threading.get_ident(), at_once))
        at_once -= 1

    await asyncio.gather(*(shares.aside(MALLORY, work) for _ in range(5)))
    assert {count for _, count in seen} == {1}
    assert here not in {thread for thread, _ in seen}


def _refuse() -> Any:
    raise InvalidRequestError("wrong")


async def test_what_large_work_raises_is_raised(shares: Shares) -> None:
    with pytest.raises(InvalidRequestError):
        await shares.aside(MALLORY, _refuse)


async def test_large_work_is_refused_once_the_relay_stops(shares: Shares) -> None:
    shares.close()
    with pytest.raises(UnavailableError):
        await shares.aside(MALLORY, lambda: None)


async def test_paced_work_of_one_agent_lets_that_of_another_through(shares: Shares) -> None:
    """Each step of it takes a turn, not only its beginning."""
    order: list[str] = []
    woken = asyncio.Event()

    async def poll(name: str, key: tuple[str, str]) -> None:
        await woken.wait()
        order.append(name)
        shares.spent(key, SLICE_SECONDS)

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            work = shares.measured(MALLORY, poll(f"mallory {number}", MALLORY), paced=True)
            group.create_task(_awaited(work))
        group.create_task(poll("alice", ALICE))
        await asyncio.sleep(0)
        woken.set()
    assert order[:2] == ["mallory 0", "alice"]
    assert order[2:] == [f"mallory {number}" for number in range(1, 5)]


async def test_paced_work_that_waits_for_its_turn_can_be_cancelled(shares: Shares) -> None:
    ended: list[str] = []

    async def poll() -> None:
        try:
            await asyncio.sleep(0)
            ended.append("was carried on")
        finally:
            ended.append("is over")

    waiting = asyncio.create_task(_awaited(shares.measured(MALLORY, poll(), paced=True)))
    await asyncio.sleep(0)
    shares.spent(MALLORY, 10 * COSTLY_SECONDS)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == ["is over"]


async def test_paced_work_is_refused_where_too_much_of_it_waits() -> None:
    limits = msgspec.structs.replace(DEFAULT, reads_waiting_per_agent_max=2)
    shares = Shares(limits, used=time.thread_time)
    shares.spent(MALLORY, 10 * COSTLY_SECONDS)

    async def poll() -> None:
        pass

    works = [shares.measured(MALLORY, poll(), paced=True) for _ in range(5)]
    waiting = [asyncio.create_task(_awaited(work)) for work in works]
    found = await asyncio.gather(*waiting, return_exceptions=True)
    shares.close()
    assert [type(each) for each in found] == [type(None)] * 3 + [QueueFullError] * 2


async def test_the_time_of_a_poll_is_counted_for_its_agent(tmp_path: Path) -> None:
    """It was not: a poll runs in a task of its own, and a thousand that woke had the relay to themselves."""
    async with open_relay(tmp_path / "team.db", home=tmp_path) as relay:
        caller, spent = Caller(team="default", agent="mallory"), list[tuple[str, str]]()
        count = relay.shares.spent

        def counted(key: tuple[str, str], seconds: float) -> None:
            spent.append(key)
            count(key, seconds)

        relay.shares.spent = counted
        await relay.call(caller, "inbox", GetInbox(wait=0.001))
        assert MALLORY in spent


@pytest.mark.parametrize("in_debt", [True, False], ids=["in debt", "CONTROL: free"])
async def test_what_is_asked_for_on_a_channel_begins_when_its_agent_has_time(
    tmp_path: Path, *, in_debt: bool
) -> None:
    async with open_relay(tmp_path / "team.db", home=tmp_path) as relay:
        caller = Caller(team="default", agent="mallory")
        begun = asyncio.Event()

        def begin(*_: object) -> None:
            begun.set()

        with mock.patch.object(Relay, "_carry_out", side_effect=begin):
            if in_debt:
                relay.shares.spent(MALLORY, 10 * COSTLY_SECONDS)
            asking = Awaited(caller, "topics", ListTopics())
            relay.ask(asking)
            for _ in range(10):
                await asyncio.sleep(0)
            assert begun.is_set() is not in_debt
            async with asyncio.timeout(20):
                await begun.wait()
        asking.answered.cancel()


async def _awaited(work: Awaitable[None]) -> None:
    await work
