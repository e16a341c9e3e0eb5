"""Questions and counters, asked and answered over every door."""

import asyncio
from typing import Any

import pytest

from nodrop.model.errors import AlreadyBlockedError, ForbiddenError, StaleQuestionError


async def accepted(inbox_monitor: Any, code_agent: Any) -> str:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await code_agent("take", process="p", heartbeat_seconds=10)
    await code_agent("ack", offered["id"], attempt=1)
    return offered["id"]


async def test_an_answer_reaches_the_attempt_that_asked(
    inbox_monitor: Any, code_agent: Any
) -> None:
    handoff_id = await accepted(inbox_monitor, code_agent)
    await code_agent("block", handoff_id, attempt=1, question="Which app version?")
    [item] = (await inbox_monitor("inbox"))["items"]
    assert (item["kind"], item["handoff_id"]) == ("question", handoff_id)

    await inbox_monitor("answer", handoff_id, seq=item["seq"], answer={"version": "1.2"})
    view = (await code_agent("get_handoff", handoff_id))["handoff"]
    assert (view["state"], view["attempt"]) == ("accepted", 1)
    assert view["answers"] == {"Which app version?": {"version": "1.2"}}
    assert (await inbox_monitor("inbox"))["items"] == []


async def test_a_parked_question_is_answered_and_goes_on_in_another_process(
    inbox_monitor: Any, code_agent: Any
) -> None:
    handoff_id = await accepted(inbox_monitor, code_agent)
    asked = await code_agent(
        "block",
        handoff_id,
        attempt=1,
        question="Which app version?",
        name="version",
        checkpoint={"page": 7},
    )
    assert asked["handoff"]["question"]["question"] == "Which app version?"
    seq = asked["handoff"]["question"]["seq"]
    await inbox_monitor("answer", handoff_id, seq=seq, answer="1.2")
    [again] = (await code_agent("take", process="q", heartbeat_seconds=10))["deliveries"]
    assert again["attempt"] == 2
    assert (again["checkpoint"], again["answers"]) == ({"page": 7}, {"version": "1.2"})


async def test_an_answer_names_the_question_it_answers(inbox_monitor: Any, code_agent: Any) -> None:
    handoff_id = await accepted(inbox_monitor, code_agent)
    first = await code_agent("block", handoff_id, attempt=1, question="One?")
    seq = first["handoff"]["question"]["seq"]
    await inbox_monitor("answer", handoff_id, seq=seq, answer=1)
    await code_agent("block", handoff_id, attempt=1, question="Two?")
    for stale in (seq, seq + 100, 1):
        with pytest.raises(StaleQuestionError):
            await inbox_monitor("answer", handoff_id, seq=stale, answer=1)
    with pytest.raises(AlreadyBlockedError):
        await code_agent("block", handoff_id, attempt=1, question="Three?")


async def test_anybody_can_be_asked_and_a_person_may_answer_instead(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    handoff_id = await accepted(inbox_monitor, code_agent)
    await code_agent("block", handoff_id, attempt=1, question="Refund?", to="support_agent")
    [item] = (await support("inbox"))["items"]
    seen = (await support("get_handoff", handoff_id))["handoff"]
    assert (seen["holder"], seen["question"]["seq"]) == ("support_agent", item["seq"])
    with pytest.raises(ForbiddenError):
        await code_agent("answer", handoff_id, seq=item["seq"], answer="yes")
    me = await office.person()
    assert (await me("answer", handoff_id, seq=item["seq"], answer="yes"))["handoff"][
        "state"
    ] == "accepted"


async def test_countered_terms_are_agreed_to(inbox_monitor: Any, code_agent: Any) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug", deadline="4h"))["handoff"]
    await code_agent("counter", offered["id"], deadline="8h", reason="too much to do")
    [item] = (await inbox_monitor("inbox"))["items"]
    assert item["kind"] == "counter"
    view = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert view["question"]["terms"] == {"deadline": "2026-01-01T08:00:00.000Z"}
    assert view["question"]["reason"] == "too much to do"
    agreed = (await inbox_monitor("agree", offered["id"], seq=item["seq"]))["handoff"]
    assert (agreed["state"], agreed["deadline"]) == ("accepted", "2026-01-01T08:00:00.000Z")
    await code_agent("complete", offered["id"], attempt=1, result="done")


async def test_countered_terms_are_declined(inbox_monitor: Any, code_agent: Any) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    countered = await code_agent("counter", offered["id"], deadline="48h")
    seq = countered["handoff"]["question"]["seq"]
    declined = await inbox_monitor("decline", offered["id"], seq=seq, reason="too late")
    assert declined["handoff"]["outcome"]["code"] == "declined"
    assert declined["handoff"]["outcome"]["reason"] == "too late"


async def test_whoever_may_be_asked_can_wait_for_the_question(
    inbox_monitor: Any, code_agent: Any
) -> None:
    handoff_id = await accepted(inbox_monitor, code_agent)
    waiting = asyncio.ensure_future(
        inbox_monitor("get_handoff", handoff_id, wait=20, until="blocked")
    )
    await code_agent("block", handoff_id, attempt=1, question="Which app version?")
    async with asyncio.timeout(20):
        assert (await waiting)["handoff"]["question"]["question"] == "Which app version?"


async def test_who_waits_for_a_question_learns_that_none_will_come(
    inbox_monitor: Any, code_agent: Any
) -> None:
    handoff_id = await accepted(inbox_monitor, code_agent)
    await code_agent("complete", handoff_id, attempt=1, result=None)
    seen = await inbox_monitor("get_handoff", handoff_id, wait=20, until="blocked")
    assert (seen["handoff"]["state"], seen.get("wait_elapsed", False)) == ("completed", False)
