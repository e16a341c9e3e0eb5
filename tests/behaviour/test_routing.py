"""Finding the recipient: by name, by capability, and held to what it published."""

import json
from typing import Any

import pytest

from nodrop.model.errors import (
    AlreadyFinishedError,
    CapabilityRequiredError,
    NoMatchError,
    PayloadInvalidError,
    ResultInvalidError,
)

MINUTE = 60_000
SEED_MANIFEST = {
    "agent_id": "research-agent-001",
    "capabilities": [
        {
            "name": "web_research",
            "input_schema": {"query": "string", "depth": "int"},
            "output_schema": {"sources": "array", "summary": "string"},
            "timeout_seconds": 300,
            "reliability_sla": 0.95,
        }
    ],
    "discovery_endpoint": "https://agent-registry.example.com/research-agent-001",
}


async def publish(agent: Any, *capabilities: str) -> None:
    manifest = {"agent_id": agent.name, "capabilities": [{"name": c} for c in capabilities]}
    await agent("register", named=agent.name, manifest=manifest)


async def test_the_seeds_manifest_is_taken_as_it_is_and_enforced(
    office: Any, inbox_monitor: Any
) -> None:
    researcher = await office.join("research-agent-001")
    answer = await researcher("register", named="research-agent-001", manifest=SEED_MANIFEST)
    assert json.dumps(answer["agent"]["manifest"]) == json.dumps(SEED_MANIFEST)

    with pytest.raises(PayloadInvalidError) as refused:
        await inbox_monitor(
            "offer", capability="web_research", payload={"query": "css", "depth": "deep"}
        )
    assert [p.path for p in refused.value.errors] == ["payload.depth"]
    good = {"query": "css", "depth": 2, "more": "is welcome"}
    offered = (await inbox_monitor("offer", capability="web_research", payload=good))["handoff"]
    assert offered["to"] == "research-agent-001"

    await researcher("ack", offered["id"])
    with pytest.raises(ResultInvalidError) as wrong:
        await researcher("complete", offered["id"], attempt=1, result={"sources": []})
    assert [p.path for p in wrong.value.errors] == ["result"]
    result: dict[str, Any] = {"sources": [], "summary": "nothing"}
    await researcher("complete", offered["id"], attempt=1, result=result)


async def test_a_handoff_is_held_to_the_manifest_it_was_offered_under(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    def manifest(output: str) -> dict[str, Any]:
        schema = {"days": output}
        return {
            "agent_id": "code_agent",
            "capabilities": [{"name": "bug_triage", "output_schema": schema}],
        }

    await code_agent("register", named="code_agent", manifest=manifest("int"))
    offered = (await inbox_monitor("offer", to="code_agent"))["handoff"]
    await code_agent("register", named="code_agent", manifest=manifest("string"))
    await office.restart()
    code_agent = await office.join("code_agent")
    await code_agent("ack", offered["id"])
    with pytest.raises(ResultInvalidError):
        await code_agent("complete", offered["id"], attempt=1, result={"days": "three"})
    await code_agent("complete", offered["id"], attempt=1, result={"days": 3})


async def test_a_recipient_with_one_capability_need_not_be_asked_for_it(
    inbox_monitor: Any, code_agent: Any
) -> None:
    await publish(code_agent, "bug_triage")
    offered = (await inbox_monitor("offer", to="code_agent"))["handoff"]
    assert offered["capability"] == "bug_triage"


async def test_a_recipient_with_several_must_be(inbox_monitor: Any, code_agent: Any) -> None:
    await publish(code_agent, "bug_triage", "review")
    with pytest.raises(CapabilityRequiredError) as refused:
        await inbox_monitor("offer", to="code_agent")
    assert [p.path for p in refused.value.errors] == ["capability"]
    assert "review" in refused.value.errors[0].message
    with pytest.raises(NoMatchError):
        await inbox_monitor("offer", to="code_agent", capability="cooking")


async def test_a_rejected_handoff_moves_on_until_nobody_is_left(
    office: Any, inbox_monitor: Any
) -> None:
    agents = [await office.join(name) for name in ("a", "b")]
    for agent in agents:
        await publish(agent, "bug_triage")
    offered = (await inbox_monitor("offer", capability="bug_triage"))["handoff"]
    assert offered["to"] == "a"
    moved = (await agents[0]("reject", offered["id"], reason="busy"))["handoff"]
    assert (moved["to"], moved["state"]) == ("b", "offered")
    ended = (await agents[1]("reject", offered["id"], reason="busy too"))["handoff"]
    assert (ended["state"], ended["outcome"]["code"]) == ("rejected", "no_candidate")


async def test_a_capability_nobody_offers_is_refused_and_nothing_stored(
    inbox_monitor: Any,
) -> None:
    with pytest.raises(NoMatchError):
        await inbox_monitor("offer", capability="juggling")
    assert (await inbox_monitor("list_handoffs"))["handoffs"] == []


async def test_mail_is_kept_for_an_agent_that_has_not_joined_and_the_sender_is_told(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="latecomer", title="bug"))["handoff"]
    assert [w["code"] for w in offered["warnings"]] == ["recipient_unknown"]
    latecomer = await office.join("latecomer")
    [delivery] = (await latecomer("take"))["deliveries"]
    assert delivery["handoff"]["id"] == offered["id"]
    await latecomer("ack", offered["id"], attempt=1)
    await latecomer("complete", offered["id"], attempt=1)
    again = (await inbox_monitor("offer", to="latecomer", title="bug"))["handoff"]
    assert [w["code"] for w in again["warnings"]] == ["recipient_asleep"]


async def test_agents_are_found_by_what_they_can_do(inbox_monitor: Any, code_agent: Any) -> None:
    await publish(code_agent, "bug_triage")
    found = await inbox_monitor("agents", capability="bug_triage")
    assert [a["agent_id"] for a in found["agents"]] == ["code_agent"]
    everybody = [a["agent_id"] for a in (await inbox_monitor("agents"))["agents"]]
    assert everybody == ["code_agent", "inbox_monitor", "me"]
    await code_agent("remove_agent", named="code_agent")
    assert (await inbox_monitor("agents", capability="bug_triage"))["agents"] == []


async def test_a_payload_goes_to_a_candidate_that_takes_it(office: Any, inbox_monitor: Any) -> None:
    takes = {"a": "int", "b": "string", "c": "int", "d": "string"}
    agents = {name: await office.join(name) for name in takes}
    for name, kind in takes.items():
        capability = {"name": "count", "input_schema": {"n": kind}}
        manifest = {"agent_id": name, "capabilities": [capability]}
        await agents[name]("register", named=name, manifest=manifest)
    offered = (await inbox_monitor("offer", capability="count", payload={"n": "7"}))["handoff"]
    assert offered["to"] == "b"
    moved = (await agents["b"]("reject", offered["id"]))["handoff"]
    assert moved["to"] == "d"
    ended = (await agents["d"]("reject", offered["id"]))["handoff"]
    assert (ended["state"], ended["outcome"]["code"]) == ("rejected", "no_candidate")
    with pytest.raises(PayloadInvalidError):
        await inbox_monitor("offer", capability="count", payload={"n": None})


async def test_who_does_not_accept_in_time_is_passed_over_for_one_that_takes_the_payload(
    office: Any, inbox_monitor: Any
) -> None:
    for name, kind in {"a": "string", "b": "int", "c": "string"}.items():
        agent = await office.join(name)
        capability = {"name": "count", "input_schema": {"n": kind}}
        await agent(
            "register", named=name, manifest={"agent_id": name, "capabilities": [capability]}
        )
    offered = (await inbox_monitor("offer", capability="count", payload={"n": "7"}))["handoff"]
    assert offered["to"] == "a"
    moved = await office.pass_time(16 * MINUTE, of=offered, then={"to": "c"})
    assert (moved["to"], moved["state"]) == ("c", "offered")
    ended = await office.pass_time(16 * MINUTE, of=offered, then={"state": "rejected"})
    assert ended["outcome"]["code"] == "no_candidate"


async def test_what_has_ended_is_not_reassigned_whatever_the_other_would_take(
    office: Any, inbox_monitor: Any
) -> None:
    counter = await office.join("counter")
    capability = {"name": "count", "input_schema": {"n": "int"}}
    manifest = {"agent_id": "counter", "capabilities": [capability]}
    await counter("register", named="counter", manifest=manifest)
    offered = (await inbox_monitor("offer", to="busy", payload="words"))["handoff"]
    await (await office.join("busy"))("reject", offered["id"])
    with pytest.raises(AlreadyFinishedError):
        await inbox_monitor("reassign", offered["id"], to="counter")


async def test_a_handoff_is_not_reassigned_by_capability_to_who_was_asked(
    office: Any, inbox_monitor: Any
) -> None:
    busy, other = await office.join("busy"), await office.join("other")
    for agent in (busy, other):
        await publish(agent, "bug_triage")
    offered = (await inbox_monitor("offer", to="busy"))["handoff"]
    await busy("ack", offered["id"])  # so it is awake, and first in the order
    moved = (await inbox_monitor("reassign", offered["id"], capability="bug_triage"))["handoff"]
    assert (moved["to"], moved["state"]) == ("other", "offered")
    with pytest.raises(NoMatchError, match="asked already"):
        await inbox_monitor("reassign", offered["id"], capability="bug_triage")
    back = (await inbox_monitor("reassign", offered["id"], to="busy"))["handoff"]
    assert back["to"] == "busy", "whoever is named is asked again"


def counting(agent: Any, **more: Any) -> dict[str, Any]:
    capability = {"name": "count", "input_schema": {"n": "int"}, "timeout_seconds": 2}
    return {"agent_id": agent.name, "capabilities": [{**capability, **more}]}


async def test_a_contract_holds_for_what_was_offered_before_its_agent_registered(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="late", payload={"n": 1}, attempts_max=1))["handoff"]
    assert (offered["capability"], offered["timeout"]) == (None, None)
    late = await office.join("late")
    manifest = counting(late, output_schema={"n": "int"})
    await late("register", named="late", manifest=manifest)
    [delivery] = (await late("take"))["deliveries"]
    bound = delivery["handoff"]
    assert (bound["capability"], bound["timeout"]) == ("count", "2s")
    log = (await inbox_monitor("log", handoff_id=offered["id"]))["entries"]
    [entry] = [e for e in log if e["type"] == "handoff.delivered.v1"]
    told = {name: entry["data"][name] for name in ("capability", "manifest_version", "timeout_ms")}
    assert told == {"capability": "count", "manifest_version": 1, "timeout_ms": 2000}
    await late("ack", offered["id"], attempt=1)
    with pytest.raises(ResultInvalidError):
        await late("complete", offered["id"], attempt=1, result={"n": "one"})
    await office.restart()
    ended = await office.pass_time(3_000, of=offered, then={"state": "failed"})
    assert ended["outcome"]["code"] == "attempts_exhausted"


async def test_a_contract_is_bound_when_an_early_offer_is_acknowledged_directly(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="late", payload={"n": 1}))["handoff"]
    late = await office.join("late")
    await late("register", named="late", manifest=counting(late))
    accepted = (await late("ack", offered["id"]))["handoff"]
    assert (accepted["state"], accepted["capability"]) == ("accepted", "count")
    assert accepted["timeout"] == "2s"


@pytest.mark.parametrize("by", ["take", "ack"])
async def test_an_early_offer_whose_payload_does_not_fit_is_rejected_with_code_and_path(
    office: Any, inbox_monitor: Any, by: str
) -> None:
    then = [{"to": "code_agent", "on": "failed"}]
    wrong = await inbox_monitor("offer", to="late", payload={"n": "one"}, then=then)
    right = await inbox_monitor("offer", to="late", payload={"n": 1})
    late = await office.join("late")
    await late("register", named="late", manifest=counting(late))
    if by == "ack":
        shown = (await late("ack", wrong["handoff"]["id"]))["handoff"]
        assert shown["state"] == "rejected"
    [delivery] = (await late("take"))["deliveries"]
    assert delivery["handoff"]["id"] == right["handoff"]["id"]
    ended = (await inbox_monitor("get_handoff", wrong["handoff"]["id"]))["handoff"]
    assert (ended["state"], ended["outcome"]["code"]) == ("rejected", "payload_invalid")
    assert ended["outcome"]["reason"].startswith("payload.n: ")
    assert ended["attempt"] == 0
    fallback = (await inbox_monitor("get_handoff", ended["next_leg"]))["handoff"]
    assert (fallback["to"], fallback["state"]) == ("code_agent", "offered")


async def test_an_early_offer_of_a_capability_that_is_not_there_is_rejected(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="late", capability="cooking"))["handoff"]
    late = await office.join("late")
    await publish(late, "count", "review")
    assert (await late("take"))["deliveries"] == []
    ended = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert (ended["state"], ended["outcome"]["code"]) == ("rejected", "no_match")
    assert ended["outcome"]["reason"].startswith("capability: ")


async def test_an_early_offer_to_an_agent_with_several_capabilities_stays_untyped(
    office: Any, inbox_monitor: Any
) -> None:
    unnamed = (await inbox_monitor("offer", to="late", payload="anything"))["handoff"]
    named = (await inbox_monitor("offer", to="late", capability="review"))["handoff"]
    late = await office.join("late")
    await publish(late, "count", "review")
    deliveries = (await late("take", max=2))["deliveries"]
    capabilities = {d["handoff"]["id"]: d["handoff"]["capability"] for d in deliveries}
    assert capabilities == {unnamed["id"]: None, named["id"]: "review"}
    # Its first delivery decides: what the agent publishes later does not bind it.
    await late("ack", unnamed["id"], attempt=1)
    await late("release", unnamed["id"], attempt=1)
    await publish(late, "count")
    [delivery] = (await late("take"))["deliveries"]
    assert delivery["handoff"]["capability"] is None


async def test_a_rule_that_covers_no_capability_is_not_passed_by_an_early_offer(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="late"))["handoff"]
    await (await office.person())("set_policy", allow=[{"to": "late", "capability": "review"}])
    late = await office.join("late")
    await publish(late, "count")
    assert (await late("take"))["deliveries"] == []
    ended = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert (ended["state"], ended["outcome"]["code"]) == ("rejected", "forbidden")
