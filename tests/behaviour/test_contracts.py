"""Terms agreed before anything is handed over, and held to afterwards."""

import hashlib
import json
from typing import Any

import pytest
import rfc8785

from nodrop.model.errors import ContractMismatchError, InvalidRequestError, NoMatchError

MINUTE = 60_000


def offered_again(handoff: dict[str, Any]) -> bool:
    return handoff["state"] == "offered"


def tried(handoff: dict[str, Any]) -> bool:
    return handoff["tries"] == 1


async def publish(agent: Any, **changed: Any) -> None:
    capability: dict[str, Any] = {
        "name": "web_research",
        "input_schema": {"query": "string", "depth": "int"},
        "output_schema": {"sources": "array", "summary": "string"},
        "timeout_seconds": 300,
        **changed,
    }
    manifest = {"agent_id": agent.name, "capabilities": [capability]}
    await agent("register", named=agent.name, manifest=manifest)


@pytest.fixture
async def researcher(office: Any) -> Any:
    agent = await office.join("research-agent-001")
    await publish(agent)
    return agent


TERMS: dict[str, Any] = {"capability": "web_research", "timeout": "2m", "deadline": "4 hours"}
OFFER: dict[str, Any] = {
    **TERMS,
    "to": "research-agent-001",
    "payload": {"query": "css", "depth": 2},
}


async def test_a_contract_is_what_both_sides_have_in_common(
    inbox_monitor: Any, researcher: Any
) -> None:
    del researcher
    made = await inbox_monitor("contract", **TERMS)
    contract = made["contract"]
    assert contract == {
        "team": "default",
        "agent": "research-agent-001",
        "capability": "web_research",
        "manifest_version": 1,
        "manifest_digest": contract["manifest_digest"],
        "timeout": "2m",
        "accept_within": "15m",
        "update_every": "30m",
        "deadline": "4h",
        "attempts_max": 3,
    }
    by_hand = hashlib.sha256(rfc8785.dumps(contract)).hexdigest()
    assert made["digest"] == f"sha256:{by_hand}"
    longer = await inbox_monitor("contract", **{**TERMS, "timeout": "1h"})
    assert longer["contract"]["timeout"] == "5m", "nobody has to do more than it says"
    assert (await inbox_monitor("contract", **TERMS))["digest"] == made["digest"]
    assert (await inbox_monitor("list_handoffs"))["handoffs"] == [], "nothing is stored"


async def test_an_offer_is_held_to_the_contract_it_names(
    office: Any, inbox_monitor: Any, researcher: Any
) -> None:
    digest = (await inbox_monitor("contract", **TERMS))["digest"]
    offered = (await inbox_monitor("offer", **OFFER, contract_digest=digest))["handoff"]
    assert (offered["contract_digest"], offered["timeout"]) == (digest, "2m")
    with pytest.raises(ContractMismatchError):
        await inbox_monitor("offer", **{**OFFER, "deadline": "5h"}, contract_digest=digest)
    await publish(researcher, timeout_seconds=301)
    with pytest.raises(ContractMismatchError) as refused:
        await inbox_monitor("offer", **OFFER, contract_digest=digest)
    assert "version 2" in refused.value.detail
    await office.restart()
    monitor = await office.join("inbox_monitor")
    kept = (await monitor("get_handoff", offered["id"]))["handoff"]
    assert kept["contract_digest"] == digest
    unknown = {"to": "nobody", "capability": "web_research"}
    with pytest.raises(ContractMismatchError):
        await monitor("offer", **unknown, contract_digest=digest)


async def test_a_deadline_may_be_a_point_in_time(inbox_monitor: Any, researcher: Any) -> None:
    del researcher
    at = {"deadline": "2026-01-02T00:00:00+00:00"}
    made = await inbox_monitor("contract", **{**TERMS, **at})
    assert made["contract"]["deadline"] == "2026-01-02T00:00:00.000Z"
    offer = {**OFFER, "deadline": "2026-01-02T01:00:00+01:00", "contract_digest": made["digest"]}
    assert (await inbox_monitor("offer", **offer))["handoff"]["state"] == "offered"


async def test_no_agreement_has_a_reason_for_each_candidate(
    office: Any, inbox_monitor: Any, researcher: Any
) -> None:
    del researcher
    await publish(await office.join("other"), output_schema={"sources": "array"})
    await publish(await office.join("silent"), output_schema=None)
    with pytest.raises(NoMatchError) as refused:
        await inbox_monitor("contract", **TERMS, output={"pages": "int"}, input={"query": "string"})
    reasons = {problem.path: problem.message for problem in refused.value.errors}
    depth = "input: depth: required, and not promised"
    assert reasons == {"research-agent-001": depth, "other": depth, "silent": depth}
    with pytest.raises(NoMatchError) as refused:
        await inbox_monitor("contract", **TERMS, reliability=0.9)
    assert refused.value.errors[0].message == "reliability: not enough data (n = 0)"
    with pytest.raises(NoMatchError) as refused:
        await inbox_monitor("contract", **TERMS, to="stranger")
    assert [p.path for p in refused.value.errors] == ["stranger"]
    fitting = await inbox_monitor("contract", **TERMS, output={"summary": "string"})
    assert fitting["contract"]["agent"] == "research-agent-001", "sure of before perhaps"
    with pytest.raises(InvalidRequestError):
        await inbox_monitor("contract", **{**TERMS, "timeout": "soon"})


async def test_a_shorter_timeout_ends_an_attempt_sooner(
    office: Any, inbox_monitor: Any, researcher: Any
) -> None:
    offered = (await inbox_monitor("offer", **OFFER))["handoff"]
    await researcher("take", process="p", heartbeat_seconds=600)
    await researcher("ack", offered["id"], attempt=1)
    lapsed = await office.pass_time(2 * MINUTE, then=offered_again, of=offered)
    assert lapsed["tries"] == 1
    second = await office.join("second")
    await publish(second, timeout_seconds=90)
    moved = await inbox_monitor("reassign", offered["id"], to="second")
    assert (moved["handoff"]["timeout"], moved["handoff"]["contract_digest"]) == ("90s", None)
    back = await inbox_monitor("reassign", offered["id"], to="research-agent-001")
    assert back["handoff"]["timeout"] == "2m", "what was asked for holds for everybody"


async def test_a_recipient_may_ask_for_more_time_and_get_it(
    office: Any, inbox_monitor: Any, researcher: Any
) -> None:
    offered = (await inbox_monitor("offer", **OFFER))["handoff"]
    await researcher("take", process="p", heartbeat_seconds=600)
    await researcher("ack", offered["id"], attempt=1)
    office.clock.advance(MINUTE)
    await researcher("counter", offered["id"], attempt=1, timeout="4m", reason="deep")
    [item] = [i for i in (await inbox_monitor("inbox"))["items"] if i["kind"] == "counter"]
    view = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert view["question"]["terms"] == {"timeout": "4m"}
    agreed = (await inbox_monitor("agree", offered["id"], seq=item["seq"]))["handoff"]
    assert (agreed["state"], agreed["timeout"]) == ("accepted", "4m")
    office.clock.advance(2 * MINUTE)  # three in all, one of them before
    result: dict[str, Any] = {"sources": [], "summary": "deep"}
    done = await researcher("complete", offered["id"], attempt=1, result=result)
    assert done["handoff"]["state"] == "completed"


async def test_the_time_asked_for_is_counted_from_the_start_of_the_attempt(
    office: Any, inbox_monitor: Any, researcher: Any
) -> None:
    offered = (await inbox_monitor("offer", **OFFER))["handoff"]
    await researcher("take", process="p", heartbeat_seconds=600)
    await researcher("ack", offered["id"], attempt=1)
    office.clock.advance(MINUTE)
    countered = await researcher("counter", offered["id"], attempt=1, timeout="4m")
    seq = countered["handoff"]["question"]["seq"]
    await inbox_monitor("agree", offered["id"], seq=seq)
    await office.pass_time(3 * MINUTE, then=tried, of=offered)


async def test_a_key_from_before_there_were_timeouts_is_still_the_same_request(
    inbox_monitor: Any,
) -> None:
    offer = {"to": "x", "idempotency_key": "k", "title": "t"}
    first = (await inbox_monitor("offer", **offer))["handoff"]["id"]
    again = await inbox_monitor("offer", **offer, timeout=None)
    assert (again["handoff"]["id"], again["replayed"]) == (first, True)
    assert json.dumps(again["handoff"]["timeout"]) == "null"
