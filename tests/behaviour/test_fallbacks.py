"""Chains beyond the straight line: fallbacks, mappings, deadlines, withdrawal."""

from datetime import datetime
from typing import Any

import pytest

from nodrop.model.errors import (
    AlreadyDecidedError,
    AlreadyFinishedError,
    ForbiddenError,
    InvalidRequestError,
)

HOUR = 3_600_000


async def take(agent: Any) -> dict[str, Any]:
    [delivery] = (await agent("take"))["deliveries"]
    await agent("ack", delivery["handoff"]["id"], attempt=delivery["attempt"])
    return delivery["handoff"]


async def finish(agent: Any, result: Any) -> dict[str, Any]:
    handoff = await take(agent)
    await agent("complete", handoff["id"], attempt=1, result=result)
    return handoff


async def break_off(agent: Any, **why: Any) -> dict[str, Any]:
    handoff = await take(agent)
    return (await agent("fail", handoff["id"], attempt=1, **why))["handoff"]


async def offer(agent: Any, **fields: Any) -> dict[str, Any]:
    return (await agent("offer", **{"to": "code_agent", "title": "bug", **fields}))["handoff"]


THEN = [{"to": "second_coder", "on": "failed"}, {"to": "support_agent"}]


async def test_a_fallback_takes_the_place_of_what_failed_and_the_chain_goes_on(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    second, support = await office.join("second_coder"), await office.join("support_agent")
    offered = await offer(inbox_monitor, payload={"email_id": 1}, then=THEN)
    assert offered["chain"]["next"] == ["support_agent"]
    failed = await break_off(code_agent, reason="no access")
    assert (failed["state"], failed["holder"], failed["decision"]) == ("failed", None, None)
    assert (await inbox_monitor("dead_letters"))["handoffs"] == []
    assert (await inbox_monitor("inbox"))["items"] == []

    replaced = await finish(second, "fixed")
    assert replaced["payload"] == {"email_id": 1}
    assert [leg["state"] for leg in replaced["chain"]["done"]] == ["failed"]
    last = await finish(support, "sent")
    assert last["payload"] == {"result": "fixed", "origin": {"email_id": 1}}
    whole = await inbox_monitor("get_handoff", offered["id"], of="chain", wait="30s")
    assert whole["handoff"]["outcome"]["result"] == "sent"
    with pytest.raises(AlreadyDecidedError):
        await inbox_monitor("redrive", offered["id"])


async def test_a_fallback_that_is_not_needed_is_passed_over(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    second, support = await office.join("second_coder"), await office.join("support_agent")
    await offer(inbox_monitor, then=THEN)
    await finish(code_agent, "fixed")
    assert (await finish(support, "sent"))["from"] == "code_agent"
    assert (await second("inbox"))["items"] == []


async def test_a_fallback_at_the_end_of_a_chain_leaves_the_outcome_to_the_origin(
    inbox_monitor: Any, code_agent: Any
) -> None:
    done = await offer(inbox_monitor, then=[{"to": "second_coder", "on": "failed"}])
    await finish(code_agent, "fixed")
    [item] = (await inbox_monitor("inbox"))["items"]
    assert (item["kind"], item["handoff_id"]) == ("outcome", done["id"])


async def test_the_last_fallback_that_fails_too_is_the_dead_letter(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    second = await office.join("second_coder")
    await offer(inbox_monitor, then=[{"to": "second_coder", "on": "failed"}])
    await break_off(code_agent)
    dead = await break_off(second)
    assert [h["id"] for h in (await inbox_monitor("dead_letters"))["handoffs"]] == [dead["id"]]


async def test_what_expires_goes_to_its_fallback_which_gets_as_much_time(
    office: Any, inbox_monitor: Any
) -> None:
    second = await office.join("second_coder")
    offered = await offer(inbox_monitor, deadline="2h", then=THEN)
    gone = await office.pass_time(2 * HOUR, then={"next_leg": ...}, of=offered)
    assert (gone["state"], gone["holder"]) == ("expired", None)
    leg = await take(second)
    assert leg["payload"] == offered["payload"]
    assert (await office.see(leg["id"], {"state": "accepted"}))["deadline"] > (offered["deadline"])


async def test_a_fallback_survives_a_restart_before_its_turn(
    office: Any, inbox_monitor: Any
) -> None:
    offered = await offer(inbox_monitor, deadline="2h", payload={"n": 1}, then=THEN)
    await office.restart(down_ms=3 * HOUR)
    second = await office.join("second_coder")
    await office.see(offered, {"next_leg": ...})
    assert (await take(second))["payload"] == {"n": 1}


async def test_a_leg_that_cannot_open_goes_to_its_fallback(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    second = await office.join("second_coder")
    then = [{"capability": "nobody_can"}, {"to": "second_coder", "on": "failed"}]
    offered = await offer(inbox_monitor, then=then)
    await finish(code_agent, 1)
    assert (await take(second))["payload"] == {"result": 1, "origin": None}
    trace = await inbox_monitor("trace", named=offered["correlation_id"])
    assert [(s["kind"], s["state"]) for s in trace["steps"]] == [
        ("first", "completed"), ("leg", "rejected"), ("fallback", "accepted"),
    ]  # fmt: skip


async def test_a_leg_is_given_what_its_mapping_says(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    mapped = {
        "customer": "${origin.customer}",
        "cause": "${result.causes[0].name}",
        "subject": "Re: ${origin.subject} ($${kept})",
        "all": ["${result.causes}", 7],
    }
    then = [{"to": "support_agent", "payload": mapped}, {"to": "code_agent"}]
    payload = {"customer": "jane", "subject": "Login"}
    await offer(inbox_monitor, payload=payload, then=then)
    causes = [{"name": "css"}]
    await finish(code_agent, {"causes": causes})
    leg = await finish(support, "done")
    assert leg["payload"] == {
        "customer": "jane", "cause": "css", "subject": "Re: Login (${kept})", "all": [causes, 7],
    }  # fmt: skip
    assert (await take(code_agent))["payload"] == {"result": "done", "origin": payload}


async def test_a_fallback_may_be_given_why_it_is_needed(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    second = await office.join("second_coder")
    mapped = {"why": "${outcome.reason}", "code": "${outcome.code}", "was": "${payload}"}
    then = [{"to": "second_coder", "on": "failed", "payload": mapped}]
    await offer(inbox_monitor, payload={"n": 1}, then=then)
    await break_off(code_agent, reason="no access", code="forbidden")
    assert (await take(second))["payload"] == {
        "why": "no access", "code": "forbidden", "was": {"n": 1},
    }  # fmt: skip


async def test_a_mapping_that_leads_nowhere_is_a_dead_letter_with_its_reason(
    inbox_monitor: Any, code_agent: Any
) -> None:
    await offer(inbox_monitor, then=[{"to": "b", "payload": {"x": "${result.missing}"}}])
    await finish(code_agent, {"other": 1})
    [dead] = (await inbox_monitor("dead_letters"))["handoffs"]
    assert dead["outcome"]["code"] == "payload_invalid"
    assert dead["outcome"]["reason"] == "${result.missing} leads nowhere"


@pytest.mark.parametrize(
    ("leg", "path"),
    [
        ({"to": "b", "payload": {"a": ["${nothing.x}"]}}, "then[0].payload.a[0]"),
        ({"to": "b", "payload": "${result..x}"}, "then[0].payload"),
        ({"to": "b", "on": "sometimes"}, "then[0].on"),
    ],
)
async def test_a_leg_that_makes_no_sense_is_refused_with_its_place(
    inbox_monitor: Any, leg: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await offer(inbox_monitor, then=[leg])
    assert [problem.path for problem in refused.value.errors] == [path]


async def test_a_shorter_leg_does_not_shorten_the_legs_after_it(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    then = [{"to": "support_agent", "deadline": "1h"}, {"to": "code_agent"}]
    offered = await offer(inbox_monitor, deadline="10h", then=then)
    await finish(code_agent, 1)
    assert (await finish(support, 2))["deadline"] < offered["deadline"]
    assert (await take(code_agent))["deadline"] == offered["deadline"]


def hours(handoff: dict[str, Any]) -> float:
    """Return how much time a handoff was given."""
    until, since = (datetime.fromisoformat(handoff[name]) for name in ("deadline", "stored_at"))
    return (until - since).total_seconds() / 3600


async def late(office: Any, worker: Any, offered: dict[str, Any], ms: int) -> dict[str, Any]:
    """Have the first leg of a chain completed in the chain's last moment; return the next one."""
    await take(worker)
    office.clock.advance(ms)
    await worker("complete", offered["id"], attempt=1, result=1)
    me = await office.person()
    done = (await me("get_handoff", offered["id"]))["handoff"]
    return (await me("get_handoff", done["next_leg"]))["handoff"]


async def test_a_leg_that_is_redriven_has_the_time_that_its_chain_had(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    offered = await offer(inbox_monitor, deadline="4h", then=[{"to": "support_agent"}])
    leg = await late(office, code_agent, offered, 4 * HOUR - 1000)
    for _ in range(2):  # and no more than that when it is redriven again
        gone = await office.pass_time(4 * HOUR, of=leg, then={"state": "expired"})
        await inbox_monitor("redrive", gone["id"])
        gone = await office.see(gone["id"], {"successor": ...})
        leg = (await inbox_monitor("get_handoff", gone["successor"]))["handoff"]
        assert hours(leg) == 4
    assert (await take(support))["id"] == leg["id"]


async def test_a_shorter_leg_that_is_redriven_leaves_the_chains_time_to_those_after_it(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    then = [{"to": "support_agent", "deadline": "1h"}, {"to": "code_agent"}]
    offered = await offer(inbox_monitor, deadline="4h", then=then)
    leg = await late(office, code_agent, offered, HOUR)
    await office.pass_time(5 * HOUR, of=leg, then={"state": "expired"})
    await inbox_monitor("redrive", leg["id"])
    assert hours(await finish(support, 2)) == 1
    assert hours(await take(code_agent)) == 4


async def test_the_fallback_of_a_leg_that_expires_has_the_time_that_the_chain_had(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    second = await office.join("second_coder")
    then = [{"to": "support_agent"}, {"to": "second_coder", "on": "failed"}]
    offered = await offer(inbox_monitor, deadline="4h", then=then)
    leg = await late(office, code_agent, offered, 4 * HOUR - 1000)
    await office.pass_time(1000, of=leg, then={"next_leg": ...})
    assert hours(await take(second)) == 4


async def test_withdrawing_the_first_handoff_withdraws_the_leg_that_its_chain_has_come_to(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    offered = await offer(inbox_monitor, then=[{"to": "support_agent"}, {"to": "code_agent"}])
    await finish(code_agent, 1)
    leg = await take(support)
    cancelled = (await inbox_monitor("cancel", offered["id"], reason="solved"))["handoff"]
    assert (cancelled["id"], cancelled["state"]) == (leg["id"], "cancelled")
    with pytest.raises(AlreadyFinishedError):
        await support("complete", leg["id"], attempt=1, result=2)
    trace = await inbox_monitor("trace", named=offered["correlation_id"])
    assert trace["state"] == "cancelled"


async def test_who_did_a_leg_may_not_withdraw_the_chain_and_learns_nothing_of_the_next_one(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    await office.join("support_agent")
    offered = await offer(inbox_monitor, then=[{"to": "support_agent"}])
    await finish(code_agent, 1)
    with pytest.raises(ForbiddenError):
        await code_agent("cancel", offered["id"])


async def test_what_was_handed_on_below_a_withdrawn_handoff_is_cancelled_unless_detached(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    above = await offer(inbox_monitor)
    await take(code_agent)
    below = await offer(code_agent, to="support_agent", parent_id=above["id"])
    further = await offer(support, to="writer", parent_id=below["id"])
    apart = await offer(code_agent, to="support_agent", parent_id=above["id"], detached=True)
    await inbox_monitor("cancel", above["id"])
    states = {
        name: (await (await office.person())("get_handoff", h["id"]))["handoff"]
        for name, h in (("below", below), ("further", further), ("apart", apart))
    }
    assert {name: h["state"] for name, h in states.items()} == {
        "below": "cancelled", "further": "cancelled", "apart": "offered",
    }  # fmt: skip
    assert states["below"]["holder"] is None


async def test_what_is_below_is_cancelled_though_what_lies_between_has_ended(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support, writer = await office.join("support_agent"), await office.join("writer")
    above = await offer(inbox_monitor)
    await take(code_agent)
    then = [{"to": "writer"}]
    part = await offer(code_agent, to="support_agent", parent_id=above["id"], then=then)
    aside = await offer(support, to="proofreader", parent_id=part["id"])
    apart = await offer(code_agent, to="proofreader", parent_id=above["id"], detached=True)
    kept = await offer(await office.join("proofreader"), to="printer", parent_id=apart["id"])
    await finish(support, "a draft")
    leg = await take(writer)
    await inbox_monitor("cancel", above["id"])
    me = await office.person()
    states = {
        name: (await me("get_handoff", h["id"]))["handoff"]["state"]
        for name, h in (("part", part), ("leg", leg), ("aside", aside), ("kept", kept))
    }
    assert states == {
        "part": "completed", "leg": "cancelled", "aside": "cancelled", "kept": "offered",
    }  # fmt: skip


async def test_nothing_more_is_handed_on_below_what_ended_without_success(
    inbox_monitor: Any, code_agent: Any
) -> None:
    withdrawn = await offer(inbox_monitor)
    await take(code_agent)
    part = {"to": "support_agent", "parent_id": withdrawn["id"]}
    before = await offer(code_agent, **part, idempotency_key="part")
    await inbox_monitor("cancel", withdrawn["id"])
    # Who is at work has not heard of it yet.
    with pytest.raises(AlreadyFinishedError):
        await offer(code_agent, **part, title="another part")
    # What was done before is answered as the first time, and what is on its own goes on.
    assert (await offer(code_agent, **part, idempotency_key="part"))["id"] == before["id"]
    for own in ({"detached": True}, {"correlation_id": "another"}):
        apart = await offer(code_agent, **part, **own)
        assert (apart["state"], apart["parent_id"]) == ("offered", withdrawn["id"])

    failed = await offer(inbox_monitor, title="another bug")
    await break_off(code_agent)
    with pytest.raises(AlreadyFinishedError):
        await offer(inbox_monitor, to="support_agent", parent_id=failed["id"])


async def test_what_comes_of_a_completed_handoff_may_be_handed_on_below_it(
    inbox_monitor: Any, code_agent: Any
) -> None:
    done = await offer(inbox_monitor)
    await finish(code_agent, "fixed")
    after = await offer(inbox_monitor, to="support_agent", parent_id=done["id"])
    assert (after["state"], after["correlation_id"]) == ("offered", done["correlation_id"])


async def test_a_detached_leg_goes_on_when_the_handoff_above_it_is_withdrawn(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    support = await office.join("support_agent")
    offered = await offer(inbox_monitor, then=[{"to": "support_agent", "detached": True}])
    await finish(code_agent, 1)
    with pytest.raises(AlreadyFinishedError):
        await inbox_monitor("cancel", offered["id"])
    await finish(support, 2)
