"""What happens between agents that have nothing but the tools; each story over every door."""

import asyncio
from typing import Any

import pytest

TASK = {"to": "coder", "title": "Fix the login button", "payload": {"file": "login.ts"}}


def named(told: str) -> str:
    return told.split("handoff ", 1)[1][:36]


def rungs(handoff: dict[str, Any]) -> list[str]:
    return [receipt["rung"] for receipt in handoff["receipts"]]


async def test_work_goes_there_and_its_result_comes_back(
    office: Any, planner: Any, coder: Any
) -> None:
    stored = await planner("hand_off", **TASK, deadline="4h")
    assert stored.startswith("stored: handoff ")
    handoff = named(stored)
    assert handoff in await coder("inbox")
    taken = await coder("ack", handoff=handoff, eta="1h", status="on it")
    assert '{"payload": {"file": "login.ts"}}' in taken
    await coder("update", handoff=handoff, status="working", text="found it", next_update="10m")
    await coder("update", handoff=handoff, status="done", result={"commit": "abc"})
    outcome = await planner("wait", handoff=handoff)
    assert '{"result": {"commit": "abc"}}' in outcome
    shown = await office.handoff(stored)
    assert rungs(shown) == [
        "stored", "delivered", "acknowledged", "updated", "finished", "outcome_delivered", "settled",
    ]  # fmt: skip
    assert (await planner("inbox")).startswith("nothing waits for planner")


async def test_the_same_call_again_hands_nothing_off_twice(
    office: Any, planner: Any, coder: Any
) -> None:
    first, *others = await asyncio.gather(*(planner("hand_off", **TASK) for _ in range(4)))
    assert {named(told) for told in others} == {named(first)}
    again = await planner("hand_off", **TASK)
    assert again.startswith("stored before, and not again (replayed)")
    assert (await office.entries()).count("handoff.offered.v1") == 1
    await coder("ack", handoff=named(first))
    await coder("update", handoff=named(first), status="done")
    another = await planner("hand_off", **TASK)
    assert named(another) != named(first)


async def test_a_result_handed_in_twice_is_one_result(
    office: Any, planner: Any, coder: Any
) -> None:
    handoff = named(await planner("hand_off", **TASK))
    await coder("ack", handoff=handoff)
    first = await coder("update", handoff=handoff, status="done", result=1)
    assert await coder("update", handoff=handoff, status="done", result=1) == first
    refused = await coder.refused("update", handoff=handoff, status="done", result=2)
    assert refused.startswith("already_finished")
    assert (await office.entries()).count("handoff.completed.v1") == 1


async def test_a_question_parks_the_work_until_it_is_answered(
    office: Any, planner: Any, coder: Any
) -> None:
    handoff = named(await planner("hand_off", **TASK))
    await coder("ack", handoff=handoff)
    asked = {"handoff": handoff, "status": "need_help", "question": "Which version?"}
    parked = await coder("update", **asked, result={"found": "two"})
    assert parked.startswith("asked planner")
    assert await coder("update", **asked, result={"found": "two"}) == parked
    told = await planner("wait", handoff=handoff)
    assert '{"question": {"question": "Which version?"}}' in told
    assert "question" in await planner("inbox")
    await planner("answer", handoff=handoff, answer="3.4")
    again = await coder("ack", handoff=handoff)
    assert '{"answers": {"Which version?": "3.4"}}' in again
    assert '{"checkpoint": {"found": "two"}}' in again
    await coder("update", handoff=handoff, status="done", result="ok")
    assert (await office.handoff(parked))["attempt"] == 2
    refused = await planner.refused("answer", handoff=handoff, answer="3.5")
    assert refused.startswith("stale_question")


async def test_a_wait_ends_when_the_one_who_waits_is_asked(planner: Any, coder: Any) -> None:
    handoff = named(await planner("hand_off", **TASK))
    await coder("ack", handoff=handoff)
    waiting = asyncio.ensure_future(planner("wait", handoff=handoff, seconds=20))
    await coder("update", handoff=handoff, status="need_help", question="Which version?")
    assert "a question is open to planner" in await waiting


async def test_a_wait_ends_with_the_outcome(planner: Any, coder: Any) -> None:
    handoff = named(await planner("hand_off", **TASK))
    waiting = asyncio.ensure_future(planner("wait", handoff=handoff, seconds=20))
    await coder("ack", handoff=handoff)
    await coder("update", handoff=handoff, status="done", result="ok")
    assert '{"result": "ok"}' in await waiting


async def test_waiting_for_anything_ends_with_the_first_thing(planner: Any, coder: Any) -> None:
    waiting = asyncio.ensure_future(coder("wait", seconds=20))
    handoff = named(await planner("hand_off", **TASK))
    assert handoff in await waiting


@pytest.mark.parametrize(("agree", "state"), [(True, "accepted"), (False, "rejected")])
async def test_other_terms_are_agreed_on_or_declined(
    office: Any, planner: Any, coder: Any, *, agree: bool, state: str
) -> None:
    handoff = named(await planner("hand_off", **TASK))
    proposed = await coder(
        "ack", handoff=handoff, decision="counter", deadline="48h", reason="much to do"
    )
    assert proposed.startswith("proposed")
    assert "other terms are proposed to planner" in await planner("track", handoff=handoff)
    assert (await planner.refused("answer", handoff=handoff, answer="yes")).startswith(
        "invalid_request"
    )
    await planner("answer", handoff=handoff, agree=agree)
    assert (await office.handoff(proposed))["state"] == state
    if agree:
        await coder("update", handoff=handoff, status="done", result="ok")


async def test_a_rejection_reaches_the_requester_who_settles_it(
    office: Any, planner: Any, coder: Any
) -> None:
    handoff = named(await planner("hand_off", **TASK))
    told = await coder("ack", handoff=handoff, decision="reject", reason="not mine")
    assert '"reason": "not mine"' in await planner("track", handoff=handoff)
    assert "1 outcome" in await planner("inbox")
    await planner("ack", handoff=handoff)
    assert (await office.handoff(told))["settled_at"] is not None
    assert (await planner("inbox")).startswith("nothing waits")


async def test_work_given_back_can_be_taken_again(office: Any, planner: Any, coder: Any) -> None:
    handoff = named(await planner("hand_off", **TASK))
    await coder("ack", handoff=handoff)
    await coder("update", handoff=handoff, status="released", text="later", result={"page": 7})
    refused = await coder.refused("update", handoff=handoff, status="done")
    assert refused.startswith("attempt_required")
    assert f'ack(handoff="{handoff}")' in refused
    again = await coder("ack", handoff=handoff)
    assert '{"checkpoint": {"page": 7}}' in again
    assert (await office.handoff(again))["attempt"] == 2


async def test_what_is_no_longer_wanted_cannot_be_handed_in(planner: Any, coder: Any) -> None:
    handoff = named(await planner("hand_off", **TASK))
    await coder("ack", handoff=handoff)
    await planner("update", handoff=handoff, status="cancelled", text="found another way")
    refused = await coder.refused("update", handoff=handoff, status="done", result=1)
    assert refused.startswith("already_finished")


async def test_only_the_recipient_moves_the_recipients_rungs(
    office: Any, planner: Any, coder: Any
) -> None:
    stored = await planner("hand_off", **TASK)
    handoff = named(stored)
    for refused in (
        await planner.refused("ack", handoff=handoff),
        await planner.refused("update", handoff=handoff, status="done", result=1),
        await coder.refused("update", handoff=handoff, status="cancelled"),
    ):
        assert refused.startswith(("forbidden", "attempt_required"))
    assert rungs(await office.handoff(stored)) == ["stored"]


async def test_a_chain_is_waited_for_to_its_end(office: Any, planner: Any, coder: Any) -> None:
    reviewer = await office.join("reviewer")
    then = [{"to": "reviewer", "title": "Review it"}]
    handoff = named(await planner("hand_off", **TASK, then=then))
    taken = await coder("ack", handoff=handoff)
    assert "chain of planner: step 1 of 2; then reviewer" in taken
    await coder("update", handoff=handoff, status="done", result="patch")
    leg = named(await reviewer("ack", handoff=_first_id(await reviewer("inbox"))))
    await reviewer("update", handoff=leg, status="done", result="approved")
    assert '{"result": "approved"}' in await planner("wait", handoff=handoff)


def _first_id(told: str) -> str:
    return told.split('"handoff": "', 1)[1][:36]


async def test_agents_find_each_other_by_what_they_can_do(planner: Any, coder: Any) -> None:
    capability = {"name": "fix_bug", "input_schema": {"file": "string"}}
    joined = await coder("join", description="Fixes bugs", capabilities=[capability])
    assert joined.startswith("you are coder, and offer fix_bug")
    found = await planner("find_agents", capability="fix_bug")
    assert '"agent": "coder"' in found
    assert '"takes": {"file": "string"}' in found
    told = await planner("hand_off", capability="fix_bug", title="T", payload={"file": "a.ts"})
    assert "planner to coder" in told
    refused = await planner.refused("hand_off", capability="fix_bug", title="T", payload={})
    assert refused.startswith("payload_invalid")
    assert "0 agents" in await planner("find_agents", capability="cook")


async def test_a_notice_is_dismissed_and_a_later_one_comes_again(
    office: Any, planner: Any, coder: Any
) -> None:
    me = await office.join("me")
    handoff = named(await planner("hand_off", **TASK))
    office.clock.advance(61 * 60_000)
    assert "notice" in await me("wait", seconds=5)
    assert (await me("ack", handoff=handoff, decision="dismiss")).startswith("dismissed: ")
    assert (await me("inbox")).startswith("nothing waits for me")
    await coder("ack", handoff=handoff)
    await coder("update", handoff=handoff, status="failed", text="no access")
    assert "notice" in await me("wait", seconds=5)
    await me("ack", handoff=handoff, decision="dismiss")
    assert (await me("inbox")).startswith("nothing waits for me")
    refused = await (await office.join("other")).refused("ack", handoff=handoff, decision="dismiss")
    assert refused.startswith("not_found")


async def test_everybody_reads_and_writes_the_log(planner: Any, coder: Any) -> None:
    await planner("write_log", text="we freeze on Friday")
    handoff = named(await planner("hand_off", **TASK))
    await coder("write_log", handoff=handoff, text="seen")
    told = await coder("read_log")
    assert '"body": {"text": "we freeze on Friday"}' in told
    assert '"by": "planner"' in told
    assert "handoff.noted.v1" in await planner("read_log", handoff=handoff)


async def test_agents_talk_without_owing_each_other_anything(planner: Any, coder: Any) -> None:
    told = await planner("say", to="coder", text="Are you there?")
    thread = told.split('thread="', 1)[1].split('"', 1)[0]
    assert '"kind": "message"' in await coder("inbox")
    assert "to planner" in await coder("say", thread=thread, text="I am")
    handoff = named(await planner("hand_off", **TASK))
    assert "to planner" in await coder("say", handoff=handoff, status="stuck", text="no access")
    assert '"summary": "stuck: no access"' in await planner("inbox")


async def test_a_relay_restarted_in_between_changes_nothing(office: Any) -> None:
    told = await (await office.join("planner"))("hand_off", **TASK)
    handoff = named(told)
    await (await office.join("coder"))("ack", handoff=handoff)
    await office.restart(down_ms=60_000)
    again = await (await office.join("planner"))("hand_off", **TASK)
    assert again.startswith("stored before")
    await (await office.join("coder"))("update", handoff=handoff, status="done", result="ok")
    await office.restart()
    assert '{"result": "ok"}' in await (await office.join("planner"))("wait", handoff=handoff)
