"""Handing on from inside a framework: what the model is told, and what travels along."""

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

import nodrop
from nodrop.adapters import current
from nodrop.adapters.port.events import Done, Failed, NeedHelp, Resume, Run, Work
from nodrop.adapters.port.handing import HandOff, parsed
from nodrop.client.endings import Fail

Acting = Callable[..., AbstractAsyncContextManager[nodrop.Agent]]
WAIT = "20s"
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def counting(work: Work, _: Resume | None) -> Run:
    yield Done(output={"counted": work.fields})


async def failing(_: Work, __: Resume | None) -> Run:
    yield Failed(reason="no such book", code="not_there")


async def asking(_: Work, __: Resume | None) -> Run:
    said = yield NeedHelp(question="Which account?")
    yield Done(output=f"used {said}")


async def test_a_tool_brings_the_result(me: nodrop.Client, acting: Acting) -> None:
    async with acting(counting):
        tool = HandOff("actor", {"client": me}).function()
        said = await tool("count", '{"to": 3}')
    assert json.loads(said) == {"counted": {"task": "count", "to": 3}}


async def test_a_failure_is_told_as_one(me: nodrop.Client, acting: Acting) -> None:
    async with acting(failing):
        answer = await HandOff("actor", {"client": me})("read")
    assert (answer.done, answer.state, answer.code) == (False, "failed", "not_there")
    assert json.loads(answer.text)["reason"] == "no such book"


async def test_what_is_refused_says_why(me: nodrop.Client) -> None:
    answer = await HandOff(None, {"client": me, "capability": "nobody_can"})("read")
    assert (answer.state, answer.code, answer.handoff) == ("refused", "no_match", None)


async def test_a_wait_that_runs_out_is_no_failure(me: nodrop.Client) -> None:
    answer = await HandOff("nobody", {"client": me, "wait": 0})("read")
    assert (answer.state, answer.code) == ("offered", "wait_elapsed")
    assert answer.handoff is not None
    assert (await me.handoff(answer.handoff)).state == "offered"


async def test_a_question_goes_to_whoever_is_named_for_it(
    me: nodrop.Client, acting: Acting
) -> None:
    async with acting(asking):
        answer = await HandOff("actor", {"client": me, "on_help": lambda _: "account 42"})("pay")
    assert answer.result == "used account 42"


async def test_a_question_is_passed_on_to_whoever_asked_for_the_work(
    me: nodrop.Client, acting: Acting
) -> None:
    async def between(_: Work, __: Resume | None) -> Run:
        yield Done(output=(await HandOff("actor")("pay")).result)

    async with acting(asking), acting(between, "between"):
        handoff = await me.hand_off("between")
        fields = {"wait": 20, "until": "blocked"}
        view = (await me.call("get_handoff", fields, handoff=handoff.id))["handoff"]
        assert view["question"]["question"] == "actor asks: Which account?"
        said = {"seq": view["question"]["seq"], "answer": "account 42"}
        await me.call("answer", said, handoff=handoff.id)
        assert await handoff.result(wait=WAIT) == "used account 42"


async def test_chain_trace_and_deadline_travel_along(me: nodrop.Client, acting: Acting) -> None:
    async def between(_: Work, __: Resume | None) -> Run:
        yield Done(output=(await HandOff("actor")("count")).handoff)

    async with acting(counting), acting(between, "between"):
        top = await me.hand_off("between", traceparent=TRACEPARENT, deadline="1h")
        below = await top.result(wait=WAIT)
    async with nodrop.connect(":memory:", agent="between") as agent:
        child = await agent.handoff(below)
    assert (child.correlation_id, child.view["parent_id"]) == (top.correlation_id, top.id)
    assert child.deadline == top.deadline
    version, trace, span, flags = str(child.traceparent).split("-")
    assert [version, trace, flags] == [TRACEPARENT.split("-")[n] for n in (0, 1, 3)]
    assert span not in {TRACEPARENT.split("-")[2], str(top.traceparent).split("-")[2]}


@pytest.mark.parametrize(("own", "seconds"), [("1m", 60), ("2h", 3_600), (None, 3_600)])
async def test_nothing_is_due_later_than_what_it_is_part_of(
    me: nodrop.Client, acting: Acting, own: str | None, seconds: int
) -> None:
    async def between(_: Work, __: Resume | None) -> Run:
        yield Done(output=(await HandOff("actor", {"deadline": own})("count")).handoff)

    async def left(_: Work, __: Resume | None) -> Run:
        here = current()
        assert here is not None, "a driver works on something"
        yield Done(output=here.seconds_left)

    async with acting(left), acting(between, "between"):
        top = await me.hand_off("between", deadline="1h")
        below = await top.result(wait=WAIT)
        async with nodrop.connect(":memory:", agent="between") as agent:
            seen = (await agent.handoff(below)).view["outcome"]["result"]
    assert seconds - 30 < seen <= seconds


async def test_a_later_attempt_finds_what_an_earlier_one_handed_on(
    me: nodrop.Client, acting: Acting
) -> None:
    async def between(_: Work, __: Resume | None) -> Run:
        answer = await HandOff("actor", {"deadline": "1m"})("count")
        here = current()
        assert here is not None, "a driver works on something"
        if here.task.attempt == 1:
            raise OSError("and then it broke")
        yield Done(output=answer.handoff)

    async with acting(counting), acting(between, "between"):
        await (await me.hand_off("between", backoff={"first": "10ms"})).result(wait=WAIT)
    entries = await me.log(limit=200)
    assert [entry.type for entry in entries].count("handoff.offered.v1") == 2


async def test_the_same_said_twice_is_two_handoffs(me: nodrop.Client, acting: Acting) -> None:
    async def between(_: Work, __: Resume | None) -> Run:
        hand_off = HandOff("actor")
        yield Done(output=[(await hand_off("count")).handoff for _ in range(2)])

    async with acting(counting), acting(between, "between"):
        first, second = await (await me.hand_off("between")).result(wait=WAIT)
    assert first != second


async def test_a_thread_without_a_loop_can_hand_off(me: nodrop.Client, acting: Acting) -> None:
    async with acting(counting):
        hand_off = HandOff("actor", {"client": me})
        answer = await asyncio.to_thread(hand_off.call_sync, "count")
    assert answer.result == {"counted": {"task": "count"}}


async def test_another_event_loop_can_hand_off(me: nodrop.Client, acting: Acting) -> None:
    async with acting(counting):
        hand_off = HandOff("actor", {"client": me})
        answer = await asyncio.to_thread(asyncio.run, hand_off("count"))
    assert answer.done


async def test_without_a_connection_it_says_what_is_missing() -> None:
    with pytest.raises(Fail, match="pass `client`"):
        await HandOff("actor")("count")


@pytest.mark.parametrize(
    ("whom", "name", "tool", "participant"),
    [
        ("legal", None, "hand_off_to_legal", "legal"),
        ("bug-fixer", None, "hand_off_to_bug_fixer", "bug_fixer"),
        ("3d.artist", None, "hand_off_to_3d_artist", "_3d_artist"),
        ("bug-fixer", "fixer", "fixer", "fixer"),
    ],
)
def test_whoever_is_handed_to_has_a_name_that_frameworks_take(
    whom: str, name: str | None, tool: str, participant: str
) -> None:
    hand_off = HandOff(whom, {"name": name})
    assert (hand_off.whom, hand_off.name, hand_off.participant) == (whom, tool, participant)
    assert participant.isidentifier()


def test_somebody_must_be_named() -> None:
    with pytest.raises(ValueError, match="name a recipient"):
        HandOff()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("", None),
        (None, None),
        ('{"to": 3}', {"to": 3}),
        ("[1, 2]", {"context": [1, 2]}),
        ("not json", {"context": "not json"}),
    ],
)
def test_whatever_a_model_writes_as_context_is_kept(said: str | None, meant: object) -> None:
    assert parsed(said) == meant
