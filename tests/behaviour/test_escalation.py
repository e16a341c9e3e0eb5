"""The ladder: what the relay does by itself when nobody moves. Each step fires once per episode."""

from typing import Any

import pytest

from nodrop.model.errors import InvalidRequestError

MINUTE = 60_000
HOUR = 60 * MINUTE


async def offer(agent: Any, *steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    said = {"to": "code_agent", "title": "bug", "escalation": list(steps), **fields}
    return (await agent("offer", **said))["handoff"]


async def notices(agent: Any) -> list[str]:
    items = (await agent("inbox", all=True))["items"]
    return [item["summary"] for item in items if item["kind"] == "notice"]


async def escalations(me: Any) -> list[dict[str, Any]]:
    page = await me("log", type="handoff.escalated.v1", limit=500)
    return [entry["data"] for entry in page["entries"]]


async def test_a_nudge_comes_before_the_person_is_told_and_each_comes_once(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    await offer(inbox_monitor, {"when": "unacknowledged", "after": "1h", "notify": "me"})
    office.clock.advance(16 * MINUTE)
    assert (await me("log", type="handoff.nudged.v1", wait="60s"))["entries"]
    assert await notices(code_agent) == [
        "bug: you have not acknowledged it since 2026-01-01T00:00:00.000Z"
    ]
    assert await notices(me) == []
    office.clock.advance(45 * MINUTE)
    assert (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    [notice] = await notices(me)
    assert notice == (
        "bug: code_agent has not acknowledged it since 2026-01-01T00:00:00.000Z"
        ' (inbox_monitor\'s step "unacknowledged after 1h")'
    )
    office.clock.advance(2 * HOUR)
    await office.settled()
    assert len(await escalations(me)) == 1


async def test_a_step_fires_once_across_a_restart(office: Any, inbox_monitor: Any) -> None:
    await offer(inbox_monitor, {"when": "unacknowledged", "after": "1h", "notify": "me"})
    office.clock.advance(61 * MINUTE)
    me = await office.person()
    assert (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    await office.restart(down_ms=2 * HOUR)
    me = await office.person()
    office.clock.advance(3 * HOUR)
    await office.settled()
    assert len(await escalations(me)) == 1


async def test_a_step_that_ran_out_while_the_relay_was_down_counts_anew(
    office: Any, inbox_monitor: Any
) -> None:
    await offer(inbox_monitor, {"when": "unacknowledged", "after": "1h", "notify": "me"})
    await office.restart(down_ms=3 * HOUR)
    me = await office.person()
    await office.settled()
    assert await escalations(me) == []
    office.clock.advance(61 * MINUTE)
    assert (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]


async def test_what_nobody_acknowledges_is_given_to_somebody_else(
    office: Any, inbox_monitor: Any
) -> None:
    second = await office.join("second_coder")
    step = {"when": "unacknowledged", "after": "1h", "reassign": {"to": "second_coder"}}
    offered = await offer(inbox_monitor, step)
    moved = await office.pass_time(61 * MINUTE, of=offered, then={"to": "second_coder"})
    assert (moved["to"], moved["state"], moved["tries"]) == ("second_coder", "offered", 0)
    [delivery] = (await second("take"))["deliveries"]
    assert delivery["handoff"]["id"] == offered["id"]


async def test_a_step_finds_somebody_by_capability(office: Any, inbox_monitor: Any) -> None:
    helper = await office.join("helper")
    capability = {"name": "bug_triage", "input_schema": {"n": "int"}}
    manifest = {"agent_id": "helper", "capabilities": [capability]}
    await helper("register", named="helper", manifest=manifest)
    step = {"when": "silent", "after": "5m", "reassign": {"capability": "bug_triage"}}
    code_agent = await office.join("code_agent")
    offered = await offer(inbox_monitor, step, payload={"n": 1})
    await code_agent("ack", offered["id"])
    office.clock.advance(31 * MINUTE)
    assert (await code_agent("log", type="handoff.nudged.v1", wait="60s"))["entries"]
    moved = await office.pass_time(6 * MINUTE, of=offered, then={"to": "helper"})
    assert (moved["state"], moved["capability"]) == ("offered", "bug_triage")


async def test_a_step_that_finds_nobody_tells_the_person_instead(
    office: Any, inbox_monitor: Any
) -> None:
    me = await office.person()
    step = {"when": "unacknowledged", "after": "1h", "reassign": {"capability": "nobody_can"}}
    offered = await offer(inbox_monitor, step)
    office.clock.advance(61 * MINUTE)
    [entry] = (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    assert entry["data"] == {"notify": "me", "step": 0, "when": "unacknowledged"}
    assert (await me("get_handoff", offered["id"]))["handoff"]["to"] == "code_agent"


async def test_a_step_does_not_give_a_payload_to_somebody_whom_it_does_not_fit(
    office: Any, inbox_monitor: Any
) -> None:
    helper, me = await office.join("helper"), await office.person()
    capability = {"name": "bug_triage", "input_schema": {"n": "int"}}
    manifest = {"agent_id": "helper", "capabilities": [capability]}
    await helper("register", named="helper", manifest=manifest)
    step = {"when": "unacknowledged", "after": "1h", "reassign": {"to": "helper"}}
    offered = await offer(inbox_monitor, step, payload={"n": "three"})
    office.clock.advance(61 * MINUTE)
    assert (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    assert (await me("get_handoff", offered["id"]))["handoff"]["to"] == "code_agent"


async def test_a_step_finds_somebody_else_whom_the_payload_fits(
    office: Any, inbox_monitor: Any
) -> None:
    agents = {name: await office.join(name) for name in ("code_agent", "first", "second")}
    for (name, agent), kind in zip(agents.items(), ("string", "int", "string"), strict=True):
        capability = {"name": "bug_triage", "input_schema": {"n": kind}}
        manifest = {"agent_id": name, "capabilities": [capability]}
        await agent("register", named=name, manifest=manifest)
    step = {"when": "silent", "after": "5m", "reassign": {"capability": "bug_triage"}}
    offered = await offer(inbox_monitor, step, payload={"n": "three"})
    await agents["code_agent"]("ack", offered["id"])  # awake, and so the first in the order
    office.clock.advance(31 * MINUTE)
    assert (await inbox_monitor("log", type="handoff.nudged.v1", wait="60s"))["entries"]
    moved = await office.pass_time(6 * MINUTE, of=offered, then={"state": "offered"})
    assert moved["to"] == "second"


async def test_steps_that_are_due_at_once_find_somebody_however_large_the_payloads_are(
    office: Any, inbox_monitor: Any
) -> None:
    step = {"when": "unacknowledged", "after": "1h", "reassign": {"to": "second_coder"}}
    large = {"text": "x" * 1_000_000}
    offered = [await offer(inbox_monitor, step, title=str(n), payload=large) for n in range(14)]
    office.clock.advance(61 * MINUTE)
    for handoff in offered:  # together, they are more than a relay keeps in memory
        await office.see(handoff, {"to": "second_coder"})


async def test_a_raised_priority_is_taken_first(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    step = {"when": "unacknowledged", "after": "20m", "raise_priority": "urgent"}
    await offer(inbox_monitor, title="first")
    raised = await offer(inbox_monitor, step, title="second", priority="low")
    office.clock.advance(21 * MINUTE)
    assert (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    [delivery] = (await code_agent("take"))["deliveries"]
    assert (delivery["handoff"]["id"], delivery["handoff"]["priority"]) == (raised["id"], "urgent")


async def test_an_unanswered_question_is_escalated(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    offered = await offer(inbox_monitor, {"when": "blocked", "after": "1h", "notify": "me"})
    await code_agent("ack", offered["id"])
    await code_agent("block", offered["id"], attempt=1, question="Which version?")
    office.clock.advance(61 * MINUTE)
    [entry] = (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    assert entry["data"]["when"] == "blocked"


@pytest.mark.parametrize("when", ["overdue", "dead"])
async def test_what_is_over_is_tried_again_with_somebody_else_in_the_same_commit(
    office: Any, inbox_monitor: Any, when: str
) -> None:
    second, me = await office.join("second_coder"), await office.person()
    step = {"when": when, "reassign": {"to": "second_coder"}}
    told = {"when": "unacknowledged", "after": "10m", "notify": "me"}
    then = [{"to": "support_agent"}]
    fields = {"deadline": "2h", "payload": {"n": 1}, "then": then, "idempotency_key": f"k-{when}"}
    offered = await offer(inbox_monitor, step, told, **fields)
    gone = await office.pass_time(2 * HOUR, of=offered, then={"state": "expired"})
    gone = await office.see(offered, {"successor": ...})
    assert (gone["decision"], gone["holder"]) == ("redriven", None)
    [delivery] = (await second("take"))["deliveries"]
    successor = delivery["handoff"]
    assert (successor["redrive_of"], successor["payload"]) == (offered["id"], {"n": 1})
    assert successor["chain"]["next"] == ["support_agent"]
    assert [s["when"] for s in successor["escalation"]] == ["unacknowledged"], "it made a successor"
    assert successor["deadline"] > offered["deadline"]
    assert (await me("get_handoff", f"inbox_monitor/k-{when}"))["handoff"]["id"] == successor["id"]
    [item] = [i for i in (await inbox_monitor("inbox"))["items"] if i["kind"] == "outcome"] or [
        None
    ]
    assert item is None, "the successor owes the outcome now"


async def test_whoever_waits_hears_of_what_a_step_tried_again_and_not_of_what_failed(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    second = await office.join("second_coder")
    office.clock.advance(1)
    step = {"when": "dead", "reassign": {"to": "second_coder"}}
    offered = await offer(inbox_monitor, step, payload={"n": 1})
    waiting = office.start(inbox_monitor("get_handoff", offered["id"], wait="60s"))
    await office.settled()
    await code_agent("ack", offered["id"])
    await code_agent("fail", offered["id"], attempt=1, reason="no access")
    [delivery] = (await second("take"))["deliveries"]
    successor = delivery["handoff"]
    assert (successor["redrive_of"], successor["payload"]) == (offered["id"], {"n": 1})
    await second("ack", successor["id"], attempt=1)
    await second("complete", successor["id"], attempt=1, result="fixed")
    assert (await waiting)["handoff"]["outcome"]["result"] == "fixed"


async def test_the_person_is_to_decide_although_the_requester_has_the_outcome(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    me = await office.person()
    dead = await offer(inbox_monitor, {"when": "dead", "notify": "me"}, watchers=["bystander"])
    await code_agent("ack", dead["id"])
    await code_agent("fail", dead["id"], attempt=1, reason="no access")
    office.clock.advance(1)
    assert (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    await inbox_monitor("settle", dead["id"])
    waiting = [(item["kind"], item["summary"]) for item in (await me("inbox"))["items"]]
    [(kind, notice)] = waiting
    why = 'inbox_monitor\'s step "dead"'
    failed = f'bug: it failed with code_agent, "no access", since 2026-01-01T00:00:00.000Z ({why})'
    assert (kind, notice) == ("notice", failed)
    bystander = await office.join("bystander")
    assert (await bystander("inbox"))["items"] == [], "nobody asked it to decide"
    await me("discard", dead["id"])
    assert (await me("inbox"))["items"] == []


@pytest.mark.parametrize(
    ("step", "path"),
    [
        ({"when": "silent"}, "escalation[0].notify"),
        ({"when": "never", "notify": "me"}, "escalation[0].when"),
        ({"when": "dead", "reassign": {}}, "escalation[0].reassign.to"),
        ({"when": "dead", "raise_priority": "asap"}, "escalation[0].raise_priority"),
    ],
)
async def test_a_step_that_makes_no_sense_is_refused_with_its_place(
    inbox_monitor: Any, step: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await offer(inbox_monitor, step)
    assert [problem.path for problem in refused.value.errors] == [path]
