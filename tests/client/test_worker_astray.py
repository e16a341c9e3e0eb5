"""Deliveries that a relay has made, and that never reached their worker."""

import asyncio
from typing import TYPE_CHECKING

import nodrop
from nodrop.model.errors import StaleAttemptError

WAIT_SECONDS_MAX = 30.0

if TYPE_CHECKING:
    from conftest import Endless, FakeTransport, Ticks, Working


async def test_what_never_arrived_is_given_back_when_it_is_missing_twice(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", ticks: "Ticks"
) -> None:
    @agent.handler
    async def do() -> None: ...

    async with working(agent):
        relay.held = [("never-arrived", 4)]
        for _ in range(2):
            assert "release" not in relay.said()
            await ticks.tick()
            await relay.next("heartbeat")
        assert (await relay.next("release"))["attempt"] == 4
        relay.held = []


async def test_what_arrives_between_two_heartbeats_is_kept(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    ticks: "Ticks",
    endless: "Endless",
) -> None:
    agent.handler(endless)
    async with working(agent, grace=0):
        relay.held = [("h1", 1)]
        await ticks.tick()
        await relay.next("heartbeat")
        relay.deliver("h1", capability=None)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await endless.started.wait()
        for _ in range(2):
            await ticks.tick()
            await relay.next("heartbeat")
        assert "release" not in relay.said()
        assert not endless.ended.is_set()


async def test_a_refusal_to_take_it_back_does_not_stop_the_worker(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", ticks: "Ticks"
) -> None:
    @agent.handler
    async def do() -> None: ...

    async with working(agent):
        relay.held = [("never-arrived", 4)]
        relay.refuse("release", StaleAttemptError())
        for _ in range(3):
            await ticks.tick()
            await relay.next("heartbeat")
        assert "release" in relay.said()
        relay.held = []


async def test_who_holds_nothing_is_quiet_until_something_comes(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", ticks: "Ticks"
) -> None:
    @agent.handler
    async def do() -> None: ...

    async with working(agent):
        await ticks.tick()
        await relay.next("heartbeat")  # an earlier life may have left something
        for _ in range(3):
            await ticks.tick()
        assert relay.said("register") == ["heartbeat"]
        relay.deliver(capability=None)
        await relay.next("complete")
        await ticks.tick()
        await relay.next("heartbeat")
        assert relay.said("register") == ["heartbeat", "ack", "complete", "heartbeat"]
