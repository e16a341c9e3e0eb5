"""The queued acknowledgement: whoever is busy says at once that it has it, and is held to that."""

from typing import Any

import pytest

from kit import mutations
from nodrop.model.errors import InvalidRequestError, LimitReachedError, WrongStateError
from nodrop.model.limits import DEFAULT

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
STEP = {"when": "unacknowledged", "after": "1h", "notify": "me"}


async def offer(inbox_monitor: Any, title: str = "bug", **fields: Any) -> dict[str, Any]:
    said = {"to": "code_agent", "title": title, "escalation": [STEP], **fields}
    return (await inbox_monitor("offer", **said))["handoff"]


def rungs(view: dict[str, Any]) -> list[str]:
    return [receipt["rung"] for receipt in view["receipts"]]


async def escalated(office: Any) -> list[dict[str, Any]]:
    me = await office.person()
    return (await me("log", type="handoff.escalated.v1"))["entries"]


async def test_the_seeds_acknowledgement(inbox_monitor: Any, code_agent: Any) -> None:
    first, second = [await offer(inbox_monitor, f"bug {n}") for n in (1, 2)]
    await code_agent("take", heartbeat_seconds=10, process="p")
    await code_agent("ack", first["id"], attempt=1)
    queued = await code_agent(
        "ack", second["id"], queued=True, status="Added to queue", eta="2 hours"
    )
    view = queued["handoff"]
    assert (view["state"], view["attempt"], view["tries"], view["holder"]) == (
        "offered", 0, 0, "code_agent",
    )  # fmt: skip
    assert view["ack"] == {
        "status": "Added to queue",
        "position": 2,
        "eta": "2026-01-01T02:00:00.000Z",
        "next_update": "2026-01-01T00:30:00.000Z",
        "queued": True,
        "of": 2,
    }
    assert rungs(view) == ["stored", "acknowledged"]
    assert view["due_at"] == view["owed_at"] == "2026-01-01T00:30:00.000Z"


async def test_five_handoffs_to_one_busy_worker_page_nobody(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = [await offer(inbox_monitor, f"bug {n}") for n in range(5)]
    await code_agent("take", heartbeat_seconds=60, process="p")
    await code_agent("ack", offered[0]["id"], attempt=1)
    for each in offered[1:]:
        await code_agent("ack", each["id"], queued=True)
    shown = [(await inbox_monitor("get_handoff", each["id"]))["handoff"] for each in offered]
    assert [view["ack"]["position"] for view in shown] == [1, 2, 3, 4, 5]
    for _ in range(6):  # two hours, in which the worker keeps its word
        for _ in range(40):
            office.clock.advance(30 * SECOND)
            await code_agent("heartbeat", process="p")
        await code_agent("update", offered[0]["id"], attempt=1)
        for each in offered[1:]:
            await code_agent("ack", each["id"], queued=True)
    assert await escalated(office) == []
    # What is shown is counted when it is read; the log keeps what was said.
    await code_agent("complete", offered[0]["id"], attempt=1, result=1)
    last = (await inbox_monitor("get_handoff", offered[4]["id"]))["handoff"]
    assert last["ack"]["position"] == 4
    entries = (await inbox_monitor("log", handoff_id=last["id"]))["entries"]
    said = [e["data"]["position"] for e in entries if e["type"] == "handoff.queued.v1"]
    assert set(said) == {5}


async def test_delivery_is_ordinary_and_the_first_time_stays(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await offer(inbox_monitor)
    await code_agent("ack", offered["id"], queued=True)
    office.clock.advance(30 * SECOND)
    [delivery] = (await code_agent("take", heartbeat_seconds=10, process="p"))["deliveries"]
    assert delivery["attempt"] == 1
    acked = (await code_agent("ack", offered["id"], attempt=1))["handoff"]
    assert (acked["state"], acked["ack"]["queued"]) == ("accepted", False)
    ladder = {receipt["rung"]: receipt["at"] for receipt in acked["receipts"]}
    assert ladder["acknowledged"] == "2026-01-01T00:00:00.000Z"
    assert ladder["delivered"] == "2026-01-01T00:00:30.000Z"


async def test_if_the_agent_is_gone_the_ladder_goes_on(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await offer(inbox_monitor)
    await code_agent("ack", offered["id"], queued=True, next_update="30m")
    void = await office.pass_time(60 * SECOND, of=offered, then={"ack": None})
    assert (void["state"], rungs(void)) == ("offered", ["stored"])
    assert void["owed_at"] == "2026-01-01T00:16:00.000Z"
    office.clock.advance(61 * MINUTE)
    me = await office.person()
    [entry] = (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    assert entry["data"] == {"notify": "me", "step": 0, "when": "unacknowledged"}


async def test_control_where_it_is_never_void_nobody_is_told(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    with mutations.never_void():
        offered = await offer(inbox_monitor)
        await code_agent("ack", offered["id"], queued=True)
        for _ in range(4):
            office.clock.advance(HOUR)
            await office.settled()
        assert await escalated(office) == []


async def test_the_relays_own_downtime_is_no_silence(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await offer(inbox_monitor)
    await code_agent("ack", offered["id"], queued=True)
    await office.restart(down_ms=20 * MINUTE)
    await office.settled()
    me = await office.person()
    assert (await me("get_handoff", offered["id"]))["handoff"]["ack"]["queued"]
    await office.pass_time(60 * SECOND, of=offered, then={"ack": None})


async def test_a_missed_promise_begins_the_silence_too(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    step = {"when": "silent", "after": "5m", "notify": "me"}
    offered = await offer(inbox_monitor, escalation=[step])
    await code_agent("ack", offered["id"], queued=True, next_update="30s")
    await office.pass_time(30 * SECOND, of=offered, then={"ack": None})
    me = await office.person()
    [nudged] = (await me("log", type="handoff.nudged.v1", wait="60s"))["entries"]
    assert (nudged["data"]["clock"], nudged["data"]["to"]) == ("promise", "code_agent")
    office.clock.advance(5 * MINUTE)
    [entry] = (await me("log", type="handoff.escalated.v1", wait="60s"))["entries"]
    assert entry["data"]["when"] == "silent"


async def test_what_was_routed_goes_to_the_next_candidate(office: Any, inbox_monitor: Any) -> None:
    agents = {name: await office.join(name) for name in ("ann", "bob")}
    for name, agent in agents.items():
        manifest = {"agent_id": name, "capabilities": [{"name": "bug_triage"}]}
        await agent("register", named=name, manifest=manifest)
    offered = await offer(inbox_monitor, to=None, capability="bug_triage")
    first = offered["to"]
    await agents[first]("ack", offered["id"], queued=True)
    other = next(name for name in agents if name != first)
    moved = await office.pass_time(60 * SECOND, of=offered, then={"to": other})
    assert (moved["ack"], moved["state"]) == (None, "offered")


async def test_if_another_process_holds_it_the_answer_is_the_view(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = await offer(inbox_monitor)
    await code_agent("take", heartbeat_seconds=10, process="p")
    held = (await code_agent("ack", offered["id"], queued=True))["handoff"]
    assert (held["state"], held["attempt"], held["ack"]) == ("delivered", 1, None)
    entries = (await inbox_monitor("log", handoff_id=offered["id"]))["entries"]
    assert [e["type"] for e in entries] == ["handoff.offered.v1", "handoff.delivered.v1"]


async def test_what_is_wrong_is_said(inbox_monitor: Any, code_agent: Any) -> None:
    offered = await offer(inbox_monitor)
    await code_agent("take", heartbeat_seconds=10, process="p")
    await code_agent("ack", offered["id"], attempt=1)
    with pytest.raises(InvalidRequestError, match="names no attempt"):
        await code_agent("ack", offered["id"], attempt=1, queued=True)
    await code_agent("fail", offered["id"], attempt=1, retryable=True)
    with pytest.raises(WrongStateError, match="waits for its retry"):
        await code_agent("ack", offered["id"], queued=True)


async def test_at_most_so_many_are_in_force(
    office: Any, inbox_monitor: Any, code_agent: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = type(DEFAULT)(queued_acks_max=2)
    monkeypatch.setattr(office.relay._engine, "limits", limits)  # noqa: SLF001  # a small bound
    offered = [await offer(inbox_monitor, f"bug {n}") for n in range(3)]
    for each in offered[:2]:
        await code_agent("ack", each["id"], queued=True)
    with pytest.raises(LimitReachedError, match="2 handoffs are acknowledged as queued"):
        await code_agent("ack", offered[2]["id"], queued=True)
    await code_agent("ack", offered[0]["id"], queued=True)  # an update is no other
    running = (await inbox_monitor("get_handoff", offered[2]["id"]))["handoff"]
    assert running["due_at"] == "2026-01-01T00:15:00.000Z"  # its accept clock runs as ever
