"""Dead letters: each gets one decision, and a successor carries on where it stopped."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from nodrop.model.errors import (
    AlreadyDecidedError,
    ForbiddenError,
    NodropError,
    StaleQuestionError,
)

HOUR = 3_600_000


def in_state(*states: str) -> Callable[[dict[str, Any]], bool]:
    return lambda view: view["state"] in states


async def dead(inbox_monitor: Any, code_agent: Any, **offer: Any) -> dict[str, Any]:
    offered = (
        await inbox_monitor("offer", to="code_agent", title="bug", payload={"n": 1}, **offer)
    )["handoff"]
    await code_agent("ack", offered["id"])
    await code_agent("step", offered["id"], named="open-ticket", attempt=1, value="T-1")
    await code_agent("checkpoint", offered["id"], attempt=1, checkpoint={"page": 7})
    await code_agent("fail", offered["id"], attempt=1, reason="no access", code="no_access")
    return offered


async def test_a_successor_inherits_what_was_done_and_learnt(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await dead(inbox_monitor, code_agent, idempotency_key="msg_1")
    [letter] = (await inbox_monitor("dead_letters"))["handoffs"]
    assert (letter["outcome"]["code"], letter["outcome"]["reason"]) == ("no_access", "no access")
    redriven = (await inbox_monitor("redrive", offered["id"]))["handoff"]
    assert (redriven["decision"], redriven["settled_at"] is not None) == ("redriven", True)

    [again] = (await code_agent("take"))["deliveries"]
    assert again["handoff"]["id"] == redriven["successor"]
    assert again["handoff"]["redrive_of"] == offered["id"]
    assert again["handoff"]["payload"] == {"n": 1}
    assert (again["steps"], again["checkpoint"]) == ({"open-ticket": "T-1"}, {"page": 7})
    by_ref = (await inbox_monitor("get_handoff", "inbox_monitor/msg_1"))["handoff"]
    assert by_ref["id"] == redriven["successor"]
    assert (await inbox_monitor("dead_letters"))["handoffs"] == []


async def test_two_people_redriving_at_once_make_one_successor(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await dead(inbox_monitor, code_agent)
    me = await office.person()
    answers = await asyncio.gather(
        *(who("redrive", offered["id"]) for who in (me, inbox_monitor, me, inbox_monitor)),
        return_exceptions=True,
    )
    refused = [a for a in answers if isinstance(a, NodropError)]
    assert [type(error) for error in refused] == [AlreadyDecidedError] * 3
    assert len((await code_agent("take", max=10))["deliveries"]) == 1


async def test_a_waiter_follows_the_successor(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await dead(inbox_monitor, code_agent)
    await inbox_monitor("redrive", offered["id"], to="support_agent")
    waiting = office.start(inbox_monitor("get_handoff", offered["id"], wait="60s"))
    support = await office.join("support_agent")
    [again] = (await support("take"))["deliveries"]
    await support("ack", again["handoff"]["id"], attempt=1)
    await support("complete", again["handoff"]["id"], attempt=1, result="done")
    assert (await waiting)["handoff"]["outcome"]["result"] == "done"


async def test_an_answer_that_comes_too_late_is_there_for_the_successor(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    expert = await office.join("expert")
    offered = (await inbox_monitor("offer", to="code_agent", title="bug", deadline="1h"))["handoff"]
    await code_agent("ack", offered["id"])
    asked = await code_agent(
        "block", offered["id"], attempt=1, question="Which version?", to="expert", park=True
    )
    await office.pass_time(HOUR, of=offered, then={"state": "expired"})
    assert [item["kind"] for item in (await expert("inbox"))["items"]] == ["notice"], "withdrawn"
    seq = asked["handoff"]["question"]["seq"]
    await expert("answer", offered["id"], seq=seq, answer="4.10")
    with pytest.raises(StaleQuestionError):
        await inbox_monitor("answer", offered["id"], seq=seq, answer="4.1")
    await inbox_monitor("redrive", offered["id"])
    [delivery] = (await code_agent("take"))["deliveries"]
    assert delivery["answers"] == {"Which version?": "4.10"}


async def test_withdrawing_what_was_redriven_withdraws_its_successor(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await code_agent("ack", offered["id"])
    await code_agent("fail", offered["id"], attempt=1, reason="no access")
    await inbox_monitor("redrive", offered["id"])
    await inbox_monitor("cancel", offered["id"])
    dead = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert dead["state"] == "failed"
    successor = (await inbox_monitor("get_handoff", dead["successor"]))["handoff"]
    assert (successor["state"], successor["holder"]) == ("cancelled", None)
    assert (await code_agent("take"))["deliveries"] == []


async def test_a_discarded_letter_is_settled_and_gone_from_the_list(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await dead(inbox_monitor, code_agent)
    with pytest.raises(ForbiddenError):
        await code_agent("discard", offered["id"])
    me = await office.person()
    discarded = (await me("discard", offered["id"], reason="duplicate"))["handoff"]
    assert (discarded["decision"], discarded["holder"]) == ("discarded", None)
    assert (await me("dead_letters"))["handoffs"] == []


async def test_a_result_after_the_deadline_is_kept_and_can_be_accepted(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug", deadline="1h"))["handoff"]
    await code_agent("ack", offered["id"])
    await office.pass_time(HOUR, of=offered, then=in_state("expired"))
    late = (await code_agent("complete", offered["id"], attempt=1, result="late"))["handoff"]
    assert (late["state"], late["late_result"]) == ("expired", True)
    accepted = (await inbox_monitor("accept", offered["id"]))["handoff"]
    successor = (await inbox_monitor("get_handoff", accepted["successor"]))["handoff"]
    assert (successor["state"], successor["outcome"]["result"]) == ("completed", "late")


async def test_the_deadline_passes_with_everybody_away(office: Any, inbox_monitor: Any) -> None:
    steps = [{"when": "overdue", "notify": "me"}]
    offered = (
        await inbox_monitor("offer", to="code_agent", title="bug", deadline="4h", escalation=steps)
    )["handoff"]
    await office.restart(down_ms=6 * HOUR)
    view = await office.see(offered, in_state("expired"))
    assert view["outcome"]["at"] == "2026-01-01T06:00:00.000Z"
    office.clock.advance(1)
    me = await office.person()
    after = 0
    while True:
        page = await me("inbox", after=after, wait="60s", all=True)
        if any("passed with code_agent" in i["summary"] for i in page["items"]):
            break
        after = page["after"]


async def test_a_cancelled_handoff_tells_whoever_holds_it(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await code_agent("take", process="p", heartbeat_seconds=10)
    await code_agent("ack", offered["id"], attempt=1)
    cancelled = (await inbox_monitor("cancel", offered["id"], reason="fixed itself"))["handoff"]
    assert (cancelled["state"], cancelled["outcome"]["reason"]) == ("cancelled", "fixed itself")
    assert (await code_agent("heartbeat", process="p"))["held"] == []
    assert (await inbox_monitor("dead_letters"))["handoffs"] == []


async def test_a_reassigned_handoff_goes_to_the_other_inbox(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await inbox_monitor("reassign", offered["id"], to="support_agent", reason="on holiday")
    assert (await code_agent("inbox"))["items"] == []
    support = await office.join("support_agent")
    assert [i["handoff_id"] for i in (await support("inbox"))["items"]] == [offered["id"]]
