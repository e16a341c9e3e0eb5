"""Whoever asks for work again gets what was delivered to the asker who is gone, and nothing strays."""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

from nodrop.log.memory import MemoryTransaction
from nodrop.log.port import Key
from nodrop.model.errors import IdempotencyConflictError, StoreUnavailableError
from nodrop.model.handoff import Handoff
from nodrop.protocol import requests
from nodrop.protocol.views import DeliveriesAnswer, PushView
from nodrop.relay.delivery.waiters import Takers
from nodrop.relay.relay import Caller, Relay, Reply, Subscription
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.faulty import Fault, FaultyStore

SENDER = Caller(team="default", agent="inbox_monitor")
RECIPIENT = Caller(team="default", agent="code_agent")
WAIT_SECONDS_MAX = 30

T = TypeVar("T")


async def soon(work: Awaitable[T]) -> T:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await work


async def offer(relay: Relay) -> None:
    await soon(relay.call(SENDER, "offer", requests.Offer(to="code_agent")))


def take(
    relay: Relay, command_id: str | None = None, *, wait: str = "60s", most: int = 1
) -> asyncio.Future[Reply]:
    request = requests.Take(
        wait=wait, max=most, heartbeat_seconds=10, process="p", command_id=command_id
    )
    return asyncio.ensure_future(relay.call(RECIPIENT, "take", request))


def taken(reply: Reply) -> list[int]:
    assert isinstance(reply.answer, DeliveriesAnswer)
    return [delivery.attempt for delivery in reply.answer.deliveries]


async def parked(relay: Relay) -> None:
    """Return once a take that was asked for waits inside the relay."""
    for _ in range(5):
        await soon(relay.call(SENDER, "heartbeat", requests.Heartbeat()))


async def turns() -> None:
    """Let everybody act who can."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_a_take_whose_wait_ends_during_a_commit_gets_what_the_commit_delivers(
    relay: Relay, store: FaultyStore, clock: FakeClock
) -> None:
    taking = take(relay)
    await parked(relay)
    store.gate.clear()
    before = store.transactions
    offering = asyncio.ensure_future(offer(relay))
    await turns()
    assert store.transactions == before + 1
    clock.advance(60_000)
    await turns()
    store.gate.set()
    assert taken(await soon(taking)) == [1]
    await soon(offering)


async def test_a_repeated_take_gets_what_a_commit_under_way_delivers_to_the_first(
    relay: Relay, store: FaultyStore
) -> None:
    first = take(relay, "c1")
    await parked(relay)
    store.gate.clear()
    before = store.transactions
    offering = asyncio.ensure_future(offer(relay))
    await turns()
    assert store.transactions == before + 1
    again = take(relay, "c1")
    await turns()
    store.gate.set()
    reply = await soon(again)
    assert (taken(reply), reply.replayed) == ([1], True)
    await soon(offering)
    first.cancel()


async def test_a_repeat_of_a_take_that_waits_gets_the_same_deliveries(relay: Relay) -> None:
    both = [take(relay, "c1"), take(relay, "c1")]
    await parked(relay)
    await offer(relay)
    await offer(relay)
    replies = await soon(asyncio.gather(*both))
    assert [taken(reply) for reply in replies] == [[1], [1]]
    assert replies[0].answer == replies[1].answer
    assert taken(await soon(take(relay))) == [1]  # the second offer waited for another take


@pytest.mark.parametrize("gone", [0, 1])
async def test_of_two_takes_of_one_id_one_goes_and_the_other_waits_on(
    relay: Relay, gone: int
) -> None:
    both = [take(relay, "c1"), take(relay, "c1")]
    await parked(relay)
    both[gone].cancel()
    await parked(relay)
    await offer(relay)
    assert taken(await soon(both[1 - gone])) == [1]


async def test_a_take_that_waits_outlives_a_repeat_that_waits_less(
    relay: Relay, clock: FakeClock
) -> None:
    first = take(relay, "c1")
    await parked(relay)
    again = take(relay, "c1", wait="10s")
    await parked(relay)
    clock.advance(10_000)
    assert taken(await soon(again)) == []
    await offer(relay)
    assert taken(await soon(first)) == [1]


async def test_another_request_under_the_id_of_a_take_that_waits_is_refused(
    relay: Relay,
) -> None:
    first = take(relay, "c1")
    await parked(relay)
    with pytest.raises(IdempotencyConflictError):
        await soon(take(relay, "c1", most=2))
    await offer(relay)
    assert taken(await soon(first)) == [1]


async def test_takes_of_different_ids_wait_side_by_side(relay: Relay) -> None:
    both = [take(relay, "c1"), take(relay, "c2"), take(relay), take(relay)]
    await parked(relay)
    for _ in both:
        await offer(relay)
    assert [taken(reply) for reply in await soon(asyncio.gather(*both))] == [[1]] * 4


async def test_a_process_that_subscribes_again_takes_the_place_of_its_earlier_subscription(
    relay: Relay,
) -> None:
    heard: list[list[PushView]] = [[], []]

    def hear(number: int, deliveries: Sequence[PushView]) -> None:
        heard[number].extend(deliveries)

    def subscribe(number: int, process: str) -> None:
        subscription = relay.subscribe(
            RECIPIENT,
            process=process,
            heartbeat_seconds=10,
            deliver=lambda deliveries: hear(number, deliveries),
        )
        subscription.grant(10)

    subscribe(0, "p")
    subscribe(1, "p")
    for _ in range(4):
        await offer(relay)
    await parked(relay)
    assert [len(deliveries) for deliveries in heard] == [0, 4]


async def test_a_process_is_not_resumed_while_the_store_cannot_tell_what_it_holds(
    relay: Relay, store: FaultyStore
) -> None:
    subscription = relay.subscribe(
        RECIPIENT, process="p", heartbeat_seconds=10, deliver=lambda _: None
    )
    await parked(relay)
    store.fail_next(Fault.BEFORE_COMMIT)
    with pytest.raises(StoreUnavailableError):
        await soon(subscription.resume())


async def leaves_while_the_store_is_read(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer goes as its inbox is looked through; the next one must get what was there."""
    got: list[PushView] = []

    def subscribe(process: str) -> Subscription:
        return relay.subscribe(RECIPIENT, process=process, heartbeat_seconds=10, deliver=got.extend)

    await offer(relay)
    gone = subscribe("gone")
    read = MemoryTransaction.claimable

    async def claimable(
        self: MemoryTransaction, team: str, agent: str, *, limit: int
    ) -> Sequence[Handoff]:
        gone.close()
        return await read(self, team, agent, limit=limit)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryTransaction, "claimable", claimable)
        gone.grant(2)
        await parked(relay)
    subscribe("next").grant(1)
    await parked(relay)
    assert [delivery.attempt for delivery in got] == [1], "the handoff waits beside a consumer"


async def test_what_a_consumer_leaves_behind_goes_to_the_next(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leaves_while_the_store_is_read(relay, monkeypatch)


async def test_a_relay_that_forgets_what_it_did_not_assign_is_found_out(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    recheck = Takers.recheck

    def not_these(self: Takers, keys: Iterable[Key] | None = None) -> None:
        if keys is None:
            recheck(self)

    monkeypatch.setattr(Takers, "recheck", not_these)
    with pytest.raises(AssertionError, match="waits beside a consumer"):
        await leaves_while_the_store_is_read(relay, monkeypatch)


async def test_what_a_commit_gives_to_another_agent_is_not_delivered_by_it_to_the_first(
    relay: Relay, store: FaultyStore
) -> None:
    await offer(relay)
    listed = await soon(relay.call(SENDER, "list_handoffs", requests.ListHandoffs()))
    shown: Any = listed.answer
    store.gate.clear()
    busy = asyncio.ensure_future(relay.call(SENDER, "offer", requests.Offer(to="somebody")))
    await turns()
    request = requests.Reassign(to="other")
    moving = relay.call(SENDER, "reassign", request, reference=shown.handoffs[0].id)
    moved = asyncio.ensure_future(moving)
    taking = take(relay, wait="0s")
    await turns()
    store.gate.set()
    await soon(asyncio.gather(busy, moved))
    assert taken(await soon(taking)) == []
    other = Caller(team="default", agent="other")
    assert taken(await soon(relay.call(other, "take", requests.Take()))) == [1]


async def test_credit_for_an_agent_whose_inbox_is_known_to_be_empty_costs_no_unit_of_work(
    relay: Relay, store: FaultyStore
) -> None:
    got: list[PushView] = []
    subscription = relay.subscribe(RECIPIENT, process="p", heartbeat_seconds=10, deliver=got.extend)
    subscription.grant(1)
    await turns()
    before = store.transactions
    subscription.grant(1)
    await turns()
    assert store.transactions == before, "the inbox was looked through, and holds nothing"
    await offer(relay)
    await offer(relay)
    assert [delivery.attempt for delivery in got] == [1, 1], "the credit counts all the same"
