"""Following: who waits for a handoff is told once, by the commit that brings it about."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
from msgspec.structs import replace

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.errors import NotFoundError, QueueFullError, UnavailableError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffAnswer
from nodrop.relay.handoffs import following
from nodrop.relay.relay import Caller, Relay, Reply
from nodrop.testing.clock import FakeClock

ME = Caller(team="default", agent="inbox_monitor")
WORKER = Caller(team="default", agent="code_agent")
OFFER = requests.Offer(to="code_agent", title="Login button")
FINISHED = requests.GetHandoff(wait="30s", until="finished")


class Coy(MemoryStore):
    """A store that has nothing at hand: everything must be asked for."""

    def cached(self, key: tuple[str, str]) -> None:
        del key


@pytest.fixture(params=[MemoryStore, Coy])
async def relay(
    request: pytest.FixtureRequest, started: Callable[[Store, Limits], Awaitable[Relay]]
) -> Relay:
    relay = await started(request.param(), DEFAULT)
    await relay.ensure_team("default")
    return relay


async def turn() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def offered(relay: Relay) -> str:
    return shown(await relay.call(ME, "offer", OFFER)).handoff.id


def shown(reply: Reply) -> HandoffAnswer:
    assert isinstance(reply.answer, HandoffAnswer)
    return reply.answer


def rungs(reply: Reply) -> list[str]:
    return [receipt.rung for receipt in shown(reply).handoff.receipts]


async def ended(relay: Relay, handoff_id: str) -> None:
    about = {"reference": handoff_id}
    await relay.call(WORKER, "ack", requests.Ack(), **about)
    await relay.call(WORKER, "complete", requests.Complete(attempt=1, result=7), **about)


async def test_who_waits_is_told_by_the_commit_and_sees_the_outcome(relay: Relay) -> None:
    handoff_id = await offered(relay)
    call = relay.call(ME, "get_handoff", FINISHED, reference=handoff_id)
    waiting = asyncio.create_task(call)
    await turn()
    assert not waiting.done()
    await ended(relay, handoff_id)
    reply = await asyncio.wait_for(waiting, 30)
    outcome = shown(reply).handoff.outcome
    assert outcome is not None
    assert outcome.result == 7
    assert rungs(reply)[-2:] == ["finished", "outcome_delivered"]


async def test_a_wait_that_runs_out_shows_how_far_it_is(relay: Relay, clock: FakeClock) -> None:
    handoff_id = await offered(relay)
    call = relay.call(ME, "get_handoff", FINISHED, reference=handoff_id)
    waiting = asyncio.create_task(call)
    await turn()
    clock.advance(29_999)
    await turn()
    assert not waiting.done()
    clock.advance(1)
    reply = await asyncio.wait_for(waiting, 30)
    assert (shown(reply).wait_elapsed, shown(reply).handoff.state) == (True, "offered")


async def test_who_went_away_is_not_waited_for(relay: Relay) -> None:
    handoff_id = await offered(relay)
    call = relay.call(ME, "get_handoff", FINISHED, reference=handoff_id)
    waiting = asyncio.create_task(call)
    await turn()
    waiting.cancel()
    await turn()
    await ended(relay, handoff_id)
    looked = await relay.call(WORKER, "get_handoff", requests.GetHandoff(), reference=handoff_id)
    assert rungs(looked)[-1] == "finished"  # and not that anybody was told


async def test_a_stranger_learns_nothing_by_waiting(relay: Relay) -> None:
    handoff_id = await offered(relay)
    stranger = Caller(team="default", agent="stranger")
    with pytest.raises(NotFoundError):
        await relay.call(stranger, "get_handoff", FINISHED, reference=handoff_id)


async def test_a_relay_that_stops_lets_nobody_wait(relay: Relay) -> None:
    handoff_id = await offered(relay)
    call = relay.call(ME, "get_handoff", FINISHED, reference=handoff_id)
    waiting = asyncio.create_task(call)
    await turn()
    await relay.stop()
    with pytest.raises(UnavailableError):
        await asyncio.wait_for(waiting, 30)


@pytest.mark.parametrize(
    ("at_once", "outcome"),
    [
        (following.SHOWN_AT_ONCE, nullcontext()),
        (10_000, pytest.raises(AssertionError, match="in one turn")),  # a control
    ],
)
async def test_a_thousand_who_follow_one_handoff_are_told_in_several_turns_of_the_loop(
    relay: Relay,
    monkeypatch: pytest.MonkeyPatch,
    at_once: int,
    outcome: AbstractContextManager[object],
) -> None:
    monkeypatch.setattr(following, "SHOWN_AT_ONCE", at_once)
    told: Counter[int] = Counter()
    turns = 0
    end = following.Following._end  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # it is counted

    def counted(self: following.Following, follower: following.Follower) -> None:
        told[turns] += not follower.ended
        end(self, follower)

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    handoff_id = await offered(relay)
    calls = (relay.call(ME, "get_handoff", FINISHED, reference=handoff_id) for _ in range(1_000))
    waiting = [asyncio.create_task(call) for call in calls]
    await turn()
    monkeypatch.setattr(following.Following, "_end", counted)
    loop = asyncio.get_running_loop()
    count()
    await ended(relay, handoff_id)
    assert {rungs(await each)[-1] for each in waiting} == {"outcome_delivered"}
    with outcome:
        assert max(told.values()) <= 64, "in one turn"


async def test_a_wait_that_is_refused_makes_no_room_for_another(
    started: Callable[[Store, Limits], Awaitable[Relay]],
) -> None:
    relay = await started(MemoryStore(), replace(DEFAULT, waits_per_agent_max=1))
    await relay.ensure_team("default")
    handoff_id = await offered(relay)
    waiting = asyncio.create_task(relay.call(ME, "get_handoff", FINISHED, reference=handoff_id))
    await turn()
    for _ in range(3):
        again = relay.call(ME, "get_handoff", FINISHED, reference=handoff_id)
        with pytest.raises(QueueFullError):
            await asyncio.wait_for(again, 30)
    waiting.cancel()
