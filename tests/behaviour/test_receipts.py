"""The ladder of receipts: facts with a time and an actor, never a guess."""

from typing import Any

import pytest

from nodrop.model.errors import ForbiddenError, NotFinishedError

SEED: dict[str, Any] = {
    "to": "code_agent",
    "trigger": "Bug report detected",
    "title": "Login button not working on mobile",
    "priority": "medium",
    "payload": {
        "email_id": "msg_123",
        "customer": "jane@company.com",
        "issue": "Login button not working on mobile",
        "reproduction_steps": [],
        "expected_outcome": "Investigate and provide timeline",
    },
    "deadline": "4 hours",
    "escalation": [{"when": "unacknowledged", "after": "1 hour", "notify": "me"}],
    "idempotency_key": "bug_123",
}
LADDER = [
    "stored", "delivered", "acknowledged", "updated", "finished", "outcome_delivered", "settled",
]  # fmt: skip


def rungs(view: dict[str, Any]) -> list[str]:
    return [receipt["rung"] for receipt in view["receipts"]]


async def test_the_seeds_handoff_climbs_every_rung(inbox_monitor: Any, code_agent: Any) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    assert (offered["state"], offered["ref"], rungs(offered)) == (
        "offered", "inbox_monitor/bug_123", ["stored"],
    )  # fmt: skip
    assert offered["deadline"] == "2026-01-01T04:00:00.000Z"

    [delivery] = (await code_agent("take", heartbeat_seconds=10))["deliveries"]
    assert delivery["handoff"]["payload"] == SEED["payload"]
    acked = await code_agent(
        "ack",
        offered["id"],
        attempt=delivery["attempt"],
        status="Added to queue",
        position=2,
        eta="2 hours",
        next_update="30 minutes",
    )
    assert acked["handoff"]["ack"] == {
        "status": "Added to queue",
        "position": 2,
        "eta": "2026-01-01T02:00:00.000Z",
        "next_update": "2026-01-01T00:30:00.000Z",
        "queued": False,
        "of": None,
    }
    await code_agent("update", offered["id"], attempt=1, status="reproducing")
    await code_agent("complete", offered["id"], attempt=1, result={"fix": "tomorrow"})

    got = (await inbox_monitor("get_handoff", offered["id"], wait="30s"))["handoff"]
    assert got["outcome"]["result"] == {"fix": "tomorrow"}
    assert rungs(got) == LADDER[:-1]
    settled = (await inbox_monitor("settle", "inbox_monitor/bug_123"))["handoff"]
    assert rungs(settled) == LADDER
    assert [r["by"] for r in settled["receipts"]] == [
        "relay", "code_agent", "code_agent", "code_agent", "code_agent",
        "inbox_monitor", "inbox_monitor",
    ]  # fmt: skip
    assert (settled["holder"], settled["due_at"]) == (None, None)


async def test_whoever_knows_a_handoff_may_be_answered_briefly(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    [delivery] = (await code_agent("take"))["deliveries"]
    said = {"attempt": delivery["attempt"], "brief": True, "command_id": "c1"}
    acked = await code_agent("ack", offered["id"], **said)
    assert acked == {
        "handoff": {
            "id": offered["id"],
            "state": "accepted",
            "rung": "acknowledged",
            "version": 3,
            "due_at": "2026-01-01T00:30:00.000Z",
            "attempt": 1,
        }
    }
    assert await code_agent("ack", offered["id"], **said) == acked, "a repeat is answered alike"
    await code_agent("complete", offered["id"], attempt=1, result=1)
    settled = (await inbox_monitor("settle", offered["id"], brief=True))["handoff"]
    assert (settled["state"], settled["rung"]) == ("completed", "settled")
    assert settled["settled_at"] is not None


async def test_every_open_handoff_has_a_holder_and_a_due_time(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    assert (offered["holder"], offered["due_at"]) == ("code_agent", "2026-01-01T00:15:00.000Z")
    await code_agent("ack", offered["id"])
    asked = (await code_agent("block", offered["id"], attempt=1, question="Which app?"))["handoff"]
    assert (asked["holder"], asked["owed_at"]) == ("inbox_monitor", "2026-01-01T04:00:00.000Z")
    assert asked["due_at"] == "2026-01-01T01:00:00.000Z", "then the team's step tells a person"
    await code_agent("fail", offered["id"], attempt=1, reason="no access")
    failed = (await code_agent("get_handoff", offered["id"]))["handoff"]
    assert (failed["holder"], failed["due_at"]) == ("inbox_monitor", "2026-01-02T00:00:00.000Z")


async def test_a_wait_that_runs_out_is_no_failure_and_changes_nothing(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    before = (await inbox_monitor("log"))["after"]
    waiting = inbox_monitor("get_handoff", offered["id"], wait="30s", until="acknowledged")
    answer = await office.after(30_000, waiting)
    assert answer["wait_elapsed"] is True
    assert (answer["handoff"]["state"], rungs(answer["handoff"])) == ("offered", ["stored"])
    assert (await inbox_monitor("log"))["after"] == before


async def test_a_wait_ends_the_moment_the_rung_is_reached(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    waiting = office.start(
        inbox_monitor("get_handoff", offered["id"], wait="60s", until="acknowledged")
    )
    await code_agent("ack", offered["id"], eta="2h")
    answer = await waiting
    assert "wait_elapsed" not in answer
    assert rungs(answer["handoff"])[-1] == "acknowledged"


async def test_the_position_is_computed_where_the_agent_leaves_it_out(
    inbox_monitor: Any, code_agent: Any
) -> None:
    positions: list[int] = []
    for n in range(3):
        offered = (await inbox_monitor("offer", to="code_agent", title=f"bug {n}"))["handoff"]
        acked = await code_agent("ack", offered["id"])
        positions.append(acked["handoff"]["ack"]["position"])
    assert positions == [1, 2, 3]


async def test_only_the_requester_settles_and_only_what_has_ended(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    with pytest.raises(NotFinishedError):
        await inbox_monitor("settle", offered["id"])
    await code_agent("reject", offered["id"], reason="not mine")
    with pytest.raises(ForbiddenError):
        await code_agent("settle", offered["id"])


async def test_nobody_can_acknowledge_for_the_recipient(office: Any, inbox_monitor: Any) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    me = await office.person()
    for impostor in (inbox_monitor, me):
        with pytest.raises(ForbiddenError):
            await impostor("ack", offered["id"])


async def test_an_outcome_waits_however_long_the_requester_is_away(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", **SEED))["handoff"]
    await code_agent("ack", offered["id"])
    await code_agent("complete", offered["id"], attempt=1, result="done")
    await office.restart(down_ms=6 * 3_600_000)
    back = await office.join("inbox_monitor")
    [item] = (await back("inbox"))["items"]
    assert (item["kind"], item["handoff_id"]) == ("outcome", offered["id"])
    assert (await back("get_handoff", offered["id"]))["handoff"]["outcome"]["result"] == "done"


async def test_reading_an_inbox_never_consumes(inbox_monitor: Any, code_agent: Any) -> None:
    for n in range(3):
        await inbox_monitor("offer", to="code_agent", title=f"bug {n}")
    first = await code_agent("inbox")
    assert await code_agent("inbox") == first
    assert [item["summary"] for item in first["items"]] == ["bug 0", "bug 1", "bug 2"]
    rest = await code_agent("inbox", after=first["items"][0]["seq"])
    assert rest["items"] == first["items"][1:]
    assert (await code_agent("inbox", after=first["after"]))["items"] == []
