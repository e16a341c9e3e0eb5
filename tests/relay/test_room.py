"""Backpressure: bounds that refuse with a code and a time to come back, and never drop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest import mock

import msgspec
import pytest
from msgspec.structs import replace

from nodrop.log.memory import MemoryStore
from nodrop.model.errors import QueueFullError, RateLimitedError
from nodrop.model.limits import DAY, DEFAULT, MINUTE, Limits
from nodrop.protocol import requests
from nodrop.relay.relay import Caller, Relay
from nodrop.relay.room import Room
from nodrop.testing.clock import FakeClock

Started = Callable[[Any, Limits], Awaitable[Relay]]

LIMITS = replace(
    DEFAULT,
    open_handoffs_max=5,
    inbox_handoffs_max=7,
    offers_per_second_max=10.0,
    commands_per_second_max=50.0,
)


@pytest.fixture
def kept() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def tight(started: Started, kept: MemoryStore) -> Relay:
    return await started(kept, LIMITS)


async def ask(
    relay: Relay, agent: str, operation: str, request: requests.Request, about: str | None = None
) -> Any:
    caller = Caller(team="default", agent=agent)
    return (await relay.call(caller, operation, request, reference=about)).answer


async def offer(relay: Relay, sender: str, to: str, **fields: Any) -> str:
    answer = await ask(relay, sender, "offer", requests.Offer(to=to, **fields))
    return answer.handoff.id


async def many(relay: Relay, sender: str, to: str, n: int) -> list[str | BaseException]:
    offers = (offer(relay, sender, to) for _ in range(n))
    return await asyncio.gather(*offers, return_exceptions=True)


async def test_a_requester_has_so_many_unfinished_handoffs_and_no_more(tight: Relay) -> None:
    made = await many(tight, "a", "b", 8)  # together, in one commit
    assert [type(m) for m in made] == [str] * 5 + [QueueFullError] * 3
    refused = made[-1]
    assert isinstance(refused, QueueFullError)
    assert refused.retry_after_seconds == 5.0
    assert await offer(tight, "c", "b")  # others are not concerned
    assert isinstance(made[0], str)
    await ask(tight, "a", "cancel", requests.Cancel(), made[0])
    assert await offer(tight, "a", "b")
    with pytest.raises(QueueFullError):
        await offer(tight, "a", "b")


async def test_an_inbox_holds_so_much_and_no_more(tight: Relay) -> None:
    for sender in "abcdefg":
        assert await offer(tight, sender, "busy")
    with pytest.raises(QueueFullError, match="busy"):
        await offer(tight, "h", "busy")
    mine = await offer(tight, "h", "idle")
    with pytest.raises(QueueFullError, match="busy"):
        await ask(tight, "h", "reassign", requests.Reassign(to="busy"), mine)


async def test_a_repeat_is_answered_though_everything_is_full(tight: Relay) -> None:
    first = await offer(tight, "a", "b", idempotency_key="k", command_id="c")
    await many(tight, "a", "b", 4)
    assert await offer(tight, "a", "b", idempotency_key="k", command_id="c") == first
    assert await offer(tight, "a", "b", idempotency_key="k") == first


async def test_a_leg_for_a_full_inbox_is_born_rejected(tight: Relay) -> None:
    for sender in "cdefghi":
        await offer(tight, sender, "busy")
    legs = (requests.LegSpec(to="busy"),)
    made = await offer(tight, "a", "b", then=legs)
    await ask(tight, "b", "ack", requests.Ack(), made)
    done = await ask(tight, "b", "complete", requests.Complete(attempt=1), made)
    leg = await ask(tight, "a", "get_handoff", requests.GetHandoff(), done.handoff.next_leg)
    assert (leg.handoff.state, leg.handoff.outcome.code) == ("rejected", "queue_full")


async def routed(relay: Relay, clock: FakeClock) -> str:
    """Return a handoff that `a` has, and that `b`, whose inbox is full, would be asked for next."""
    for agent in ("a", "b", "c"):
        manifest = msgspec.Raw(
            msgspec.json.encode({"agent_id": agent, "capabilities": [{"name": "triage"}]})
        )
        caller = Caller(team="default", agent=agent)
        request = requests.Register(agent=agent, manifest=manifest)
        await relay.call(caller, "register", request, name=agent)
    clock.advance(3 * DAY)
    for agent in ("a", "b"):  # while nobody has heard of `c` for long
        await ask(relay, agent, "heartbeat", requests.Heartbeat())
    for sender in "defghij":
        await offer(relay, sender, "b")
    answer = await ask(relay, "k", "offer", requests.Offer(capability="triage"))
    assert answer.handoff.to == "a"
    return answer.handoff.id


async def holder(relay: Relay, handoff_id: str) -> str:
    found = await ask(relay, "k", "get_handoff", requests.GetHandoff(), handoff_id)
    return found.handoff.to


async def test_who_has_a_full_inbox_is_not_asked_next_if_there_is_another(
    tight: Relay, clock: FakeClock
) -> None:
    handoff = await routed(tight, clock)
    await ask(tight, "a", "reject", requests.Reject(), handoff)
    assert await holder(tight, handoff) == "c"
    # What is stored already is not dropped because everybody has much to do.
    await ask(tight, "c", "reject", requests.Reject(), handoff)
    assert await holder(tight, handoff) == "b"


async def test_nor_asked_first(tight: Relay, clock: FakeClock) -> None:
    handoff = await routed(tight, clock)
    await ask(tight, "a", "reject", requests.Reject(), handoff)
    for sender in "defghij":
        await offer(tight, sender, "a")
    # Those who were heard of lately both have too much waiting.
    answer = await ask(tight, "l", "offer", requests.Offer(capability="triage"))
    assert answer.handoff.to == "c"


async def test_nor_where_nobody_accepts_in_time(tight: Relay, clock: FakeClock) -> None:
    handoff = await routed(tight, clock)
    clock.advance(15 * MINUTE)
    moved = requests.GetLog(handoff_id=handoff, type="handoff.reassigned.v1", wait="1s")
    assert (await ask(tight, "k", "log", moved)).entries
    assert await holder(tight, handoff) == "c"


async def test_the_counts_are_exact_after_a_restart(
    tight: Relay, kept: MemoryStore, started: Started
) -> None:
    made = await many(tight, "a", "b", 5)
    await ask(tight, "a", "cancel", requests.Cancel(), str(made[0]))
    await ask(tight, "a", "reassign", requests.Reassign(to="c"), str(made[1]))
    await tight.stop()
    again = await started(kept, LIMITS)
    refilled = await many(again, "a", "b", 3)
    assert [type(m) for m in refilled] == [str, QueueFullError, QueueFullError]
    others = [await many(again, sender, "c", 4) for sender in ("d", "e")]
    assert [type(m) for made in others for m in made] == [str] * 6 + [QueueFullError] * 2


async def test_who_offers_too_fast_is_told_when_to_come_back(
    tight: Relay, clock: FakeClock
) -> None:
    for n in range(20):
        handoff = await offer(tight, "a", f"r{n}")
        await ask(tight, "a", "cancel", requests.Cancel(), handoff)
    with pytest.raises(RateLimitedError) as refused:
        await offer(tight, "a", "r")
    assert refused.value.retry_after_seconds == pytest.approx(0.1)
    assert await offer(tight, "b", "r")
    clock.advance(100)
    assert await offer(tight, "a", "r")


async def test_heartbeats_are_never_rate_limited(tight: Relay) -> None:
    for _ in range(300):
        await ask(tight, "a", "heartbeat", requests.Heartbeat())
    for _ in range(100):
        await ask(tight, "a", "note_team", requests.Note(text="x"))
    with pytest.raises(RateLimitedError):
        await ask(tight, "a", "note_team", requests.Note(text="x"))


async def test_control_without_reservations_a_burst_passes_between_two_commits(
    tight: Relay,
) -> None:
    with mock.patch.object(Room, "reserve"), mock.patch.object(Room, "release"):
        made = await many(tight, "a", "b", 7)
    assert [type(m) for m in made] == [str] * 7
