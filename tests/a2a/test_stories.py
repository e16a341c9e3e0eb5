"""What a handoff does, told by a client of A2A: over JSON-RPC, REST, gRPC, and as 0.3 has it."""

import asyncio
from typing import Any

from a2a.types import CancelTaskRequest, SubscribeToTaskRequest
from a2a.utils.errors import (
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

HOUR = 3_600_000


async def test_a_message_to_an_agent_that_is_away_is_kept_and_delivered_when_it_comes(
    peer: Any,
) -> None:
    office, planner = peer
    task = await planner.task("Fix the login button")
    assert office.state(task) == "submitted"
    coder = await office.member("coder")
    (delivery,) = (await coder("take"))["deliveries"]
    assert delivery["handoff"]["id"] == task.id
    assert delivery["handoff"]["payload"] == {"text": "Fix the login button"}
    assert office.state(await planner.get(task)) == "submitted"  # delivered is not acknowledged
    await coder("ack", task.id, attempt=1, status="Looking")
    working = await planner.get(task)
    assert (office.state(working), working.status.message.parts[0].text) == ("working", "Looking")
    await coder("complete", task.id, attempt=1, result={"fixed": True})
    done = await planner.get(task)
    assert office.state(done) == "completed"
    assert done.artifacts[0].parts[0].data.struct_value["fixed"] is True
    assert [m.parts[0].text for m in done.history] == ["Fix the login button", "Looking"]


async def test_a_message_that_is_waited_for_is_answered_with_the_outcome(peer: Any) -> None:
    office, planner = peer
    waiting = asyncio.ensure_future(planner.task("Which version?", wait=True))
    coder = await office.member("coder")
    (delivery,) = (await coder("take", wait="10s"))["deliveries"]
    await coder("ack", delivery["handoff"]["id"], attempt=1)
    await coder("complete", delivery["handoff"]["id"], attempt=1, result="1.2")
    done = await waiting
    assert (office.state(done), done.artifacts[0].parts[0].text) == ("completed", "1.2")


async def test_a_question_is_input_required_and_the_next_message_is_its_answer(peer: Any) -> None:
    office, planner = peer
    waiting = asyncio.ensure_future(planner.task("Deploy it", wait=True))
    coder = await office.member("coder")
    (delivery,) = (await coder("take", wait="10s"))["deliveries"]
    task_id = delivery["handoff"]["id"]
    await coder("ack", task_id, attempt=1)
    await coder("block", task_id, attempt=1, question="Where to?")
    asked = await waiting
    assert (office.state(asked), asked.status.message.parts[0].text) == (
        "input_required",
        "Where to?",
    )
    answering = asyncio.ensure_future(
        planner.task("Production", wait=True, task_id=task_id, message_id="m2")
    )
    blocked = await office.until(task_id, state="accepted")
    assert blocked["question"] is None
    assert (await coder("get_handoff", task_id))["handoff"]["answers"] == {
        "Where to?": "Production"
    }
    await coder("complete", task_id, attempt=1, result=None)
    done = await answering
    assert office.state(done) == "completed"
    said = [message.parts[0].text for message in done.history]
    assert said == ["Deploy it", "Where to?", "Production"]


async def test_an_agent_that_never_comes_is_a_failure_with_its_reason_and_a_dead_letter(
    peer: Any,
) -> None:
    office, planner = peer
    task = await planner.task("Anybody?", terms={"deadline": "1h"})
    office.clock.advance(HOUR)
    await office.until(task.id, state="expired")
    failed = await planner.get(task)
    assert office.state(failed) == "failed"
    assert failed.status.message.parts[0].text
    assert office.ours(failed)["state"] == "expired"
    me = await office.member("me")
    (dead,) = (await me("dead_letters"))["handoffs"]
    assert dead["id"] == task.id


async def test_a_task_is_cancelled_once(peer: Any) -> None:
    office, planner = peer
    task = await planner.task("Never mind")
    cancelled = await planner.client.cancel_task(CancelTaskRequest(id=task.id))
    assert office.state(cancelled) == "canceled"
    again = await planner.refused(planner.client.cancel_task(CancelTaskRequest(id=task.id)))
    assert isinstance(again, TaskNotCancelableError)
    assert (await office.entries()).count("handoff.cancelled.v1") == 1


async def test_a_subscriber_is_told_everything_in_order_and_the_stream_ends_with_the_task(
    peer: Any,
) -> None:
    office, planner = peer
    task = await planner.task("Tell me")
    coder = await office.member("coder")
    told: list[Any] = []
    began = asyncio.Event()

    async def listen() -> None:
        async for event in planner.listening.subscribe(SubscribeToTaskRequest(id=task.id)):
            told.append(event)
            began.set()

    async with asyncio.timeout(20):
        listening = asyncio.ensure_future(listen())
        await began.wait()
        await coder("take")
        await coder("ack", task.id, attempt=1)
        await coder("update", task.id, attempt=1, status="half")
        await coder("complete", task.id, attempt=1, result="all")
        await listening
    assert office.kinds(told) == [
        "task:submitted", "submitted", "working", "working", "artifact", "completed",
    ]  # fmt: skip


async def test_nobody_can_go_on_with_what_has_ended(peer: Any) -> None:
    office, planner = peer
    task = await planner.task("Once")
    coder = await office.member("coder")
    await coder("take")
    await coder("ack", task.id, attempt=1)
    await coder("complete", task.id, attempt=1, result=1)
    refused = await planner.refused(planner.send("Twice", task_id=task.id, message_id="m2"))
    assert isinstance(refused, UnsupportedOperationError)


async def test_fetching_what_has_ended_settles_it(peer: Any) -> None:
    office, planner = peer
    task = await planner.task("Once")
    coder, me = await office.member("coder"), await office.member("me")
    await coder("take")
    await coder("ack", task.id, attempt=1)
    await coder("complete", task.id, attempt=1, result=1)
    assert (await me("get_handoff", task.id))["handoff"]["settled_at"] is None
    await planner.get(task)
    assert (await me("get_handoff", task.id))["handoff"]["settled_at"] is not None


async def test_data_is_the_payload_itself_and_terms_are_the_offers_own(peer: Any) -> None:
    office, planner = peer
    terms = {"title": "Look", "deadline": "2h", "updateEvery": "10m", "priority": "high"}
    task = await planner.task(office.data({"file": "login.ts", "line": 7}), terms=terms)
    handoff = (await (await office.member("coder"))("get_handoff", task.id))["handoff"]
    assert handoff["payload"] == {"file": "login.ts", "line": 7}
    assert (handoff["title"], handoff["priority"]) == ("Look", "high")
    assert handoff["update_every"] == "10m"


async def test_unknown_and_foreign_tasks_are_the_same(peer: Any) -> None:
    office, planner = peer
    stranger = await office.member("stranger")
    foreign = (await stranger("offer", to="coder", payload={}))["handoff"]["id"]
    unknown = "0199aaaa-0000-7000-8000-000000000000"
    for task_id in (foreign, unknown, foreign[:8], "stranger"):
        assert isinstance(await planner.refused(planner.get(task_id)), TaskNotFoundError)
