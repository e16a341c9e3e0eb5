"""Repeats without a key: what a turn-based sender sent again is known by its content."""

import asyncio
from typing import Any

import pytest

from nodrop.model.limits import DEFAULT

MINUTE = 60_000


def offer(**changed: Any) -> dict[str, Any]:
    return {
        "to": "code_agent",
        "title": "Login button not working",
        "payload": {"email_id": "msg_123", "steps": [1, 2]},
        "deadline": "4h",
        "turn_based": True,
        **changed,
    }


async def test_the_same_content_is_the_same_handoff_and_says_so(inbox_monitor: Any) -> None:
    first = await inbox_monitor("offer", **offer())
    again = await inbox_monitor("offer", **offer(payload={"steps": [1, 2], "email_id": "msg_123"}))
    assert again["handoff"]["id"] == first["handoff"]["id"]
    assert (again["replayed"], "replayed" in first) == (True, False)
    assert first["handoff"]["idempotency_key"] is None
    assert len((await inbox_monitor("list_handoffs"))["handoffs"]) == 1


async def test_two_at_once_are_one(inbox_monitor: Any) -> None:
    answers = await asyncio.gather(*(inbox_monitor("offer", **offer()) for _ in range(8)))
    assert len({answer["handoff"]["id"] for answer in answers}) == 1
    assert sorted(answer.get("replayed", False) for answer in answers) == [False] + [True] * 7


async def test_it_is_known_after_a_restart(office: Any) -> None:
    first = await (await office.join("inbox_monitor"))("offer", **offer())
    await office.restart(down_ms=MINUTE)
    again = await (await office.join("inbox_monitor"))("offer", **offer())
    assert again["handoff"]["id"] == first["handoff"]["id"]


async def test_after_ten_minutes_it_is_another_which_is_then_the_one_recognised(
    office: Any, inbox_monitor: Any
) -> None:
    first = await inbox_monitor("offer", **offer())
    office.clock.advance(DEFAULT.recognise_ms)
    assert (await inbox_monitor("offer", **offer()))["handoff"]["id"] == first["handoff"]["id"]
    office.clock.advance(1)
    second = await inbox_monitor("offer", **offer())
    assert second["handoff"]["id"] != first["handoff"]["id"]
    again = await inbox_monitor("offer", **offer())
    assert (again["handoff"]["id"], again["replayed"]) == (second["handoff"]["id"], True)


@pytest.mark.parametrize("ended", ["reject", "cancel"])
async def test_once_the_first_has_ended_it_is_another(
    inbox_monitor: Any, code_agent: Any, ended: str
) -> None:
    first = (await inbox_monitor("offer", **offer()))["handoff"]
    await (code_agent if ended == "reject" else inbox_monitor)(ended, first["id"])
    again = await inbox_monitor("offer", **offer())
    assert again["handoff"]["id"] != first["id"]
    assert "replayed" not in again


async def test_who_is_not_turn_based_repeats_nothing_unsaid(inbox_monitor: Any) -> None:
    first = await inbox_monitor("offer", **offer(turn_based=False))
    again = await inbox_monitor("offer", **offer(turn_based=False))
    other = await inbox_monitor("offer", **offer())
    assert len({answer["handoff"]["id"] for answer in (first, again, other)}) == 3


@pytest.mark.parametrize("changed", [{"title": "Another"}, {"payload": {}}, {"to": "b"}])
async def test_other_content_is_another_handoff(
    inbox_monitor: Any, changed: dict[str, Any]
) -> None:
    first = await inbox_monitor("offer", **offer())
    other = await inbox_monitor("offer", **offer(**changed))
    assert other["handoff"]["id"] != first["handoff"]["id"]


async def test_senders_do_not_meet(office: Any, inbox_monitor: Any) -> None:
    mine = await inbox_monitor("offer", **offer())
    theirs = await (await office.join("support_agent"))("offer", **offer())
    assert mine["handoff"]["id"] != theirs["handoff"]["id"]


async def test_a_key_is_compared_as_ever_whoever_sends_it(inbox_monitor: Any) -> None:
    first = await inbox_monitor("offer", **offer(idempotency_key="k"))
    again = await inbox_monitor("offer", **offer(idempotency_key="k", turn_based=False))
    assert (again["handoff"]["id"], again["replayed"]) == (first["handoff"]["id"], True)
    another = await inbox_monitor("offer", **offer(idempotency_key="l"))
    assert another["handoff"]["id"] != first["handoff"]["id"]


async def test_a_repeat_is_answered_though_nobody_could_take_it_any_more(
    inbox_monitor: Any, code_agent: Any
) -> None:
    manifest = {"agent_id": "code_agent", "capabilities": [{"name": "bug_triage"}]}
    await code_agent("register", named="code_agent", manifest=manifest)
    wanted = {"capability": "bug_triage", "title": "T", "turn_based": True}
    first = (await inbox_monitor("offer", **wanted))["handoff"]
    await code_agent("remove_agent", named="code_agent")
    assert (await inbox_monitor("offer", **wanted))["handoff"]["id"] == first["id"]
