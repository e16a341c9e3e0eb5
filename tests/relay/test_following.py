"""Following: who waits for a handoff is told once, by the commit that brings it about."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.errors import NotFoundError, UnavailableError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffAnswer
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
