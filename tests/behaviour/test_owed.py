"""By when the holder owes its next move: neither reminders nor heartbeats move it."""

from typing import Any

MINUTE = 60_000


async def test_what_is_owed_stays_due_when_it_is_late(office: Any, inbox_monitor: Any) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", accept_within="5m", deadline="4h"))[
        "handoff"
    ]
    assert (offered["holder"], offered["owed_at"]) == ("code_agent", offered["due_at"])
    reminded = await office.pass_time(6 * MINUTE, then={"version": 2}, of=offered["id"])
    assert reminded["owed_at"] == offered["owed_at"] < reminded["due_at"]


async def test_every_move_is_owed_by_a_time_until_the_end(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", deadline="4h"))["handoff"]
    about = offered["id"]
    [delivery] = (await code_agent("take", heartbeat_seconds=10, process="p"))["deliveries"]
    assert delivery["handoff"]["owed_at"] == offered["owed_at"]
    working = (await code_agent("ack", about, attempt=1, next_update="10m"))["handoff"]
    assert working["owed_at"] == working["ack"]["next_update"]
    assert working["due_at"] < working["owed_at"]  # the lease of a live process is none of this
    asked = (await code_agent("block", about, attempt=1, question="?"))["handoff"]
    assert asked["holder"] == "inbox_monitor"
    assert asked["question"]["asked_at"] < asked["owed_at"] <= asked["deadline"]
    seq = asked["question"]["seq"]
    await inbox_monitor("answer", about, seq=seq, answer="!")
    done = (await code_agent("complete", about, attempt=1, result=1))["handoff"]
    assert done["owed_at"] is None


async def test_a_deadline_is_the_last_that_is_owed(inbox_monitor: Any) -> None:
    soon = await inbox_monitor("offer", to="code_agent", accept_within="3h", deadline="1h")
    assert soon["handoff"]["owed_at"] == soon["handoff"]["deadline"]


async def test_a_trace_tells_the_promise_from_the_lease(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", deadline="4h"))["handoff"]
    await code_agent("take", heartbeat_seconds=10, process="p")
    working = (await code_agent("ack", offered["id"], attempt=1, next_update="30m"))["handoff"]
    [step] = (await inbox_monitor("trace", named=offered["correlation_id"]))["steps"]
    assert (step["owed_at"], step["clock"]) == (working["ack"]["next_update"], "lease")
    assert step["due_at"] == working["due_at"]


async def test_a_trace_shows_a_late_acknowledgement_as_late(
    office: Any, inbox_monitor: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", accept_within="5m", deadline="4h"))[
        "handoff"
    ]
    await office.pass_time(6 * MINUTE, then={"version": 2}, of=offered["id"])
    [step] = (await inbox_monitor("trace", named=offered["correlation_id"]))["steps"]
    assert (step["owed_at"], step["clock"]) == (offered["owed_at"], "accept")
