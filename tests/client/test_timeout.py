"""The timeout of a capability: a handler is cancelled when its time is up, not with a heartbeat."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import nodrop
from nodrop import app
from nodrop.client.client import Client
from nodrop.client.transports.retrying import Retrying
from nodrop.client.working.running import TIMEOUT_CHECK_SECONDS
from nodrop.client.working.worker import Pace, Worker
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

if TYPE_CHECKING:
    from conftest import Clock, FakeTransport, Ticks, Working

WAIT_SECONDS_MAX = 20


async def soon(event: asyncio.Event) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await event.wait()


async def turns() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


class Sleeping:
    """A handler that does not end by itself."""

    def __init__(self, agent: nodrop.Agent) -> None:
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        agent.capability("triage", timeout="2s")(self.triage)

    async def triage(self, task: nodrop.Task) -> None:
        del task
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


async def test_a_handler_is_cancelled_at_its_timeout_and_gives_back_its_slot(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    ticks: "Ticks",
    clock: "Clock",
) -> None:
    handler = Sleeping(agent)
    async with working(agent):
        relay.deliver(timeout="2s")
        await soon(handler.begun)
        granted = len(relay.stream.granted)
        clock.seconds += 2  # the relay, which began a little earlier, holds it no longer
        await ticks.tick(2)
        await soon(handler.cancelled)
        await turns()
        assert len(relay.stream.granted) == granted + 1
    assert "complete" not in relay.said()
    assert "fail" not in relay.said()


async def test_an_attempt_that_the_relay_still_has_goes_on_past_its_timeout(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    ticks: "Ticks",
    clock: "Clock",
) -> None:
    handler = Sleeping(agent)
    async with working(agent, grace=0):
        relay.held = [("h1", 1)]  # its clock counted anew: it was away meanwhile
        relay.deliver(timeout="2s")
        await soon(handler.begun)
        clock.seconds += 2
        await ticks.tick(2)
        await relay.next("heartbeat")
        await turns()
        assert not handler.cancelled.is_set()
        relay.held = []
        await ticks.tick(TIMEOUT_CHECK_SECONDS)
        await soon(handler.cancelled)


async def test_time_spent_on_a_question_does_not_count(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", clock: "Clock"
) -> None:
    active: list[float] = []

    @agent.capability("triage", timeout="2s")
    async def triage(task: nodrop.Task) -> None:
        clock.seconds += 1.5
        asking = asyncio.ensure_future(task.ask("Which?"))
        await asyncio.sleep(0)  # it is on its way
        clock.seconds += 100
        await asking
        clock.seconds += 0.25
        active.append(task.lease.active.seconds)

    blocked = {"id": "h1", "state": "blocked", "attempt": 1, "timeout": "2s"}
    unblocked = {**blocked, "state": "accepted", "answers": {"Which?": "this"}}
    relay.answer("block", {"handoff": blocked})
    relay.answer("get_handoff", {"handoff": unblocked})
    async with working(agent):
        relay.held = [("h1", 1)]
        relay.deliver(timeout="2s")
        await relay.next("complete")
    assert active == [1.75]


async def entered(relay: Relay, agent: str) -> InProcessTransport:
    await relay.ensure_token("default", agent=agent, role="agent", secret=f"nd_{agent}")
    return InProcessTransport(relay, await relay.authenticate(f"nd_{agent}"))


@asynccontextmanager
async def at_work(
    home: Path, agent: nodrop.Agent, ticks: "Ticks", clock: "Clock"
) -> AsyncGenerator[tuple[Client, FakeClock]]:
    """Work for a real relay whose clock, like the worker's, moves when the test says so."""
    time = FakeClock()
    async with app.open_relay(":memory:", home=home, clock=time) as relay:
        policy = Retrying(sleep=ticks.sleep, random=lambda: 1.0)
        pace = Pace(heartbeat_seconds=5, grace_seconds=0, policy=policy, now=clock)
        client = Client(await entered(relay, agent.name), agent=agent.name)
        me = Client(await entered(relay, "inbox_monitor"), agent="inbox_monitor")
        stopping = asyncio.Event()
        running = asyncio.create_task(Worker(agent, client, process="p", pace=pace).run(stopping))
        try:
            yield me, time
        finally:
            stopping.set()
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await running


async def test_a_thread_is_told_at_its_timeout_that_the_task_is_gone(
    tmp_path: Path, agent: nodrop.Agent, ticks: "Ticks", clock: "Clock"
) -> None:
    begun, told = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    may_end = threading.Event()

    @agent.capability("triage", timeout="2s")
    def triage(task: nodrop.BlockingTask) -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(WAIT_SECONDS_MAX)
        try:
            task.update("still here")
        except BaseException:
            loop.call_soon_threadsafe(told.set)
            raise

    async with at_work(tmp_path, agent, ticks, clock) as (me, time):
        handoff = await me.hand_off(to=agent.name, payload={}, attempts_max=1)
        await soon(begun)
        clock.seconds += 2
        time.advance(2_000)
        await ticks.tick(2)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            outcome = await handoff.outcome()
        assert outcome.code == "attempts_exhausted"
        may_end.set()
        await soon(told)
