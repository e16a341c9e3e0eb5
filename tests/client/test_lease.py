"""`once` by a process that stood still: no effect unless the delivery is still its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nodrop
from nodrop import app
from nodrop.client.client import Client
from nodrop.client.transports.retrying import Retrying
from nodrop.client.working.worker import Pace, Worker
from nodrop.model.errors import StaleAttemptError, UnreachableError
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

if TYPE_CHECKING:
    from conftest import Clock, FakeTransport, Ticks, Working

HEARTBEAT_SECONDS = 5.0
LEASE_SECONDS = 15.0
"""Section 5 of the protocol: three heartbeats."""
WAIT_SECONDS_MAX = 20


class Stepping:
    """A handler that stands still for a while, then does a step; async or in a thread."""

    def __init__(self, stall: Callable[[], None]) -> None:
        self.sent: list[str] = []
        self.raised: list[Exception] = []
        self._stall = stall

    def serve(self, agent: nodrop.Agent, *, blocking: bool) -> None:
        if blocking:
            agent.capability("triage")(self.in_thread)
        else:
            agent.capability("triage")(self.on_loop)

    async def on_loop(self, task: nodrop.Task) -> int:
        self._stall()
        try:
            await task.once("send-email", lambda: self.sent.append("dear ana"))
        except StaleAttemptError as error:
            self.raised.append(error)
            raise
        return task.attempt

    def in_thread(self, task: nodrop.BlockingTask) -> int:
        self._stall()
        try:
            task.once("send-email", lambda: self.sent.append("dear ana"))
        except StaleAttemptError as error:
            self.raised.append(error)
            raise
        return task.attempt


both = pytest.mark.parametrize("blocking", [False, True], ids=["async", "blocking"])


@both
async def test_after_a_stall_past_the_lease_a_step_of_others_is_not_run(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    clock: "Clock",
    *,
    blocking: bool,
) -> None:
    def stall() -> None:
        clock.seconds += LEASE_SECONDS

    handler = Stepping(stall)
    handler.serve(agent, blocking=blocking)
    async with working(agent):
        relay.deliver()  # and the relay says that this process holds nothing
        await relay.next("heartbeat")
    assert handler.sent == []
    assert len(handler.raised) == 1
    assert "step" not in relay.said()
    assert "complete" not in relay.said()


@both
async def test_after_a_stall_a_step_is_run_if_the_delivery_is_still_ours(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    clock: "Clock",
    *,
    blocking: bool,
) -> None:
    def stall() -> None:
        clock.seconds += LEASE_SECONDS

    handler = Stepping(stall)
    handler.serve(agent, blocking=blocking)
    relay.held = [("h1", 1)]
    async with working(agent):
        relay.deliver()
        await relay.next("complete")
        assert relay.said("register") == ["ack", "heartbeat", "step", "complete"]
        relay.held = []
    assert handler.sent == ["dear ana"]


async def test_without_a_stall_nothing_is_asked(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", clock: "Clock"
) -> None:
    def late_but_in_time() -> None:
        clock.seconds += 2 * HEARTBEAT_SECONDS - 0.1

    handler = Stepping(late_but_in_time)
    handler.serve(agent, blocking=False)
    async with working(agent):
        relay.deliver()
        await relay.next("complete")
        assert relay.said("register") == ["ack", "step", "complete"]
    assert handler.sent == ["dear ana"]


async def test_an_ack_counts_from_when_it_was_sent(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", clock: "Clock"
) -> None:
    handler = Stepping(lambda: None)
    handler.serve(agent, blocking=False)
    answered = asyncio.Event()

    async def slowly(operation: str, *args: Any, **named: Any) -> dict[str, Any]:
        answer = await call(operation, *args, **named)
        if operation == "ack":
            clock.seconds += LEASE_SECONDS  # the process stood still with the answer on its way
            answered.set()
        return answer

    call, relay.call = relay.call, slowly
    async with working(agent):
        relay.deliver()
        await relay.next("heartbeat")
    assert answered.is_set()
    assert handler.sent == []


async def test_a_stall_before_the_relays_answer_arrives_is_one_too(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", clock: "Clock"
) -> None:
    def stall() -> None:
        clock.seconds += LEASE_SECONDS

    handler = Stepping(stall)
    handler.serve(agent, blocking=False)
    relay.held = [("h1", 1)]

    async def slowly(operation: str, *args: Any, **named: Any) -> dict[str, Any]:
        answer = await call(operation, *args, **named)
        if operation == "heartbeat" and relay.held:
            stall()
            relay.held = []
        return answer

    call, relay.call = relay.call, slowly
    async with working(agent):
        relay.deliver()
        await relay.next("heartbeat")
        await relay.next("heartbeat")
    assert handler.sent == []
    assert len(handler.raised) == 1


async def test_a_step_waits_for_a_relay_that_cannot_be_reached(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    ticks: "Ticks",
    clock: "Clock",
) -> None:
    def stall() -> None:
        clock.seconds += LEASE_SECONDS

    handler = Stepping(stall)
    handler.serve(agent, blocking=False)
    relay.held = [("h1", 1)]
    relay.refuse("heartbeat", UnreachableError("down"), UnreachableError("down"))
    async with working(agent):
        relay.deliver()
        await relay.next("heartbeat")  # the second is sent at once
        await relay.next("heartbeat")
        assert handler.sent == []
        await ticks.tick()  # the worker's own heartbeat, which is answered
        await ticks.tick()  # before the third
        await relay.next("complete")
        relay.held = []
    assert handler.sent == ["dear ana"]


async def test_a_thread_that_goes_on_after_the_loss_runs_no_further_step(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    ran: list[str] = []
    raised: list[str] = []

    @agent.capability("triage")
    def stubborn(task: nodrop.BlockingTask) -> None:
        with suppress(StaleAttemptError, CancelledError):
            task.once("first", lambda: ran.append("first"))
        try:
            task.once("second", lambda: ran.append("second"))
        except StaleAttemptError:
            raised.append("second")

    relay.refuse("step", StaleAttemptError("another has it"))
    async with working(agent):
        relay.deliver()
        await relay.next("step")
    assert (ran, raised) == (["first"], ["second"])


# --- with a relay -------------------------------------------------------------------------------


async def _entered(relay: Relay, agent: str) -> InProcessTransport:
    await relay.ensure_token("default", agent=agent, role="agent", secret=f"nd_{agent}")
    return InProcessTransport(relay, await relay.authenticate(f"nd_{agent}"))


@asynccontextmanager
async def _worker(
    relay: Relay, agent: nodrop.Agent, process: str, clock: FakeClock
) -> AsyncGenerator[None]:
    """A worker whose heartbeats never come by themselves."""

    async def never(_seconds: float) -> None:
        await asyncio.Event().wait()

    pace = Pace(
        heartbeat_seconds=HEARTBEAT_SECONDS,
        grace_seconds=10,
        policy=Retrying(sleep=never),
        now=lambda: clock.now() / 1_000,
    )
    client = Client(await _entered(relay, agent.name), agent=agent.name)
    stopping = asyncio.Event()
    running = asyncio.create_task(Worker(agent, client, process=process, pace=pace).run(stopping))
    try:
        yield
    finally:
        stopping.set()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await running


def _agent(effects: list[int], taken: asyncio.Event, go_on: asyncio.Event) -> nodrop.Agent:
    agent = nodrop.Agent("mailer", concurrency=1)

    @agent.handler
    async def send(task: nodrop.Task) -> int:
        taken.set()
        await go_on.wait()
        await task.once("send-email", lambda: effects.append(task.attempt))
        return task.attempt

    return agent


async def test_a_step_that_another_worker_recorded_meanwhile_is_not_run_again(
    tmp_path: Path,
) -> None:
    effects: list[int] = []
    clock = FakeClock()
    taken, wakes, at_once = asyncio.Event(), asyncio.Event(), asyncio.Event()
    at_once.set()
    stalled = _agent(effects, taken, wakes)
    healthy = _agent(effects, asyncio.Event(), at_once)
    async with (
        asyncio.timeout(WAIT_SECONDS_MAX),
        app.open_relay(":memory:", home=tmp_path, clock=clock) as relay,
        _worker(relay, stalled, "one", clock),
    ):
        me = Client(await _entered(relay, "me"), agent="me")
        handoff = await me.hand_off("mailer", title="Send it")
        await taken.wait()
        async with _worker(relay, healthy, "two", clock):
            clock.advance(round(LEASE_SECONDS * 1_000))
            await _entry(me, "handoff.returned.v1")
            clock.advance(60_000)  # past the backoff
            await _entry(me, "handoff.completed.v1")
            assert effects == [2]
            wakes.set()
        assert await handoff.result() == 2
    assert effects == [2], "the stalled worker ran a recorded step again"


async def _entry(me: Client, kind: str) -> None:
    """Wait for an entry of the log."""
    async for _entry in me.follow_log(type=kind):
        return
