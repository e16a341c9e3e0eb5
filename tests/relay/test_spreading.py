"""Routing by capability: work that is placed together is spread over the idle agents."""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from nodrop.model.errors import AlreadyFinishedError, StoreUnavailableError
from nodrop.model.limits import MINUTE
from nodrop.protocol import requests as r
from nodrop.protocol.coordination import trigger_requests
from nodrop.relay.relay import Caller, Relay
from nodrop.relay.room import LARGE_BYTES
from nodrop.testing.clock import FakeClock
from nodrop_proof.kit.faulty import Fault, FaultyStore

ME = Caller(team="default", agent="requester")
NAMES = ("a", "b", "c", "d", "e")
TWICE_EACH = Counter(dict.fromkeys(NAMES, 2))


async def publish(relay: Relay, *agents: str, capability: str = "square") -> None:
    for agent in agents:
        manifest = {"agent_id": agent, "capabilities": [{"name": capability}]}
        request = r.Register(agent=agent, manifest=msgspec.Raw(msgspec.json.encode(manifest)))
        await relay.call(Caller(team="default", agent=agent), "register", request, name=agent)


async def ask(relay: Relay, operation: str, request: r.Request) -> Any:
    return (await relay.call(ME, operation, request)).answer


async def offer(relay: Relay, **fields: Any) -> Any:
    fields.setdefault("capability", "square")
    request = r.Offer(**fields)
    return (await ask(relay, "offer", request)).handoff


async def burst(relay: Relay, n: int, **fields: Any) -> list[Any]:
    return await asyncio.gather(*(offer(relay, **fields) for _ in range(n)))


async def unfinished(relay: Relay) -> Counter[str]:
    shown = (await ask(relay, "list_handoffs", r.ListHandoffs())).handoffs
    return Counter(h.to for h in shown if h.outcome is None)


async def test_a_burst_in_one_commit_is_spread(relay: Relay, store: FaultyStore) -> None:
    await publish(relay, *NAMES)
    before = store.transactions
    made = await burst(relay, 10)
    assert store.transactions == before + 1
    assert Counter(h.to for h in made) == TWICE_EACH


async def test_a_burst_of_large_payloads_is_spread(relay: Relay) -> None:
    await publish(relay, *NAMES)
    made = await burst(relay, 10, payload={"text": "x" * (LARGE_BYTES + 1)})
    assert Counter(h.to for h in made) == TWICE_EACH


async def test_offers_read_while_a_commit_is_under_way_are_spread(
    relay: Relay, store: FaultyStore
) -> None:
    await publish(relay, *NAMES)
    begun = store.transactions
    store.gate.clear()
    first = asyncio.create_task(burst(relay, 5))
    while store.transactions == begun:  # noqa: ASYNC110  # a store says nothing when it is asked
        await asyncio.sleep(0)
    second = asyncio.create_task(burst(relay, 5))
    store.gate.set()
    assert Counter(h.to for h in await first + await second) == TWICE_EACH


async def test_the_members_of_one_group_are_spread(relay: Relay) -> None:
    await publish(relay, *NAMES)
    members = {f"m{i}": r.Offer(capability="square") for i in range(10)}
    answer = await ask(relay, "offer_group", r.OfferGroup(offers=members))
    assert Counter(member.to for member in answer.group.members.values()) == TWICE_EACH


async def test_what_one_event_triggers_is_spread(relay: Relay) -> None:
    await publish(relay, *NAMES)
    operator = Caller(team="default", agent="requester", operator=True)
    for i in range(10):
        rule = trigger_requests.PutTrigger(on="bug", offer=r.Offer(capability="square"))
        await relay.call(operator, "put_trigger", rule, name=f"rule{i}")
    await ask(relay, "emit", trigger_requests.Emit(type="bug"))
    assert await unfinished(relay) == TWICE_EACH


async def test_next_legs_opened_in_one_commit_are_spread(relay: Relay) -> None:
    await publish(relay, *NAMES)
    first = Caller(team="default", agent="first")
    then = (r.LegSpec(capability="square"),)
    made = [await offer(relay, to="first", capability=None, then=then) for _ in range(10)]
    for handoff in made:
        await relay.call(first, "ack", r.Ack(), reference=handoff.id)
    done = (
        relay.call(first, "complete", r.Complete(attempt=1), reference=handoff.id)
        for handoff in made
    )
    await asyncio.gather(*done)
    assert await unfinished(relay) == TWICE_EACH


async def test_handoffs_that_move_on_in_one_commit_are_spread(
    relay: Relay, clock: FakeClock
) -> None:
    await publish(relay, "deaf")
    await burst(relay, 10)
    await publish(relay, *NAMES)
    clock.advance(16 * MINUTE)
    moved = r.GetLog(type="handoff.reassigned.v1", wait="5s")
    while len((await ask(relay, "log", moved)).entries) < 10:
        pass
    assert await unfinished(relay) == TWICE_EACH


async def test_a_refused_offer_leaves_no_trace(relay: Relay) -> None:
    await publish(relay, *NAMES)
    above = await offer(relay, to="above", capability=None)
    await relay.call(ME, "cancel", r.Cancel(), reference=above.id)
    refused = await asyncio.gather(
        *(offer(relay, parent_id=above.id) for _ in range(3)), return_exceptions=True
    )
    assert [type(error) for error in refused] == [AlreadyFinishedError] * 3
    assert Counter(h.to for h in await burst(relay, 10)) == TWICE_EACH


async def test_a_failed_commit_leaves_no_trace(relay: Relay, store: FaultyStore) -> None:
    await publish(relay, *NAMES)
    store.fail_next(Fault.BEFORE_COMMIT)
    with pytest.raises(StoreUnavailableError):
        await offer(relay)
    assert Counter(h.to for h in await burst(relay, 10)) == TWICE_EACH
