"""Finding whom one has never met: by what it can do, by what it was seen to do, and whether it is there."""

import json
from typing import Any

import pytest

from nodrop.model.errors import InvalidRequestError

HOUR, DAY = 3_600_000, 86_400_000

SEED_MANIFEST: dict[str, Any] = {
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


def expired(handoff: dict[str, Any]) -> bool:
    return handoff["state"] == "expired"


async def publish(agent: Any, **capability: Any) -> None:
    """Offer `triage`, with whatever else is said about it."""
    about: dict[str, Any] = {"name": "triage", **capability}
    availability = about.pop("availability", None)
    manifest: dict[str, Any] = {"agent_id": agent.name, "capabilities": [about]}
    if availability is not None:
        manifest["availability"] = availability
    await agent("register", named=agent.name, manifest=manifest)


async def names(member: Any, **query: Any) -> list[str]:
    return [a["agent_id"] for a in (await member("agents", **query))["agents"]]


async def work(requester: Any, worker: Any, *, completes: bool) -> None:
    offer = {"to": worker.name, "capability": "triage"}
    handoff_id = (await requester("offer", **offer))["handoff"]["id"]
    await worker("ack", handoff_id)
    if completes:
        await worker("complete", handoff_id, attempt=1, result=None)
    else:
        await worker("fail", handoff_id, attempt=1, reason="no idea")


async def test_an_agent_is_found_by_what_it_takes_and_returns(
    office: Any, inbox_monitor: Any
) -> None:
    researcher = await office.join("research-agent-001")
    await researcher("register", named=researcher.name, manifest=SEED_MANIFEST)
    sent, needed = {"query": "string", "depth": "int"}, {"summary": "string"}
    found = await inbox_monitor(
        "agents", capability="web_research", input=json.dumps(sent), output=json.dumps(needed)
    )
    [agent] = found["agents"]
    [offer] = agent["offers"]
    assert (offer["input"], offer["output"]) == ("fits", "fits")
    assert offer["claimed"] == {"timeout_seconds": 300.0, "reliability_sla": 0.95}

    for misfit in ({"input": '{"query": "string"}'}, {"output": '{"pages": "int"}'}):
        assert await names(inbox_monitor, capability="web_research", **misfit) == []
    unclear = {"type": "object", "properties": {"summary": {"type": "string", "minLength": 9}}}
    found = await inbox_monitor("agents", output=json.dumps(unclear))
    [offer] = found["agents"][0]["offers"]
    assert offer["output"] == "cannot tell: summary: minLength is not compared"
    assert offer["why"].startswith("cannot tell whether it fits")


async def test_what_was_measured_counts_and_what_is_claimed_does_not(
    office: Any, inbox_monitor: Any
) -> None:
    boaster, modest = await office.join("boaster"), await office.join("modest")
    await publish(boaster, reliability_sla=0.95)
    await publish(modest, reliability_sla=0.6)
    assert await names(inbox_monitor, capability="triage") == ["boaster", "modest"]
    for turn in range(19):
        await work(inbox_monitor, boaster, completes=turn % 2 == 0)
        await work(inbox_monitor, modest, completes=True)
    before = await inbox_monitor("agents", capability="triage")
    for agent in before["agents"]:
        observed = agent["offers"][0]["observed"]
        assert (observed["n"], observed["success"]) == (19, None)
        assert observed["says"] == "not enough data (n = 19)"
    assert await names(inbox_monitor, capability="triage", reliability=0.0) == []

    await work(inbox_monitor, boaster, completes=False)
    await work(inbox_monitor, modest, completes=True)
    after = (await inbox_monitor("agents", capability="triage"))["agents"]
    assert [a["agent_id"] for a in after] == ["modest", "boaster"]
    seen = {a["agent_id"]: a["offers"][0] for a in after}
    assert seen["boaster"]["claimed"]["reliability_sla"] == 0.95
    assert seen["boaster"]["observed"]["success"] == 0.5
    assert seen["modest"]["observed"]["success"] == 1.0
    assert "20 of 20 completed" in seen["modest"]["why"]
    assert await names(inbox_monitor, capability="triage", reliability=0.9) == ["modest"]

    await office.restart()  # and it is remembered
    monitor = await office.join("inbox_monitor")
    assert await names(monitor, capability="triage", reliability=0.4) == ["modest", "boaster"]
    offered = (await monitor("offer", capability="triage"))["handoff"]
    assert offered["to"] == "modest"


async def test_outcomes_that_say_nothing_about_the_recipient_are_not_counted(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    async def observed() -> int:
        [agent] = (await inbox_monitor("agents", capability="triage"))["agents"]
        return agent["offers"][0]["observed"]["n"]

    await publish(code_agent)
    offer = {"to": "code_agent", "capability": "triage", "deadline": "1h"}
    rejected = (await inbox_monitor("offer", **offer))["handoff"]["id"]
    await code_agent("reject", rejected, reason="not mine")
    cancelled = (await inbox_monitor("offer", **offer))["handoff"]["id"]
    await code_agent("ack", cancelled)
    await inbox_monitor("cancel", cancelled)
    own = (await code_agent("offer", **offer))["handoff"]["id"]
    await code_agent("ack", own)
    await code_agent("complete", own, attempt=1, result=1)
    untouched = (await inbox_monitor("offer", **offer))["handoff"]
    asking = (await inbox_monitor("offer", **offer))["handoff"]
    await code_agent("ack", asking["id"])
    await code_agent("block", asking["id"], attempt=1, question="Which?")
    dropped = (await inbox_monitor("offer", **offer))["handoff"]
    await code_agent("ack", dropped["id"])
    assert await observed() == 0
    for handoff in (untouched, asking, dropped):
        await office.pass_time(HOUR, then=expired, of=handoff)
    assert await observed() == 1  # the one that was accepted, and forgotten


async def test_agents_are_filtered_by_tags_timeout_and_number(
    office: Any, inbox_monitor: Any
) -> None:
    for name, tags, timeout in (("a", ["eu", "fast"], 60), ("b", ["eu"], 600), ("c", [], None)):
        agent = await office.join(name)
        await publish(agent, tags=tags, **({"timeout_seconds": timeout} if timeout else {}))
    assert await names(inbox_monitor, tags="eu") == ["a", "b"]
    assert await names(inbox_monitor, tags="eu,fast", capability="triage") == ["a"]
    assert await names(inbox_monitor, timeout="5m") == ["a"]
    assert await names(inbox_monitor, capability="triage", limit=2) == ["a", "b"]
    first = await inbox_monitor("agents", limit=2)
    assert ([a["agent_id"] for a in first["agents"]], first["after"]) == (["a", "b"], "b")
    assert await names(inbox_monitor, after="b") == ["c", "inbox_monitor", "me"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("input", "{"),
        ("output", '{"type": "nonsense"}'),
        ("output", '{"$ref": "https://elsewhere.example/s"}'),
        ("input", '{"a": "' + "x" * 9_000 + '"}'),
        ("output", '{"type": "string", "pattern": "(a{1000}){1000}"}'),
        ("reliability", 2),
        ("timeout", "soon"),
    ],
)
async def test_a_query_that_cannot_be_meant_is_refused(
    inbox_monitor: Any, field: str, value: Any
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await inbox_monitor("agents", **{field: value})
    assert [p.path for p in refused.value.errors] == [field]


async def test_who_is_there_is_told_from_what_is_seen(office: Any, inbox_monitor: Any) -> None:
    worker, sleeper = await office.join("worker"), await office.join("sleeper")
    await publish(worker, availability={"heartbeat_seconds": 60})
    await publish(
        sleeper, availability={"mode": "scheduled", "next_active_at": "2026-01-01T06:00:00Z"}
    )

    async def presence(agent: str) -> tuple[str, str | None]:
        shown = (await inbox_monitor("get_agent", named=agent))["agent"]
        return shown["presence"], shown["until"]

    assert await presence("sleeper") == ("asleep", "2026-01-01T06:00:00.000Z")
    assert await presence("worker") == ("asleep", None)
    waiting = office.start(worker("take", wait="10s", command_id="w"))
    offered = (await inbox_monitor("offer", to="worker"))["handoff"]
    [delivery] = (await waiting)["deliveries"]
    assert delivery["handoff"]["id"] == offered["id"]
    assert await presence("worker") == ("working", None)
    await worker("ack", offered["id"], attempt=1)
    await worker("complete", offered["id"], attempt=1)
    assert await presence("worker") == ("asleep", None)

    office.clock.advance(3 * 60_000 + 1)  # three of its heartbeats
    assert await presence("worker") == ("ghost", None)
    assert await names(inbox_monitor, capability="triage") == ["sleeper", "worker"]
    assert await names(inbox_monitor, capability="triage", available=True) == []
    told = (await inbox_monitor("offer", to="worker"))["handoff"]["warnings"]
    assert [w["code"] for w in told] == ["recipient_ghost"]
    told = (await inbox_monitor("offer", to="sleeper"))["handoff"]["warnings"]
    assert [w["code"] for w in told] == ["recipient_asleep"]
    assert "2026-01-01T06:00" in told[0]["detail"]

    await worker("heartbeat")  # a sign of life is all it takes
    assert await presence("worker") == ("asleep", None)
    office.clock.advance(6 * HOUR + DAY)
    assert await presence("sleeper") == ("ghost", None)
    await office.restart()  # nobody was silent while nobody listened
    inbox_monitor = await office.join("inbox_monitor")
    shown = (await inbox_monitor("get_agent", named="sleeper"))["agent"]
    assert shown["presence"] == "asleep"


async def test_work_goes_to_the_awake_first_and_ghosts_are_told_of(
    office: Any, inbox_monitor: Any
) -> None:
    agents = {name: await office.join(name) for name in ("asleep", "awake", "ghost")}
    await publish(agents["asleep"])
    await publish(agents["awake"])
    await publish(agents["ghost"], availability={"heartbeat_seconds": 1})
    office.clock.advance(10_000)
    waiting = office.start(agents["awake"]("take", wait="20s", command_id="t"))
    await office.person()
    for _ in range(3):
        await inbox_monitor("heartbeat")
    offered = (await inbox_monitor("offer", capability="triage"))["handoff"]
    assert (offered["to"], offered["warnings"]) == ("awake", [])
    await waiting
    moved = (await agents["awake"]("reject", offered["id"], attempt=1))["handoff"]
    assert moved["to"] == "asleep"
    moved = (await agents["asleep"]("reject", offered["id"]))["handoff"]
    assert moved["to"] == "ghost"
    await agents["awake"]("remove_agent", named="awake")
    await agents["asleep"]("remove_agent", named="asleep")
    lonely = (await inbox_monitor("offer", capability="triage"))["handoff"]
    assert lonely["to"] == "ghost"
    assert [w["code"] for w in lonely["warnings"]] == ["recipient_ghost"]


async def test_work_is_spread_by_the_length_of_queues(office: Any, inbox_monitor: Any) -> None:
    for name in ("a", "b", "c"):
        await publish(await office.join(name))
    to = [(await inbox_monitor("offer", capability="triage"))["handoff"]["to"] for _ in range(6)]
    assert to == ["a", "b", "c", "a", "b", "c"]
