"""Bytes that one agent may have: in unfinished handoffs, in one answer to `take`, in recorded steps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.errors import LimitReachedError, NameTakenError, QueueFullError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests
from nodrop.protocol.views import DeliveriesAnswer, HandoffAnswer
from nodrop.relay.relay import Caller, Relay
from nodrop.relay.room import Incoming

ALICE = Caller(team="default", agent="alice")
BOB = Caller(team="default", agent="bob")
ME = Caller(team="default", agent="me", operator=True)
LARGE = "x" * 100_000

Started = Callable[[Store, Limits], Awaitable[Relay]]


async def running(started: Started, **limits: int) -> Relay:
    relay = await started(MemoryStore(), msgspec.structs.replace(DEFAULT, **limits))
    await relay.ensure_team("default")
    return relay


async def offer(relay: Relay, payload: Any = LARGE, by: Caller = ALICE) -> str:
    reply = await relay.call(by, "offer", requests.Offer(to="bob", payload=payload))
    assert isinstance(reply.answer, HandoffAnswer)
    return reply.answer.handoff.id


async def take(relay: Relay, most: int) -> DeliveriesAnswer:
    reply = await relay.call(BOB, "take", requests.Take(max=most, heartbeat_seconds=10))
    assert isinstance(reply.answer, DeliveriesAnswer)
    return reply.answer


async def finish(relay: Relay, handoff: str) -> None:
    await relay.call(ALICE, "cancel", requests.Cancel(), reference=handoff)


async def test_one_take_gets_as_many_as_an_answer_has_room_for(started: Started) -> None:
    relay = await running(started, page_bytes_max=250_000)
    offered = [await offer(relay) for _ in range(5)]
    sizes: list[int] = []
    while deliveries := (await take(relay, most=256)).deliveries:
        sizes.append(len(deliveries))
    assert sizes == [2, 2, 1]
    assert sum(sizes) == len(offered)


async def test_without_the_bound_it_gets_all_of_them(started: Started) -> None:
    relay = await running(started, page_bytes_max=2**40)
    for _ in range(5):
        await offer(relay)
    assert len((await take(relay, most=256)).deliveries) == 5


async def test_a_delivery_that_is_larger_than_an_answer_may_be_comes_alone(
    started: Started,
) -> None:
    relay = await running(started, page_bytes_max=1)
    await offer(relay)
    await offer(relay)
    assert len((await take(relay, most=2)).deliveries) == 1


async def test_the_bytes_of_unfinished_handoffs_are_bounded_for_each_requester(
    started: Started,
) -> None:
    relay = await running(started, open_bytes_per_agent_max=200_000)
    first, _ = await offer(relay), await offer(relay)
    with pytest.raises(QueueFullError, match="hold 2000") as refused:
        await offer(relay)
    assert "cancel some" in (refused.value.next_step or "")
    await offer(relay, by=ME)
    await finish(relay, first)
    await offer(relay)


async def test_without_the_bound_there_may_be_more(started: Started) -> None:
    relay = await running(started, open_bytes_per_agent_max=2**40)
    for _ in range(3):
        await offer(relay)


async def test_small_handoffs_are_not_counted(started: Started) -> None:
    relay = await running(started, open_bytes_per_agent_max=1)
    for _ in range(3):
        await offer(relay, payload="small")


async def test_where_all_have_much_each_keeps_a_little(started: Started) -> None:
    relay = await running(started, open_bytes_per_relay_max=1, open_bytes_reserved=150_000)
    for by in (ALICE, ME):
        await offer(relay, by=by)
        await offer(relay, by=by)
        with pytest.raises(QueueFullError):
            await offer(relay, by=by)


async def step(relay: Relay, handoff: str, attempt: int, name: str, value: Any) -> None:
    request = requests.Step(attempt=attempt, name=name, value=value)
    await relay.call(BOB, "step", request, reference=handoff, name=name)


async def test_the_steps_of_one_handoff_are_bounded_in_bytes(started: Started) -> None:
    relay = await running(started, left_bytes_max=150_000)
    handoff = await offer(relay, payload=None)
    [delivery] = (await take(relay, most=1)).deliveries
    await relay.call(BOB, "ack", requests.Ack(attempt=delivery.attempt), reference=handoff)
    record = [step(relay, handoff, delivery.attempt, name, LARGE) for name in "abac"]
    await record[0]
    await record[1]
    await record[2]  # a repeat
    with pytest.raises(LimitReachedError, match="hold 2000"):
        await record[3]
    await step(relay, handoff, delivery.attempt, "d", "small")


async def test_without_the_bound_one_more_is_recorded(started: Started) -> None:
    relay = await running(started, left_bytes_max=2**40)
    handoff = await offer(relay, payload=None)
    [delivery] = (await take(relay, most=1)).deliveries
    await relay.call(BOB, "ack", requests.Ack(attempt=delivery.attempt), reference=handoff)
    for name in "abc":
        await step(relay, handoff, delivery.attempt, name, LARGE)


async def test_of_two_names_much_alike_in_one_commit_one_is_registered(started: Started) -> None:
    relay = await running(started)
    told = await asyncio.gather(
        *(
            relay.call(
                ME,
                "register",
                requests.Register(
                    agent=name, manifest=msgspec.Raw(msgspec.json.encode({"agent_id": name}))
                ),
                name=name,
            )
            for name in ("Carol", "carol", "carol.")
        ),
        return_exceptions=True,
    )
    assert [isinstance(answer, NameTakenError) for answer in told] == [False, True, True]


def test_bytes_of_requests_on_their_way_are_bounded_for_each_agent() -> None:
    limits = msgspec.structs.replace(
        DEFAULT, incoming_bytes_per_agent_max=100, incoming_bytes_per_relay_max=250
    )
    incoming = Incoming(limits)
    mallory, alice = ("default", "mallory"), ("default", "alice")
    with incoming.counting(mallory) as first:
        first(60)
        with pytest.raises(QueueFullError, match="60 bytes"), incoming.counting(mallory) as second:
            second(60)
        with incoming.counting(alice) as other:
            other(60)
    with incoming.counting(mallory) as again:
        again(60)
