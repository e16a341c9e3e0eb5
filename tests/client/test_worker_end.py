"""How a worker runs plain functions, and how it ends."""

import asyncio
import gc
import threading
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import unused_port

import nodrop
from nodrop.client.working import threads

WAIT_SECONDS_MAX = 30.0

if TYPE_CHECKING:
    from conftest import Endless, FakeTransport, Soon, Ticks, Working

# --- plain functions -----------------------------------------------------------------------------


async def test_a_plain_function_runs_in_a_thread_with_a_blocking_task(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    ran_in: list[threading.Thread] = []

    async def soon_nine() -> int:
        return 9

    @agent.capability("triage")
    def triage(task: nodrop.BlockingTask) -> dict[str, Any]:
        ran_in.append(threading.current_thread())
        task.update("reproducing", eta="2h")
        keys: list[str] = []
        first = task.once("ticket", lambda key: keys.append(key) or 7)
        second = task.once("ticket", lambda: 8)
        third = task.once("awaited", soon_nine)
        return {"first": first, "second": second, "third": third, "keys": keys}

    async with working(agent):
        relay.deliver()
        complete = await relay.next("complete")
    assert complete["result"] == {
        "first": 7,
        "second": 7,
        "third": 9,
        "keys": ["h1:ticket"],
    }
    assert ran_in[0] is not threading.main_thread()
    assert relay.said("register", "heartbeat") == ["ack", "update", "step", "step", "complete"]


async def test_a_thread_is_told_when_its_work_is_no_longer_wanted(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", ticks: "Ticks", soon: "Soon"
) -> None:
    loop = asyncio.get_running_loop()
    started, told = asyncio.Event(), asyncio.Event()

    @agent.capability("triage")
    def triage(task: nodrop.BlockingTask) -> str:
        loop.call_soon_threadsafe(started.set)
        if task.cancelled.wait(WAIT_SECONDS_MAX):
            loop.call_soon_threadsafe(told.set)
        return "too late"

    async with working(agent):
        relay.deliver()
        await soon(started)
        await ticks.tick()
        await soon(told)
    assert relay.said("register", "heartbeat") == ["ack"]


async def test_what_a_thread_raises_after_it_was_cancelled_is_not_taken_for_lost() -> None:
    troubles: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, trouble: troubles.append(trouble))
    cancelled = threading.Event()

    def work() -> None:
        cancelled.wait(WAIT_SECONDS_MAX)
        raise ValueError

    running = asyncio.create_task(threads.run(work, name="work", cancel=cancelled.set))
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await asyncio.wait([running])
    del running
    gc.collect()
    assert troubles == []


# --- the end -------------------------------------------------------------------------------------


async def test_a_stopped_worker_lets_its_handlers_finish(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", soon: "Soon"
) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @agent.capability("triage")
    async def triage(n: int) -> int:
        started.set()
        await go_on.wait()
        return n

    async with working(agent) as stopping:
        relay.deliver()
        await soon(started)
        stopping.set()
        await soon(relay.stream.closed)
        relay.deliver("h2")
        go_on.set()
        await relay.next("complete")
    assert relay.said("register", "heartbeat") == ["ack", "complete"]


async def test_what_is_unfinished_at_the_end_is_given_back(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    endless: "Endless",
    soon: "Soon",
) -> None:
    agent.capability("triage")(endless)
    relay.held = [("h1", 1), ("never-arrived", 4)]
    async with working(agent, grace=0):
        relay.deliver()
        await soon(endless.started)
    assert endless.ended.is_set()
    released = [(h, fields["attempt"]) for op, fields, h in relay.calls if op == "release"]
    assert sorted(released, key=str) == [("h1", 1), ("never-arrived", 4)]


async def test_a_handler_that_goes_on_when_the_worker_stops_reports_nothing(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", soon: "Soon"
) -> None:
    started = asyncio.Event()

    @agent.capability("triage")
    async def triage() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "all the same"
        return "unreachable"

    relay.held = [("h1", 1)]
    async with working(agent, grace=0):
        relay.deliver()
        await soon(started)
    assert relay.said("register", "heartbeat") == ["ack", "release"]


async def test_a_cancelled_serve_gives_back_and_closes(
    relay: "FakeTransport", agent: nodrop.Agent, endless: "Endless", soon: "Soon"
) -> None:
    agent.capability("triage")(endless)
    relay.held = [("h1", 1)]
    serving = asyncio.create_task(agent.serve(transport=relay, grace=0))
    relay.deliver()
    await soon(endless.started)
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert relay.said("register", "heartbeat") == ["ack", "release"]
    assert relay.closed


async def test_a_second_cancellation_does_not_wait(
    relay: "FakeTransport", agent: nodrop.Agent, endless: "Endless", soon: "Soon"
) -> None:
    agent.capability("triage")(endless)
    serving = asyncio.create_task(agent.serve(transport=relay, grace="1h"))
    relay.deliver()
    await soon(endless.started)
    agent.stop()
    await soon(relay.stream.closed)
    serving.cancel()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        with pytest.raises(asyncio.CancelledError):
            await serving
    await soon(endless.ended)
    assert relay.closed


async def test_several_agents_work_in_one_process(relay: "FakeTransport") -> None:
    first, second = nodrop.Agent("first"), nodrop.Agent("second")

    @first.capability("triage")
    async def do() -> int:
        return 1

    @second.capability("triage")
    async def decline() -> None:
        raise nodrop.Reject

    other = type(relay)()
    async with asyncio.TaskGroup() as group:
        group.create_task(first.serve(transport=relay))
        group.create_task(second.serve(transport=other))
        relay.deliver()
        other.deliver()
        await relay.next("complete")
        await other.next("reject")
        first.stop()
        second.stop()


async def test_a_worker_can_be_stopped_before_it_found_its_relay(agent: nodrop.Agent) -> None:
    @agent.handler
    async def do() -> None: ...

    address = f"http://127.0.0.1:{unused_port()}"
    serving = asyncio.create_task(agent.serve(address, token="nd_1"))
    await asyncio.sleep(0)
    agent.stop()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await serving


async def test_a_worker_can_be_stopped_while_the_relay_cannot_take_its_manifest(
    relay: "FakeTransport", agent: nodrop.Agent
) -> None:
    @agent.handler
    async def do() -> None: ...

    relay.refuse("register", *(nodrop.UnavailableError() for _ in range(9)))
    serving = asyncio.create_task(agent.serve(transport=relay))
    await relay.next("register")
    agent.stop()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await serving
    assert relay.closed


async def test_a_heartbeat_that_no_relay_takes_is_refused_at_once(agent: nodrop.Agent) -> None:
    @agent.handler
    async def do() -> None: ...

    with pytest.raises(ValueError, match=r"between 0\.1 and 3600"):
        await agent.serve(":memory:", heartbeat_seconds=0)


async def test_an_agent_that_can_do_nothing_does_not_serve(agent: nodrop.Agent) -> None:
    with pytest.raises(ValueError, match="can do nothing"):
        await agent.serve(":memory:")
