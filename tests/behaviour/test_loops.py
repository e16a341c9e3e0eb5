"""Work that goes round in circles is stopped: along `then`, and along `parent_id`."""

from typing import Any

import pytest

from nodrop.model.errors import LoopDetectedError


async def handed_on(who: Any, to: str, parent: dict[str, Any] | None) -> dict[str, Any]:
    fields = {"parent_id": parent["id"]} if parent else {}
    return (await who("offer", to=to, **fields))["handoff"]


async def test_two_agents_cannot_hand_work_back_and_forth_for_ever(
    inbox_monitor: Any, code_agent: Any
) -> None:
    handoff, turns = None, [(inbox_monitor, "code_agent"), (code_agent, "inbox_monitor")]
    for n in range(6):
        who, to = turns[n % 2]
        handoff = await handed_on(who, to, handoff)
    assert handoff is not None
    with pytest.raises(LoopDetectedError) as refused:
        await handed_on(inbox_monitor, "code_agent", handoff)
    assert "code_agent" in refused.value.detail
    await handed_on(inbox_monitor, "code_agent", None)  # a line of its own


async def test_a_line_of_ever_new_agents_has_an_end(office: Any) -> None:
    me = await office.person()
    handoff = None
    for n in range(33):
        handoff = await handed_on(me, f"agent_{n}", handoff)
    with pytest.raises(LoopDetectedError):
        await handed_on(me, "agent_33", handoff)


async def test_a_redrive_is_no_further_visit(inbox_monitor: Any, code_agent: Any) -> None:
    handoff = await handed_on(inbox_monitor, "code_agent", None)
    for _ in range(5):
        await code_agent("reject", handoff["id"])
        redriven = (await inbox_monitor("redrive", handoff["id"]))["handoff"]
        handoff = (await inbox_monitor("get_handoff", redriven["successor"]))["handoff"]
    assert handoff["state"] == "offered"


async def test_a_leg_that_is_found_by_capability_and_comes_back_too_often_is_born_rejected(
    inbox_monitor: Any, code_agent: Any
) -> None:
    manifest = {"agent_id": "code_agent", "capabilities": [{"name": "review"}]}
    await code_agent("register", named="code_agent", manifest=manifest)
    then = [{"capability": "review"}] * 4
    handoff = (await inbox_monitor("offer", to="code_agent", then=then))["handoff"]
    for _ in range(3):
        await code_agent("ack", handoff["id"])
        done = (await code_agent("complete", handoff["id"], attempt=1, result=1))["handoff"]
        handoff = (await inbox_monitor("get_handoff", done["next_leg"]))["handoff"]
    assert (handoff["state"], handoff["outcome"]["code"]) == ("rejected", "loop_detected")
