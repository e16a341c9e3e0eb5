"""A chain of seven legs that breaks in the middle: what the trace says, and how it is mended."""

import asyncio
from typing import Any

import pytest

from nodrop.model.errors import AlreadyDecidedError

MINUTE = 60_000
HOUR = 60 * MINUTE
AGENTS = ["a1", "a2", "a3", "a4", "a5", "a6", "a7"]


async def work(agent: Any, *, steps: list[str]) -> dict[str, Any]:
    [delivery] = (await agent("take"))["deliveries"]
    handoff, attempt = delivery["handoff"], delivery["attempt"]
    await agent("ack", handoff["id"], attempt=attempt)
    for name in steps:
        if name not in delivery["steps"]:
            await agent("step", handoff["id"], named=name, attempt=attempt, value=agent.name)
    return delivery


async def seven_legs(office: Any, requester: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hand off a chain whose fifth leg is taken, does one step, and falls silent."""
    agents = {name: await office.join(name) for name in AGENTS}
    offered = (
        await requester(
            "offer",
            to="a1",
            title="seven",
            deadline="6h",
            then=[{"to": name} for name in AGENTS[1:]],
            escalation=[{"when": "silent", "after": "10m", "notify": "me"}],
        )
    )["handoff"]
    for name in AGENTS[:4]:
        delivery = await work(agents[name], steps=["once"])
        handoff = delivery["handoff"]
        await agents[name]("complete", handoff["id"], attempt=1, result=name)
    return offered, agents


async def test_the_trace_names_the_leg_the_holder_the_clock_and_what_the_relay_did(
    office: Any, inbox_monitor: Any
) -> None:
    offered, agents = await seven_legs(office, inbox_monitor)
    fifth = (await work(agents["a5"], steps=["paid"]))["handoff"]
    me = await office.person()
    for minutes, awaited in ((31, "handoff.nudged.v1"), (11, "handoff.escalated.v1")):
        office.clock.advance(minutes * MINUTE)
        assert (await me("log", type=awaited, wait="60s"))["entries"]
    late = await me("trace", named=offered["correlation_id"])
    assert (late["state"], late["breaks"][0]["kind"]) == ("late", "late")
    assert (late["breaks"][0]["holder"], late["breaks"][0]["clock"]) == ("a5", "promise")

    await office.pass_time(6 * HOUR, of=fifth, then={"state": "expired"})
    trace = await me("trace", named=offered["correlation_id"])
    assert trace["state"] == "broken"
    [broken] = trace["breaks"]
    assert (broken["kind"], broken["leg"], broken["legs"]) == ("dead", 5, 7)
    assert (broken["agent"], broken["holder"]) == ("a5", "inbox_monitor")
    assert (broken["state"], broken["clock"]) == ("expired", "deadline")
    did = [done["what"] for done in broken["did"]]
    assert did[0] == "reminded a5: the promise clock ran out"
    assert "told me: silent" in did
    assert did[-2:] == ["ended it at its deadline", "told me: dead"], "the team's step"
    assert [step["state"] for step in trace["steps"]] == ["completed"] * 4 + ["expired"]


async def test_redriving_the_broken_leg_finishes_the_chain_and_repeats_nothing(
    office: Any, inbox_monitor: Any
) -> None:
    offered, agents = await seven_legs(office, inbox_monitor)
    fifth = (await work(agents["a5"], steps=["paid"]))["handoff"]
    await office.pass_time(7 * HOUR, of=fifth, then={"state": "expired"})
    me = await office.person()

    both: tuple[Any, Any] = (me, inbox_monitor)
    answers = await asyncio.gather(
        *(asyncio.ensure_future(who("redrive", fifth["id"])) for who in both),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, AlreadyDecidedError) for answer in answers) == 1
    trace = await me("trace", named=offered["correlation_id"])
    assert [h["redrive_of"] for h in trace["handoffs"]].count(fifth["id"]) == 1

    again = await work(agents["a5"], steps=["paid"])
    assert again["steps"] == {"paid": "a5"}
    await agents["a5"]("complete", again["handoff"]["id"], attempt=1, result="a5")
    for name in AGENTS[5:]:
        delivery = await work(agents[name], steps=["once"])
        await agents[name]("complete", delivery["handoff"]["id"], attempt=1, result=name)
    whole = await inbox_monitor("get_handoff", offered["id"], of="chain", wait="30s")
    assert whole["handoff"]["outcome"]["result"] == "a7"

    trace = await me("trace", named=offered["correlation_id"])
    assert trace["state"] == "completed"
    done = [(s["to"], s["kind"], s["state"]) for s in trace["steps"]]
    assert done == [
        *((name, "leg" if n else "first", "completed") for n, name in enumerate(AGENTS[:4])),
        ("a5", "leg", "expired"),
        ("a5", "redrive", "completed"),
        ("a6", "leg", "completed"),
        ("a7", "leg", "completed"),
    ]
    steps = await me("log", type="handoff.step_recorded.v1", limit=500)
    assert len(steps["entries"]) == len(AGENTS)  # one for each leg, the redriven one's not twice


@pytest.mark.parametrize("silent", ["accept", "lease"])
async def test_the_clock_is_the_one_that_ran_out(
    office: Any, inbox_monitor: Any, silent: str
) -> None:
    agent = await office.join("a1")
    terms = {"attempts_max": 1} if silent == "lease" else {"accept_within": "5m"}
    offered = (await inbox_monitor("offer", to="a1", title="one", **terms))["handoff"]
    me = await office.person()
    if silent == "lease":
        await agent("take", heartbeat_seconds=10)
        await office.pass_time(HOUR, of=offered, then={"state": "failed"})
    else:
        office.clock.advance(6 * MINUTE)
        nudged = office.start(me("log", type="handoff.nudged.v1", wait="60s"))
        assert (await nudged)["entries"]
    trace = await me("trace", named=offered["correlation_id"])
    [broken] = trace["breaks"]
    expected = {"lease": ("dead", "inbox_monitor"), "accept": ("late", "a1")}[silent]
    assert (broken["kind"], broken["holder"]) == expected
    assert broken["clock"] == silent
