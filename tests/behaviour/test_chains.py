"""Chains: the next leg opens in the commit of the result before it."""

from typing import Any

import pytest

from nodrop.model.errors import LoopDetectedError, NoMatchError

THEN = [
    {"to": "inbox_monitor", "title": "Customer-ready response"},
    {"to": "support_agent", "title": "Final review"},
]


async def finish(agent: Any, result: Any) -> dict[str, Any]:
    [delivery] = (await agent("take"))["deliveries"]
    handoff_id = delivery["handoff"]["id"]
    await agent("ack", handoff_id, attempt=delivery["attempt"])
    await agent("complete", handoff_id, attempt=delivery["attempt"], result=result)
    return delivery["handoff"]


async def test_the_seeds_chain_goes_from_hand_to_hand(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    offered = (
        await inbox_monitor(
            "offer", to="code_agent", title="bug", payload={"email_id": "msg_123"}, then=THEN
        )
    )["handoff"]
    assert offered["chain"] == {
        "origin": "inbox_monitor", "done": [], "here": 0,
        "next": ["inbox_monitor", "support_agent"],
    }  # fmt: skip

    await finish(code_agent, {"cause": "css"})
    second = await finish(inbox_monitor, "Dear Jane")
    assert (second["from"], second["title"]) == ("code_agent", "Customer-ready response")
    assert second["payload"] == {"result": {"cause": "css"}, "origin": {"email_id": "msg_123"}}
    third = await finish(support, "sent")
    assert third["payload"] == {"result": "Dear Jane", "origin": {"email_id": "msg_123"}}
    assert third["chain"]["here"] == 2
    assert [leg["agent"] for leg in third["chain"]["done"]] == ["code_agent", "inbox_monitor"]
    assert {offered["correlation_id"]} == {second["correlation_id"], third["correlation_id"]}

    whole = await inbox_monitor("get_handoff", offered["id"], wait="30s", of="chain")
    assert whole["handoff"]["outcome"]["result"] == "sent"
    first = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert (first["outcome"]["result"], first["next_leg"]) == ({"cause": "css"}, second["id"])
    assert first["receipts"][-1]["rung"] == "settled"
    trace = await inbox_monitor("trace", named=offered["correlation_id"])
    assert [h["id"] for h in trace["handoffs"]] == [offered["id"], second["id"], third["id"]]


async def test_only_the_end_of_a_chain_is_an_outcome_for_its_origin(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    then = [{"to": "support_agent"}]
    await inbox_monitor("offer", to="code_agent", title="bug", then=then)
    await finish(code_agent, 1)
    assert (await inbox_monitor("inbox"))["items"] == []
    last = await finish(support, 2)
    [item] = (await inbox_monitor("inbox"))["items"]
    assert (item["kind"], item["handoff_id"]) == ("outcome", last["id"])


async def test_a_waiter_for_the_chain_is_woken_by_its_last_leg(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    offered = (
        await inbox_monitor("offer", to="code_agent", title="bug", then=[{"to": "support_agent"}])
    )["handoff"]
    waiting = office.start(inbox_monitor("get_handoff", offered["id"], wait="60s", of="chain"))
    await finish(code_agent, 1)
    await finish(support, 2)
    assert (await waiting)["handoff"]["outcome"]["result"] == 2


async def test_a_leg_that_cannot_open_becomes_a_dead_letter_and_the_completion_stands(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (
        await inbox_monitor(
            "offer", to="code_agent", title="bug", then=[{"capability": "nobody_can"}]
        )
    )["handoff"]
    await finish(code_agent, 1)
    first = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert first["state"] == "completed"
    [dead] = (await inbox_monitor("dead_letters"))["handoffs"]
    assert (dead["id"], dead["outcome"]["code"]) == (first["next_leg"], "no_match")


async def test_a_leg_that_nobody_could_take_is_redriven_to_whoever_offers_its_capability_by_then(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    await inbox_monitor("offer", to="code_agent", title="bug", then=[{"capability": "review"}])
    await finish(code_agent, 1)
    [dead] = (await inbox_monitor("dead_letters"))["handoffs"]
    with pytest.raises(NoMatchError):
        await inbox_monitor("redrive", dead["id"])
    reviewer = await office.join("reviewer")
    manifest = {"agent_id": "reviewer", "capabilities": [{"name": "review"}]}
    await reviewer("register", named="reviewer", agent="reviewer", manifest=manifest)
    await inbox_monitor("redrive", dead["id"])
    last = await finish(reviewer, 2)
    assert last["payload"]["result"] == 1
    assert (await inbox_monitor("dead_letters"))["handoffs"] == []


async def test_a_failed_leg_ends_the_chain_and_redriving_it_finishes_the_chain(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    offered = (
        await inbox_monitor("offer", to="code_agent", title="bug", then=[{"to": "support_agent"}])
    )["handoff"]
    await code_agent("ack", offered["id"])
    await code_agent("fail", offered["id"], attempt=1, reason="no access")
    assert (await support("inbox"))["items"] == []
    await inbox_monitor("redrive", offered["id"])
    await finish(code_agent, 1)
    last = await finish(support, 2)
    assert last["payload"]["result"] == 1
    whole = await inbox_monitor("get_handoff", offered["id"], of="chain")
    assert whole["handoff"]["outcome"]["result"] == 2


async def test_a_chain_that_comes_back_too_often_is_refused(inbox_monitor: Any) -> None:
    then = [{"to": "code_agent"}] * 3
    with pytest.raises(LoopDetectedError):
        await inbox_monitor("offer", to="code_agent", title="bug", then=then)
    assert (await inbox_monitor("list_handoffs"))["handoffs"] == []


async def test_one_trace_goes_along_five_legs_and_a_restart(
    office: Any, inbox_monitor: Any
) -> None:
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    then = [{"to": f"agent_{n}"} for n in range(2, 6)]
    offered = (
        await inbox_monitor(
            "offer", to="agent_1", title="five", then=then, traceparent=traceparent
        )
    )["handoff"]  # fmt: skip
    seen = [await finish(await office.join(f"agent_{n}"), n) for n in (1, 2)]
    await office.restart()
    third = await office.join("agent_3")
    [delivery] = (await third("take"))["deliveries"]
    below = await third("offer", to="helper", title="aside", parent_id=delivery["handoff"]["id"])
    await third("ack", delivery["handoff"]["id"], attempt=delivery["attempt"])
    await third("complete", delivery["handoff"]["id"], attempt=delivery["attempt"], result=3)
    seen += [delivery["handoff"], below["handoff"]]
    seen += [await finish(await office.join(f"agent_{n}"), n) for n in (4, 5)]
    contexts = [handoff["traceparent"].split("-") for handoff in (offered, *seen)]
    assert {(version, trace, flags) for version, trace, _, flags in contexts} == {
        ("00", "4bf92f3577b34da6a3ce929d0e0e4736", "01")
    }
    spans = [span for _, _, span, _ in contexts]
    assert spans[0] == spans[1], "what the requester was told is what the recipient works in"
    assert len(set(spans)) == len(spans) - 1, "each handoff is a span of its own"
    legs = [handoff["id"].replace("-", "")[-16:] for handoff in seen]
    assert spans[1:] == legs, "whoever has the id has the span"


async def test_a_chain_that_nobody_traces_is_a_trace_of_its_own(
    office: Any, inbox_monitor: Any
) -> None:
    then = [{"to": "agent_2"}]
    offered = (await inbox_monitor("offer", to="agent_1", title="two", then=then))["handoff"]
    legs = [await finish(await office.join(f"agent_{n}"), n) for n in (1, 2)]
    named_after = offered["correlation_id"].replace("-", "")
    assert [leg["traceparent"].split("-")[1] for leg in legs] == [named_after, named_after]
    named = (
        await inbox_monitor("offer", to="agent_1", title="named", correlation_id="case 7")
    )["handoff"]  # fmt: skip
    [other] = (await (await office.join("agent_1"))("take"))["deliveries"]
    assert other["handoff"]["traceparent"] == named["traceparent"]
    trace = named["traceparent"].split("-")[1]
    assert len(trace) == 32
    assert trace not in {named_after, "0" * 32}
