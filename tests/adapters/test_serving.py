"""One delivery, driven to its end: whatever a driver yields becomes what the relay is told."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

import nodrop
from nodrop.adapters import Current, current
from nodrop.adapters.port.events import Done, Failed, NeedHelp, Progress, Resume, Run, Work
from nodrop.adapters.port.handing import HandOff
from nodrop.adapters.port.sealing import SEALED, Seal
from nodrop.adapters.port.serving import Terms, agent_of
from nodrop.client.shown import HandoffShown
from nodrop.model.errors import StaleAttemptError

Acting = Callable[..., AbstractAsyncContextManager[nodrop.Agent]]
WAIT = "20s"
WAIT_SECONDS_MAX = 20.0
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Unused:
    """A driver of an agent that is only published."""

    def drive(self, work: Work, resume: Resume | None) -> Run:
        raise AssertionError(f"{work} was handed to it, {resume}")


async def blocked(me: nodrop.Client, handoff: nodrop.Handoff) -> HandoffShown:
    """Return the handoff once it asks something."""
    answer = await me.call("get_handoff", {"wait": 20, "until": "blocked"}, handoff=handoff.id)
    shown = HandoffShown(answer["handoff"])
    assert shown.question is not None, shown
    return shown


async def answer(me: nodrop.Client, handoff: nodrop.Handoff, value: Any) -> str:
    """Answer what it asks, and return the question."""
    question = (await blocked(me, handoff)).question
    assert question is not None, "blocked has seen it"
    await me.call("answer", {"seq": question.seq, "answer": value}, handoff=handoff.id)
    return question.question or ""


async def types(me: nodrop.Client, handoff: nodrop.Handoff) -> list[str]:
    return [entry.type for entry in await me.log(handoff_id=handoff.id, limit=200)]


# --- endings ---------------------------------------------------------------------------------


async def test_what_is_done_is_the_result(me: nodrop.Client, acting: Acting) -> None:
    async def script(work: Work, _: Resume | None) -> Run:
        yield Done(output={"read": work.prompt, "from": work.sender})

    async with acting(script):
        handoff = await me.hand_off("actor", payload={"task": "count", "to": 3})
        result = await handoff.result(wait=WAIT)
    assert result == {"read": 'count\n\nContext:\n{"to": 3}', "from": "boss"}


async def test_what_failed_says_so_and_is_not_tried_again(
    me: nodrop.Client, acting: Acting
) -> None:
    async def script(_: Work, __: Resume | None) -> Run:
        yield Failed(reason="no such book", code="not_there")

    async with acting(script):
        outcome = await (await me.hand_off("actor")).outcome(wait=WAIT)
    assert (outcome.state, outcome.code, outcome.reason) == ("failed", "not_there", "no such book")
    assert outcome.handoff.attempt == 1


async def test_an_exception_is_a_failure_that_may_be_tried_again(
    me: nodrop.Client, acting: Acting
) -> None:
    async def script(_: Work, __: Resume | None) -> Run:
        here = current()
        assert here is not None, "a driver works on something"
        if here.task.attempt == 1:
            raise OSError("the model is down")
        yield Done(output="it is up again")

    async with acting(script):
        handoff = await me.hand_off("actor", backoff={"first": "10ms"})
        assert await handoff.result(wait=WAIT) == "it is up again"
    assert handoff.attempt == 2


async def test_a_run_that_ends_without_a_word_has_failed(me: nodrop.Client, acting: Acting) -> None:
    async def script(_: Work, __: Resume | None) -> Run:
        yield Progress(status="thinking")

    async with acting(script):
        outcome = await (await me.hand_off("actor")).outcome(wait=WAIT)
    assert (outcome.state, outcome.code) == ("failed", "no_result")


# --- while it runs ---------------------------------------------------------------------------


async def updates(me: nodrop.Client, acting: Acting, *, progress_seconds_min: float) -> int:
    """Return how many of a hundred steps whoever waits was told of."""

    async def script(_: Work, __: Resume | None) -> Run:
        for step in range(100):
            yield Progress(status=f"step {step}")
        yield Done(output=None)

    async with acting(script, progress_seconds_min=progress_seconds_min):
        handoff = await me.hand_off("actor")
        await handoff.result(wait=WAIT)
    return (await types(me, handoff)).count("handoff.updated.v1")


async def test_a_model_that_streams_does_not_flood_the_relay(
    me: nodrop.Client, acting: Acting
) -> None:
    assert await updates(me, acting, progress_seconds_min=3_600) == 1


async def test_without_the_bound_every_step_would_be_told(
    me: nodrop.Client, acting: Acting
) -> None:
    assert await updates(me, acting, progress_seconds_min=0) == 100


async def test_a_silent_run_keeps_its_promise(me: nodrop.Client, acting: Acting) -> None:
    told = asyncio.Event()

    async def script(_: Work, __: Resume | None) -> Run:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await told.wait()
        yield Done(output=None)

    async with acting(script):
        handoff = await me.hand_off("actor", update_every="300ms")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            async for entry in me.follow_log(handoff_id=handoff.id):
                if entry.type == "handoff.updated.v1":
                    break
        told.set()
        await handoff.result(wait=WAIT)
        await handoff.refresh()  # the outcome was pushed, without what was said on the way
    assert handoff.ack is not None
    assert handoff.ack.status == "still running"


async def test_what_it_is_part_of_is_known_without_being_told(
    me: nodrop.Client, acting: Acting
) -> None:
    seen: list[Current] = []

    async def script(_: Work, __: Resume | None) -> Run:
        here = current()
        assert here is not None, "a driver works on something"
        seen.append(here)
        yield Done(output=here.seconds_left)

    async with acting(script):
        handoff = await me.hand_off(
            "actor", correlation_id="case-7", traceparent=TRACEPARENT, deadline="1h"
        )
        left = await handoff.result(wait=WAIT)
    assert (seen[0].correlation_id, seen[0].traceparent) == ("case-7", handoff.traceparent)
    assert str(handoff.traceparent)[:36] == TRACEPARENT[:36], "the trace that it was offered in"
    assert 3_500 < left <= 3_600
    assert current() is None


async def test_what_outlives_its_delivery_is_fenced(me: nodrop.Client, acting: Acting) -> None:
    left: list[Current] = []

    async def script(_: Work, __: Resume | None) -> Run:
        here = current()
        assert here is not None, "a driver works on something"
        left.append(here)
        await here.task.update("still allowed")
        yield Done(output=None)

    async with acting(script):
        await (await me.hand_off("actor")).result(wait=WAIT)
        try:
            await left[0].ask("May I still ask?")
        except StaleAttemptError:
            return
    raise AssertionError("it could ask about something that is over")


# --- questions -------------------------------------------------------------------------------


async def test_a_question_without_state_holds_the_run(me: nodrop.Client, acting: Acting) -> None:
    async def script(_: Work, __: Resume | None) -> Run:
        first = yield NeedHelp(question="Which account?")
        second = yield NeedHelp(question="Which account?")
        yield Done(output=[first, second])

    async with acting(script):
        handoff = await me.hand_off("actor")
        assert await answer(me, handoff, "the first") == "Which account?"
        await answer(me, handoff, "the second")
        assert await handoff.result(wait=WAIT) == ["the first", "the second"]
    assert handoff.attempt == 1


async def test_an_answer_is_not_asked_for_again_by_a_later_attempt(
    me: nodrop.Client, acting: Acting
) -> None:
    async def script(_: Work, __: Resume | None) -> Run:
        said = yield NeedHelp(question="Which account?")
        here = current()
        assert here is not None, "a driver works on something"
        if here.task.attempt == 1:
            raise OSError("and then it broke")
        yield Done(output=said)

    async with acting(script):
        handoff = await me.hand_off("actor", backoff={"first": "10ms"})
        await answer(me, handoff, 42)
        assert await handoff.result(wait=WAIT) == 42
    assert (await types(me, handoff)).count("handoff.blocked.v1") == 1


async def parking(_: Work, resume: Resume | None) -> Run:
    """Ask twice, with something to remember each time."""
    if resume is None:
        yield NeedHelp(question="Which account?", state={"asked": 1, "secret": "swordfish"})
        return
    if resume.state["asked"] == 1:
        state = {"asked": 2, "first": resume.answer}
        yield NeedHelp(question="Are you sure?", state=state)
        return
    yield Done(output=[resume.state["first"], resume.answer, resume.approved])


async def test_a_parked_run_goes_on_in_another_worker(me: nodrop.Client, acting: Acting) -> None:
    handoff = await me.hand_off("actor", attempts_max=1)
    async with acting(parking):
        await blocked(me, handoff)
    await answer(me, handoff, "account 42")
    async with acting(parking):
        await answer(me, handoff, "yes")
        assert await handoff.result(wait=WAIT) == ["account 42", "yes", True]
    assert handoff.attempt == 3


async def checkpoint(me: nodrop.Client, handoff: nodrop.Handoff) -> Any:
    async with nodrop.connect(":memory:", agent="actor") as actor:
        bodies = [entry.body for entry in await actor.log(handoff_id=handoff.id, limit=200)]
    assert me is not actor
    return next(body["checkpoint"] for body in bodies if body and "checkpoint" in body)


async def test_nobody_but_the_agent_can_read_what_it_parked(
    me: nodrop.Client, acting: Acting
) -> None:
    handoff = await me.hand_off("actor")
    async with acting(parking):
        await blocked(me, handoff)
    kept = await checkpoint(me, handoff)
    assert list(kept) == [SEALED]
    assert "swordfish" not in str(kept)


async def test_a_worker_with_another_key_does_not_go_on_blindly(
    me: nodrop.Client, acting: Acting
) -> None:
    handoff = await me.hand_off("actor")
    async with acting(parking, seal=Seal(b"a" * 32)):
        await blocked(me, handoff)
    await answer(me, handoff, "account 42")
    async with acting(parking, seal=Seal(b"b" * 32)):
        outcome = await handoff.outcome(wait=WAIT)
    assert (outcome.state, outcome.code) == ("failed", "parked_state_unreadable")


async def test_state_that_is_too_large_to_park_is_a_failure(
    me: nodrop.Client, acting: Acting
) -> None:
    async def script(_: Work, __: Resume | None) -> Run:
        yield NeedHelp(question="Which account?", state={"much": "x" * 2_000_000})

    async with acting(script):
        outcome = await (await me.hand_off("actor")).outcome(wait=WAIT)
    assert (outcome.state, outcome.code) == ("failed", "too_large")


# --- what is published -----------------------------------------------------------------------


def published(**terms: Any) -> dict[str, Any]:
    return agent_of(Unused(), "actor", "script", Terms(**terms)).manifest()


def test_an_agent_without_terms_takes_whatever_comes() -> None:
    assert published(tags=["fast"]) == {
        "agent_id": "actor",
        "description": "An agent made with script",
        "tags": ["fast"],
        "capabilities": [],
        "concurrency": 8,
    }


@pytest.mark.parametrize(
    "terms", [{"timeout": "1m"}, {"input_schema": {"type": "object"}}, {"output_schema": str}]
)
def test_terms_are_those_of_a_capability(terms: dict[str, Any]) -> None:
    (capability,) = published(**terms)["capabilities"]
    assert capability["name"] == "actor"
    (named,) = published(capability="act", **terms)["capabilities"]
    assert {**named, "name": "actor"} == capability


# --- stopping --------------------------------------------------------------------------------


async def test_cancelling_stops_the_run_and_what_was_handed_on(
    me: nodrop.Client, acting: Acting
) -> None:
    stopped, begun, stopped_below = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def above(_: Work, __: Resume | None) -> Run:
        try:
            yield Progress(status="handing on")
            await HandOff("below")("count")
            yield Done(output=None)
        finally:
            stopped.set()

    async def below(_: Work, __: Resume | None) -> Run:
        begun.set()
        try:
            await asyncio.Event().wait()
            yield Done(output=None)
        finally:
            stopped_below.set()

    async with acting(above, "above"), acting(below, "below"):
        handoff = await me.hand_off("above")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await begun.wait()
            await handoff.cancel("changed my mind")
            await stopped.wait()
            await stopped_below.wait()
            async for entry in me.follow_log(type="handoff.cancelled.v1"):
                if entry.handoff_id != handoff.id:
                    break  # what was handed on is withdrawn with it


async def test_a_worker_that_stops_leaves_what_it_handed_on_to_its_successor(
    me: nodrop.Client, acting: Acting
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def above(_: Work, __: Resume | None) -> Run:
        yield Done(output=(await HandOff("below")("count")).text)

    async def below(_: Work, __: Resume | None) -> Run:
        begun.set()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await go.wait()
        yield Done(output="three")

    async with acting(below, "below"):
        async with acting(above, "above"):
            handoff = await me.hand_off("above")
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await begun.wait()
        async with acting(above, "above"):
            go.set()
            assert await handoff.result(wait=WAIT) == "three"
    offered = [entry for entry in await me.log(limit=200) if entry.type == "handoff.offered.v1"]
    assert len(offered) == 2, "the second attempt found the handoff of the first"
