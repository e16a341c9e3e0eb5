"""Lost answers: every command may be repeated, and is answered as the first time."""

import asyncio
import json
import re
from typing import Any

import pytest

from kit import mutations
from nodrop.model.errors import IdempotencyConflictError, NoMatchError, NotFinishedError


def offer(**changed: Any) -> dict[str, Any]:
    return {"to": "code_agent", "title": "bug", "idempotency_key": "msg_123", **changed}


async def test_a_relay_restarted_between_any_two_commands_repeats_every_answer(
    office: Any,
) -> None:
    """The whole cycle, each command sent, the relay restarted, the command sent again."""

    async def twice(name: str, operation: str, handoff: str | None = None, **fields: Any) -> Any:
        agent = await office.join(name)
        first = await agent(operation, handoff, command_id=f"c-{operation}-{name}", **fields)
        await office.restart(down_ms=1_000)
        again = await (await office.join(name))(
            operation, handoff, command_id=f"c-{operation}-{name}", **fields
        )
        assert _but_for_leases(again) == _but_for_leases(first), operation
        return first

    offered = (await twice("inbox_monitor", "offer", **offer()))["handoff"]
    handoff_id = offered["id"]
    taken = await twice("code_agent", "take", process="p", heartbeat_seconds=10)
    assert [d["attempt"] for d in taken["deliveries"]] == [1]
    await twice("code_agent", "ack", handoff_id, attempt=1, status="queued", eta="2h")
    await twice("code_agent", "update", handoff_id, attempt=1, status="reproducing")
    await twice("code_agent", "step", handoff_id, named="open-ticket", attempt=1, value="T-1")
    await twice("code_agent", "checkpoint", handoff_id, attempt=1, checkpoint={"page": 7})
    blocked = await twice("code_agent", "block", handoff_id, attempt=1, question="Which app?")
    seq = blocked["handoff"]["question"]["seq"]
    await twice("inbox_monitor", "answer", handoff_id, seq=seq, answer="1.2")
    await twice("code_agent", "note", handoff_id, text="found it")
    await twice("code_agent", "complete", handoff_id, attempt=1, result="fixed")
    settled = await twice("inbox_monitor", "settle", handoff_id)

    entries = (await (await office.join("inbox_monitor"))("log", handoff_id=handoff_id))["entries"]
    kinds = [e["type"].removeprefix("handoff.").removesuffix(".v1") for e in entries]
    assert kinds == [
        "offered", "delivered", "accepted", "updated", "step_recorded", "checkpointed", "blocked",
        "answered", "resumed", "noted", "completed", "outcome_delivered", "settled",
    ]  # fmt: skip
    assert settled["handoff"]["state"] == "completed"


def _but_for_leases(answer: Any) -> str:
    """A restart prolongs leases, so when they end is not part of what is repeated."""
    return re.sub(r'"(lease_until|due_at)": "[^"]*"', "", json.dumps(answer))


async def test_a_take_repeated_while_the_first_waits_returns_the_same_deliveries(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    said = {"wait": "60s", "process": "p", "heartbeat_seconds": 10, "command_id": "t1"}
    first = office.start(code_agent("take", **said))
    await office.settled()
    elsewhere = await office.enter("nd_default_code_agent_agent_secret")
    again = office.start(elsewhere("take", **said))
    await office.settled()
    assert not first.done()
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    for take in (first, again):
        [delivery] = (await take)["deliveries"]
        assert (delivery["handoff"]["id"], delivery["attempt"]) == (offered["id"], 1)


async def test_the_same_key_is_the_same_handoff(inbox_monitor: Any) -> None:
    first = await inbox_monitor("offer", **offer())
    again = await inbox_monitor("offer", **offer())
    assert again["handoff"]["id"] == first["handoff"]["id"]
    assert again["replayed"] is True
    assert "replayed" not in first
    assert len((await inbox_monitor("list_handoffs"))["handoffs"]) == 1


async def test_the_same_key_for_another_request_is_a_conflict_that_names_the_first(
    inbox_monitor: Any,
) -> None:
    first = (await inbox_monitor("offer", **offer()))["handoff"]
    with pytest.raises(IdempotencyConflictError) as refused:
        await inbox_monitor("offer", **offer(title="another bug"))
    assert first["id"] in refused.value.detail


async def test_the_order_of_keys_and_the_trace_make_no_other_request(inbox_monitor: Any) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    first = await inbox_monitor("offer", **offer(payload={"a": 1, "b": 2}))
    again = await inbox_monitor("offer", **offer(payload={"b": 2, "a": 1}, traceparent=trace))
    assert again["handoff"]["id"] == first["handoff"]["id"]


async def test_keys_of_different_senders_do_not_meet(office: Any, inbox_monitor: Any) -> None:
    mine = await inbox_monitor("offer", **offer())
    theirs = await (await office.join("support_agent"))("offer", **offer())
    assert mine["handoff"]["id"] != theirs["handoff"]["id"]


async def test_a_command_id_used_for_another_handoff_is_refused(
    inbox_monitor: Any, code_agent: Any
) -> None:
    one = (await inbox_monitor("offer", to="code_agent", title="one"))["handoff"]
    two = (await inbox_monitor("offer", to="code_agent", title="two"))["handoff"]
    await code_agent("ack", one["id"], command_id="c1")
    with pytest.raises(IdempotencyConflictError):
        await code_agent("ack", two["id"], command_id="c1")


async def test_a_refusal_is_not_remembered(inbox_monitor: Any, code_agent: Any) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="one"))["handoff"]
    with pytest.raises(NotFinishedError):
        await inbox_monitor("settle", offered["id"], command_id="s1")
    await code_agent("reject", offered["id"])
    settled = await inbox_monitor("settle", offered["id"], command_id="s1")
    assert settled["handoff"]["settled_at"] is not None


async def test_a_step_recorded_twice_keeps_its_first_value(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="one"))["handoff"]
    await code_agent("ack", offered["id"])
    for value in ("T-1", "T-2"):
        step = await code_agent("step", offered["id"], named="open", attempt=1, value=value)
        assert (step["recorded"], step["value"]) == (True, "T-1")
    missing = await code_agent("get_step", offered["id"], named="close")
    assert (missing["recorded"], missing["value"]) == (False, None)


async def test_a_command_id_used_for_another_kind_of_command_is_refused(
    inbox_monitor: Any, code_agent: Any
) -> None:
    await inbox_monitor("note_team", text="good morning", command_id="c1")
    with pytest.raises(IdempotencyConflictError):
        await inbox_monitor("offer", to="code_agent", title="one", command_id="c1")
    offered = (await inbox_monitor("offer", to="code_agent", title="two", command_id="c2"))[
        "handoff"
    ]
    with pytest.raises(IdempotencyConflictError):
        await inbox_monitor("note_team", text="good evening", command_id="c2")
    await code_agent("note", offered["id"], text="seen", command_id="c3")
    with pytest.raises(IdempotencyConflictError):
        await code_agent("take", command_id="c3")


async def test_a_note_sent_twice_at_once_is_written_once(inbox_monitor: Any) -> None:
    notes = [inbox_monitor("note_team", text="good morning", command_id="c1") for _ in range(5)]
    seqs = {answer["seq"] for answer in await asyncio.gather(*notes)}
    entries = (await inbox_monitor("log", type="team.noted.v1"))["entries"]
    assert [entry["seq"] for entry in entries] == list(seqs)


async def test_a_repeated_offer_is_answered_though_nobody_could_take_it_any_more(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    manifest = {"agent_id": "code_agent", "capabilities": [{"name": "bug_triage"}]}
    await code_agent("register", named="code_agent", manifest=manifest)
    wanted = {
        "capability": "bug_triage", "deadline": "2026-01-01T00:10:00Z", "command_id": "c1",
        "idempotency_key": "msg_123",
    }  # fmt: skip
    first = (await inbox_monitor("offer", **wanted))["handoff"]
    await code_agent("remove_agent", named="code_agent")
    office.clock.advance(3_600_000)  # and the deadline it names is over
    for again in (wanted, {**wanted, "command_id": "c2"}):
        assert (await inbox_monitor("offer", **again))["handoff"]["id"] == first["id"]
    with pytest.raises(IdempotencyConflictError):
        await inbox_monitor("offer", **{**wanted, "command_id": "c3", "title": "another"})
    with pytest.raises(NoMatchError):
        await inbox_monitor("offer", capability="bug_triage", command_id="c4")


async def test_another_request_under_a_used_command_id_is_refused(office: Any) -> None:
    """Every command of the cycle: sent, sent with another body, and sent again as it was."""

    async def compared(
        name: str, operation: str, handoff: str | None = None, *, other: dict[str, Any], **sent: Any
    ) -> Any:
        agent = await office.join(name)
        said = {"command_id": f"c-{operation}", **sent}
        first = await agent(operation, handoff, **said)
        with pytest.raises(IdempotencyConflictError, match=f"c-{operation}"):
            await agent(operation, handoff, **said | other)
        again = await agent(operation, handoff, **said)
        again.pop("replayed", None)
        assert _but_for_leases(again) == _but_for_leases(first)
        return first

    offered = await compared(
        "inbox_monitor", "offer", to="code_agent", title="one", other={"title": "two"}
    )
    handoff_id = offered["handoff"]["id"]
    await compared("code_agent", "take", process="p", heartbeat_seconds=10, other={"max": 7})
    await compared("code_agent", "ack", handoff_id, attempt=1, other={"eta": "2h"})
    await compared(
        "code_agent", "update", handoff_id, attempt=1, status="half", other={"status": "done"}
    )
    await compared(
        "code_agent", "step", handoff_id, named="s", attempt=1, value=1, other={"value": 2}
    )
    await compared(
        "code_agent", "checkpoint", handoff_id, attempt=1, checkpoint=[1], other={"checkpoint": [2]}
    )
    blocked = await compared(
        "code_agent", "block", handoff_id, attempt=1, question="A?", other={"question": "B?"}
    )
    seq = blocked["handoff"]["question"]["seq"]
    await compared(
        "inbox_monitor", "answer", handoff_id, seq=seq, answer="yes", other={"answer": "no"}
    )
    await compared("code_agent", "note", handoff_id, text="this", other={"text": "that"})
    await compared(
        "code_agent", "complete", handoff_id, attempt=1, result={"a": 1}, other={"result": {"a": 2}}
    )
    await compared("inbox_monitor", "note_team", text="this", other={"text": "that"})
    thread = {"to": "code_agent", "thread": "t"}
    await compared("inbox_monitor", "say", **thread, text="hi", other={"text": "ho"})
    await compared("inbox_monitor", "tell_status", status="working", other={"status": "stuck"})
    members = {"a": {"to": "code_agent", "title": "a"}}
    await compared(
        "inbox_monitor",
        "offer_group",
        offers=members,
        other={"offers": {**members, "b": members["a"]}},
    )


async def test_another_event_under_a_used_command_id_is_refused(inbox_monitor: Any) -> None:
    first = await inbox_monitor("emit", type="t", data={"n": 1}, command_id="c1")
    with pytest.raises(IdempotencyConflictError):
        await inbox_monitor("emit", type="t", data={"n": 2}, command_id="c1")
    again = await inbox_monitor("emit", type="t", data={"n": 1}, command_id="c1")
    assert again["seq"] == first["seq"]


async def test_a_request_is_compared_with_the_first_after_a_restart(office: Any) -> None:
    said = {"to": "code_agent", "command_id": "c1", "payload": {"a": 1, "b": [2]}}
    first = await (await office.join("inbox_monitor"))("offer", title="one", **said)
    await office.restart(down_ms=1_000)
    inbox_monitor = await office.join("inbox_monitor")
    with pytest.raises(IdempotencyConflictError):
        await inbox_monitor("offer", title="two", **said)
    said["payload"] = {"b": [2], "a": 1}
    again = await inbox_monitor("offer", title="one", **said)
    assert again["handoff"]["id"] == first["handoff"]["id"]


async def test_without_the_comparison_the_second_piece_of_work_does_not_exist(
    inbox_monitor: Any,
) -> None:
    first = await inbox_monitor("offer", to="code_agent", title="one", command_id="c1")
    with mutations.any_request():
        second = await inbox_monitor("offer", to="code_agent", title="two", command_id="c1")
    assert second["handoff"]["id"] == first["handoff"]["id"]


async def test_two_requests_at_once_under_one_command_id_are_one_and_a_refusal(
    inbox_monitor: Any,
) -> None:
    said = [inbox_monitor("say", to="code_agent", text=text, command_id="c1") for text in "ab"]
    answers = await asyncio.gather(*said, return_exceptions=True)
    assert sorted(isinstance(answer, IdempotencyConflictError) for answer in answers) == [
        False,
        True,
    ]
