"""A worker against a scripted relay: what it says about each delivery, and when."""

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import nodrop
from nodrop.model.errors import (
    AlreadyFinishedError,
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    Problem,
    ResultInvalidError,
    StaleAttemptError,
    StoreFullError,
    TooLargeError,
)

if TYPE_CHECKING:
    from conftest import Endless, FakeTransport, Fields, Soon, Ticks, Working

# --- one delivery --------------------------------------------------------------------------------


async def test_a_delivery_is_acknowledged_done_and_completed(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage(task: nodrop.Task, n: int) -> dict[str, Any]:
        assert relay.said("register") == ["ack"]
        return {"n": n + 1, "attempt": task.attempt}

    async with working(agent):
        relay.deliver(attempt=3)
        complete = await relay.next("complete")
    assert relay.said("register", "heartbeat") == ["ack", "complete"]
    assert (complete["result"], complete["attempt"]) == ({"n": 2, "attempt": 3}, 3)
    ids = [fields["command_id"] for operation, fields, _ in relay.calls if operation != "heartbeat"]
    assert len(set(ids)) == 3


async def test_the_manifest_is_published_before_anything_is_taken(
    relay: "FakeTransport", working: "Working"
) -> None:
    agent = nodrop.Agent("code_agent", description="Investigates bugs", tags=["bugs"])

    @agent.capability("triage", timeout="3h", reliability_sla=0.95, concurrency=4, tags=["fast"])
    async def triage(email_id: str) -> str:
        """Look into a bug.

        Thoroughly.
        """
        return email_id

    @agent.handler
    async def anything(task: nodrop.Task) -> None: ...

    async with working(agent):
        pass
    operation, fields, _ = relay.calls[0]
    assert operation == "register"
    assert fields["manifest"] == {
        "agent_id": "code_agent",
        "description": "Investigates bugs",
        "tags": ["bugs"],
        "capabilities": [
            {
                "name": "triage",
                "description": "Look into a bug.",
                "input_schema": {
                    "type": "object",
                    "properties": {"email_id": {"type": "string"}},
                    "required": ["email_id"],
                },
                "output_schema": {"type": "string"},
                "timeout_seconds": 10_800.0,
                "reliability_sla": 0.95,
                "tags": ["fast"],
                "concurrency": 4,
            }
        ],
    }


async def fails(n: int) -> None:
    raise ValueError(f"n is {n}")


async def gives_up() -> None:
    raise nodrop.Fail("cannot reproduce", code="irreproducible")


async def wants_another_try() -> None:
    raise nodrop.Fail("rate limited", retryable=True)


async def declines() -> None:
    raise nodrop.Reject("not my job")


async def returns_nonsense() -> Any:
    return object()


async def takes_something_else(missing: str) -> None: ...


def fails_in_a_thread(n: int) -> None:
    raise ValueError(f"n is {n}")


async def gives_an_error_as_its_reason() -> None:
    raise nodrop.Fail(ValueError("no such bug"))  # pyright: ignore[reportArgumentType]  # as people do


async def declines_with_an_error() -> None:
    raise nodrop.Reject(ValueError("no such bug"))  # pyright: ignore[reportArgumentType]  # as people do


async def fails_with_half_a_character() -> None:
    raise nodrop.Fail("\udce9t\udce9")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError


async def fails_without_words() -> None:
    raise UnspeakableError


async def exits() -> None:
    sys.exit(2)


def exits_in_a_thread() -> None:
    sys.exit(2)


def takes_one_more_than_there_is() -> None:
    next(iter(()))


async def gives_up_in_a_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(gives_up())


async def returns_what_never_ends() -> Any:
    endless: list[Any] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize(
    ("handler", "operation", "said"),
    [
        (fails, "fail", {"code": "exception", "reason": "ValueError: n is 1", "retryable": True}),
        (
            fails_in_a_thread,
            "fail",
            {"code": "exception", "reason": "ValueError: n is 1", "retryable": True},
        ),
        (
            gives_up,
            "fail",
            {"code": "irreproducible", "reason": "cannot reproduce", "retryable": False},
        ),
        (
            wants_another_try,
            "fail",
            {"code": "failed", "reason": "rate limited", "retryable": True},
        ),
        (declines, "reject", {"reason": "not my job"}),
        (
            gives_an_error_as_its_reason,
            "fail",
            {"code": "failed", "reason": "no such bug", "retryable": False},
        ),
        (declines_with_an_error, "reject", {"reason": "no such bug"}),
        (
            fails_with_half_a_character,
            "fail",
            {"code": "failed", "reason": "\\udce9t\\udce9", "retryable": False},
        ),
        (
            fails_without_words,
            "fail",
            {
                "code": "exception",
                "reason": "UnspeakableError: (saying it raised ValueError)",
                "retryable": True,
            },
        ),
        (
            exits,
            "fail",
            {
                "code": "exception",
                "reason": "RuntimeError: the handler called sys.exit(2)",
                "retryable": True,
            },
        ),
        (
            exits_in_a_thread,
            "fail",
            {
                "code": "exception",
                "reason": "RuntimeError: the handler called sys.exit(2)",
                "retryable": True,
            },
        ),
        (
            takes_one_more_than_there_is,
            "fail",
            {
                "code": "exception",
                "reason": "RuntimeError: the function raised StopIteration",
                "retryable": True,
            },
        ),
        (
            gives_up_in_a_task_group,
            "fail",
            {"code": "irreproducible", "reason": "cannot reproduce", "retryable": False},
        ),
        (
            returns_what_never_ends,
            "fail",
            {
                "code": "too_large",
                "reason": "the result: the value is nested too deep, or without end",
                "retryable": False,
            },
        ),
        (
            returns_nonsense,
            "fail",
            {
                "code": "result_invalid",
                "reason": "the result: a object has no JSON form",
                "retryable": False,
            },
        ),
        (
            takes_something_else,
            "fail",
            {
                "code": "payload_invalid",
                "reason": "the payload lacks missing",
                "retryable": False,
            },
        ),
    ],
)
async def test_how_a_handler_ends_is_told(
    *,
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    handler: Callable[..., Any],
    operation: str,
    said: "Fields",
) -> None:
    agent.capability("triage")(handler)
    async with working(agent):
        relay.deliver()
        fields = await relay.next(operation)
    own = {"attempt", "command_id", "brief"}
    assert {name: fields[name] for name in fields if name not in own} == said


async def test_a_long_reason_is_cut_short(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> None:
        raise ValueError("x" * 100_000)

    async with working(agent):
        relay.deliver()
        assert len((await relay.next("fail"))["reason"]) == 2_000


@pytest.mark.parametrize("error", [ResultInvalidError("sources: missing"), TooLargeError("2 MiB")])
async def test_a_result_the_relay_does_not_take_fails_for_good(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", error: NodropError
) -> None:
    @agent.capability("triage")
    async def triage(n: int) -> int:
        return n

    relay.refuse("complete", error)
    async with working(agent):
        relay.deliver()
        fields = await relay.next("fail")
    assert (fields["code"], fields["retryable"]) == (error.code, False)
    assert error.detail in fields["reason"]


async def test_the_reason_says_what_is_wrong_with_a_result(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> int:
        return 1

    problem = Problem(path="result.ticket", message="required, and missing")
    relay.refuse("complete", ResultInvalidError("it promises another result", errors=(problem,)))
    async with working(agent):
        relay.deliver()
        fields = await relay.next("fail")
    assert fields["reason"] == "it promises another result; result.ticket: required, and missing"


async def test_an_ending_the_relay_does_not_take_is_told_in_words_it_takes(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> None:
        raise nodrop.Fail("cannot reproduce", code="Grüße", retryable=True)

    relay.refuse("fail", InvalidRequestError("code: expected ASCII"))
    async with working(agent):
        relay.deliver()
        assert (await relay.next("fail"))["code"] == "Grüße"
        fields = await relay.next("fail")
    assert (fields["code"], fields["retryable"]) == ("invalid_request", True)
    assert fields["reason"] == "cannot reproduce; code: expected ASCII"


async def test_a_result_is_reported_until_the_relay_can_take_it(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", ticks: "Ticks"
) -> None:
    @agent.capability("triage")
    async def triage(n: int) -> int:
        return n

    relay.refuse("complete", StoreFullError(), StoreFullError())
    async with working(agent):
        await ticks.tick()  # a heartbeat
        relay.deliver()
        first = await relay.next("complete")
        second = await relay.next("complete")
        await ticks.tick()
        await ticks.tick()
        third = await relay.next("complete")
    assert first == second == third


async def test_what_nobody_here_can_do_is_declined(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage(n: int) -> None: ...

    async with working(agent):
        relay.deliver(capability="cooking")
        assert (await relay.next("reject"))["reason"] == "no handler for the capability cooking"
    assert "ack" not in relay.said()


async def test_an_untyped_handoff_goes_to_the_only_capability(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> str:
        return "triage"

    async with working(agent):
        relay.deliver(capability=None)
        assert (await relay.next("complete"))["result"] == "triage"


async def test_an_untyped_handoff_goes_to_the_handler_for_them(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> str:
        return "triage"

    @agent.handler
    async def anything(task: nodrop.Task) -> str:
        return f"anything: {task.payload}"

    async with working(agent):
        relay.deliver(capability=None, payload="hello")
        assert (await relay.next("complete"))["result"] == "anything: hello"


def test_one_capability_has_one_handler(agent: nodrop.Agent) -> None:
    @agent.capability("triage")
    async def triage(n: int) -> None: ...

    with pytest.raises(ValueError, match="has a handler for triage already"):
        agent.capability("triage")(triage)


# --- deliveries that are no longer ours ----------------------------------------------------------


async def test_a_delivery_that_the_relay_does_not_count_is_dropped(
    *,
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    ticks: "Ticks",
    endless: "Endless",
    soon: "Soon",
) -> None:
    agent.capability("triage")(endless)
    async with working(agent):
        relay.deliver()
        await soon(endless.started)
        relay.held = [("h1", 1)]
        await ticks.tick()
        await relay.next("heartbeat")
        assert not endless.ended.is_set()
        relay.held = [("h1", 2)]
        await ticks.tick()
        await soon(endless.ended)
    assert relay.said("register", "heartbeat", "release") == ["ack"]


async def test_a_stale_delivery_ends_its_handler_without_a_word(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", soon: "Soon"
) -> None:
    ended = asyncio.Event()

    @agent.capability("triage")
    async def triage(task: nodrop.Task) -> str:
        try:
            await task.update("going on")
        except StaleAttemptError:
            # A handler that carries on all the same is cancelled.
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
        return "unreachable"

    relay.refuse("update", StaleAttemptError())
    async with working(agent):
        relay.deliver()
        await soon(ended)
    assert relay.said("register", "heartbeat") == ["ack", "update"]


async def test_a_handler_that_is_stopped_can_clean_up_however_often_it_hears_of_it(
    *,
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    ticks: "Ticks",
    soon: "Soon",
) -> None:
    started, stopped, tidy = asyncio.Event(), asyncio.Event(), asyncio.Event()
    swept: list[str] = []

    @agent.capability("triage")
    async def triage(task: nodrop.Task) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
            await tidy.wait()
            swept.append(task.id)

    async with working(agent):
        relay.deliver()
        await soon(started)
        relay.held = []
        await ticks.tick()
        await soon(stopped)
        await relay.next("heartbeat")
        for _ in range(2):  # it is still here and not ours; the second shows that the first is over
            await ticks.tick()
            await relay.next("heartbeat")
        tidy.set()
    assert swept == ["h1"]


async def test_a_handler_that_was_cancelled_and_goes_on_completes(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> str:
        itself = asyncio.current_task()
        assert itself is not None
        itself.cancel()  # as a library does that ends what takes too long
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "in time"
        return "unreachable"

    async with working(agent):
        relay.deliver()
        assert (await relay.next("complete"))["result"] == "in time"


async def test_a_handler_that_waits_for_what_was_cancelled_fails(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage() -> None:
        other = asyncio.ensure_future(asyncio.Event().wait())
        other.cancel()
        await other

    async with working(agent):
        relay.deliver()
        fields = await relay.next("fail")
    assert (fields["reason"], fields["retryable"]) == ("CancelledError", True)


@pytest.mark.parametrize("error", [StaleAttemptError(), AlreadyFinishedError()])
async def test_no_work_is_begun_on_a_delivery_that_cannot_be_acknowledged(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    error: NodropError,
    endless: "Endless",
) -> None:
    agent.capability("triage")(endless)
    relay.refuse("ack", error)
    async with working(agent):
        relay.deliver()
        relay.deliver("h2", capability="cooking")
        await relay.next("reject")
    assert not endless.started.is_set()
    assert relay.stream.granted == [8, 1, 1]


async def test_a_delivery_that_comes_again_is_dropped_and_its_credit_given_back(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", endless: "Endless"
) -> None:
    agent.capability("triage")(endless)
    async with working(agent, grace=0):
        relay.deliver()
        relay.deliver()
        relay.deliver("h2", capability="cooking")
        await relay.next("reject")
        assert relay.said("register") == ["ack", "reject"]
        assert relay.stream.granted[:2] == [8, 1]


async def test_a_later_attempt_takes_the_place_of_an_earlier_one(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    endless: "Endless",
    soon: "Soon",
) -> None:

    @agent.capability("triage")
    async def triage(task: nodrop.Task) -> int:
        if task.attempt == 1:
            await endless()
        return task.attempt

    async with working(agent):
        relay.deliver(attempt=1)
        await soon(endless.started)
        relay.deliver(attempt=2)
        assert (await relay.next("complete"))["result"] == 2
        await soon(endless.ended)
    assert relay.said("register", "heartbeat") == ["ack", "ack", "complete"]


async def test_a_parked_task_ends_without_a_word(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage(task: nodrop.Task) -> None:
        await task.park("Which version?", checkpoint={"seen": 3})

    async with working(agent):
        relay.deliver()
        relay.deliver("h2", capability="cooking")
        block = await relay.next("block")
    assert (block["park"], block["checkpoint"]) == (True, {"seen": 3})
    assert sorted(relay.said("register", "heartbeat")) == ["ack", "block", "reject"]


# --- how many at once ----------------------------------------------------------------------------


async def test_each_capability_has_its_own_bound(
    relay: "FakeTransport", working: "Working"
) -> None:
    agent = nodrop.Agent("code_agent")
    running, most = 0, 0
    go_on = asyncio.Semaphore(0)

    @agent.capability("triage", concurrency=2)
    async def triage() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await go_on.acquire()
        running -= 1

    @agent.capability("quick", concurrency=3)
    async def quick(n: int) -> None: ...

    async with working(agent):
        assert relay.stream.granted == [5]
        for n in range(4):
            relay.deliver(f"h{n}")
        relay.deliver("q", capability="quick")
        await relay.next("complete")
        assert (running, most) == (2, 2)
        for _ in range(4):
            go_on.release()
            await relay.next("complete")
        assert most == 2
        assert relay.said("register", "complete") == ["ack"] * 5
    assert relay.stream.granted == [5, 1, 1, 1, 1, 1]


async def test_the_next_delivery_may_come_before_a_report_is_answered(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", ticks: "Ticks"
) -> None:
    @agent.capability("triage")
    async def triage() -> None: ...

    relay.refuse("complete", StoreFullError(), StoreFullError())
    async with working(agent):
        relay.deliver()
        await relay.next("complete")
        assert relay.stream.granted == [8, 1]
        await relay.next("complete")
        await ticks.tick()
        await ticks.tick()
        await relay.next("complete")
    assert relay.stream.granted == [8, 1]


def test_the_agents_own_bound_is_over_all_capabilities() -> None:
    agent = nodrop.Agent("code_agent", concurrency=3)
    agent.capability("a", concurrency=8)(fails)
    assert agent.slots == 3
    assert agent.manifest()["concurrency"] == 3


async def test_an_idle_worker_shows_that_it_is_alive(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working", ticks: "Ticks"
) -> None:
    async with working(agent):
        await ticks.tick()
        await relay.next("heartbeat")  # an earlier life may have left something
        for _ in range(3):  # the third shows that the second is over
            await ticks.tick()
    assert relay.stream.signs_of_life >= 2
    assert relay.said("register") == ["heartbeat", "heartbeat"]  # the second as it stops


async def test_a_delivery_that_the_relay_has_as_ours_after_the_work_is_given_back(
    *,
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    ticks: "Ticks",
    soon: "Soon",
) -> None:
    started, enough = asyncio.Event(), asyncio.Event()

    @agent.capability("triage")
    async def triage() -> None:
        started.set()
        await enough.wait()

    relay.refuse("complete", ForbiddenError())
    relay.refuse("fail", ForbiddenError())
    async with working(agent):
        relay.deliver()
        relay.held = [("h1", 1)]
        await soon(started)
        await ticks.tick()
        await relay.next("heartbeat")  # which tells of the delivery
        enough.set()
        await relay.next("fail")
        for _ in range(2):
            await ticks.tick()
            await relay.next("heartbeat")
        released = await relay.next("release")
        relay.held = []
    assert (released["attempt"], released["reason"]) == (1, "it never arrived")
