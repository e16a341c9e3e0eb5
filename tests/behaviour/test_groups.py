"""Fan-out: several handoffs offered all or none, joined once, under the requester's own labels."""

import asyncio
from typing import Any

import pytest

from nodrop.model.errors import (
    AlreadyFinishedError,
    IdempotencyConflictError,
    InvalidRequestError,
    NoMatchError,
    NotFoundError,
    WrongStateError,
)

HOUR = 3_600_000
OFFERS = {label: {"to": f"worker_{label}", "title": label} for label in ("a", "b", "c")}


async def fan_out(requester: Any, **fields: Any) -> dict[str, Any]:
    return (await requester("offer_group", **{"offers": OFFERS, **fields}))["group"]


async def work(office: Any, label: str, *, fail: bool = False) -> None:
    agent = await office.join(f"worker_{label}")
    [delivery] = (await agent("take"))["deliveries"]
    handoff_id, attempt = delivery["handoff"]["id"], delivery["attempt"]
    await agent("ack", handoff_id, attempt=attempt)
    if fail:
        await agent("fail", handoff_id, attempt=attempt, reason=f"{label} broke")
    else:
        await agent("complete", handoff_id, attempt=attempt, result=label.upper())


async def test_all_are_joined_once_under_their_labels(office: Any, inbox_monitor: Any) -> None:
    group = await fan_out(inbox_monitor)
    assert (group["state"], group["needed"], set(group["members"])) == ("accepted", 3, set("abc"))
    assert group["handoff"]["holder"] == "relay"
    waiting = office.start(inbox_monitor("get_group", named=group["id"], wait="60s"))
    for label in "abc":
        await work(office, label)
    joined = (await waiting)["group"]
    assert joined["state"] == "completed"
    assert {k: m["result"] for k, m in joined["members"].items()} == {"a": "A", "b": "B", "c": "C"}
    assert joined["handoff"]["outcome"]["result"] == {"a": "A", "b": "B", "c": "C"}

    outcomes = [i for i in (await inbox_monitor("inbox"))["items"] if i["kind"] == "outcome"]
    assert [item["handoff_id"] for item in outcomes] == [group["id"]]
    await inbox_monitor("settle", group["id"])
    assert (await inbox_monitor("inbox"))["items"] == []
    trace = await inbox_monitor("trace", named=group["id"])
    assert [(s["kind"], s["label"]) for s in trace["steps"]] == [
        ("group", None), ("member", "a"), ("member", "b"), ("member", "c"),
    ]  # fmt: skip


@pytest.mark.parametrize(("join", "quorum", "enough"), [("any", None, 1), ("quorum", 2, 2)])
async def test_as_many_as_needed_close_it_and_the_rest_is_called_off(
    office: Any, inbox_monitor: Any, join: str, quorum: int | None, enough: int
) -> None:
    group = await fan_out(inbox_monitor, join=join, quorum=quorum)
    for label in "abc"[:enough]:
        assert (await inbox_monitor("get_group", named=group["id"]))["group"]["state"] == "accepted"
        await work(office, label)
    closed = (await inbox_monitor("get_group", named=group["id"]))["group"]
    assert (closed["state"], closed["completed"]) == ("completed", enough)
    states = [member["state"] for member in closed["members"].values()]
    assert states == ["completed"] * enough + ["cancelled"] * (3 - enough)
    late = await office.join("worker_c")
    assert (await late("take"))["deliveries"] == []


async def test_members_that_finish_at_the_same_moment_close_it_once(
    office: Any, inbox_monitor: Any
) -> None:
    group = await fan_out(inbox_monitor)
    agents = {label: await office.join(f"worker_{label}") for label in "abc"}
    held = {k: (await agent("take"))["deliveries"][0] for k, agent in agents.items()}
    for label, agent in agents.items():
        await agent("ack", held[label]["handoff"]["id"], attempt=1)
    await asyncio.gather(
        *(
            agent("complete", held[label]["handoff"]["id"], attempt=1, result=label)
            for label, agent in agents.items()
        )
    )
    me = await office.person()
    closed = [
        e for e in (await me("log", handoff_id=group["id"], limit=500))["entries"]
        if e["type"] == "handoff.completed.v1"
    ]  # fmt: skip
    assert len(closed) == 1


async def test_too_few_leave_what_there_is_and_no_dead_letters_but_the_group(
    office: Any, inbox_monitor: Any
) -> None:
    group = await fan_out(inbox_monitor)
    await work(office, "a")
    await work(office, "b", fail=True)
    [dead] = (await inbox_monitor("dead_letters"))["handoffs"]
    assert dead["id"] == group["members"]["b"]["id"], "until it has closed, it can be redriven"
    await work(office, "c")
    closed = (await inbox_monitor("get_group", named=group["id"]))["group"]
    assert (closed["state"], closed["completed"]) == ("failed", 2)
    assert closed["handoff"]["outcome"]["code"] == "join_not_reached"
    assert closed["handoff"]["outcome"]["reason"] == "2 of 3 completed, 3 needed"
    assert closed["members"]["b"]["reason"] == "b broke"
    assert [h["id"] for h in (await inbox_monitor("dead_letters"))["handoffs"]] == [group["id"]]
    with pytest.raises(WrongStateError):
        await inbox_monitor("redrive", group["id"])
    await inbox_monitor("discard", group["id"])


async def test_at_the_deadline_what_there_is_comes_back(office: Any, inbox_monitor: Any) -> None:
    group = await fan_out(inbox_monitor, deadline="2h", join="quorum", quorum=1)
    group2 = await fan_out(inbox_monitor, deadline="2h")
    await work(office, "a")
    await work(office, "a")
    closed = await office.pass_time(3 * HOUR, of=group2["handoff"], then={"outcome": ...})
    assert closed["outcome"]["code"] == "join_not_reached"
    members = (await inbox_monitor("get_group", named=group2["id"]))["group"]["members"]
    assert {k: m["state"] for k, m in members.items()} == {
        "a": "completed", "b": "expired", "c": "expired",
    }  # fmt: skip
    assert members["a"]["result"] == "A"
    assert (await inbox_monitor("get_group", named=group["id"]))["group"]["state"] == "completed"


async def test_a_member_redriven_before_the_end_counts_by_its_successor(
    office: Any, inbox_monitor: Any
) -> None:
    group = await fan_out(inbox_monitor)
    await work(office, "a", fail=True)
    await inbox_monitor("redrive", group["members"]["a"]["id"])
    await work(office, "b")
    await work(office, "c")
    assert (await inbox_monitor("get_group", named=group["id"]))["group"]["state"] == "accepted"
    await work(office, "a")
    joined = (await inbox_monitor("get_group", named=group["id"]))["group"]
    assert (joined["state"], joined["members"]["a"]["result"]) == ("completed", "A")


async def test_a_step_tries_a_member_that_failed_with_somebody_else(
    office: Any, inbox_monitor: Any
) -> None:
    office.clock.advance(1)
    steps = [{"when": "dead", "reassign": {"to": "worker_b"}}]
    offers = {"x": {"to": "worker_a", "escalation": steps}}
    group = await fan_out(inbox_monitor, offers=offers)
    await work(office, "a", fail=True)
    await work(office, "b")
    joined = (await inbox_monitor("get_group", named=group["id"]))["group"]
    assert (joined["state"], joined["members"]["x"]["result"]) == ("completed", "B")


@pytest.mark.parametrize("when", ["overdue", "dead"])
async def test_a_step_that_no_member_would_live_to_see_is_refused(
    inbox_monitor: Any, when: str
) -> None:
    steps = [{"when": "silent", "after": "1h", "notify": "me"}]
    steps += [{"when": when, "after": "1h", "notify": "me"}]
    with pytest.raises(InvalidRequestError) as refused:
        await fan_out(inbox_monitor, offers={"x": {"to": "worker_a", "escalation": steps}})
    assert [p.path for p in refused.value.errors] == ["offers.x.escalation[1].after"]


async def test_a_member_that_is_a_chain_counts_by_its_last_leg(
    office: Any, inbox_monitor: Any
) -> None:
    chain = {"to": "worker_a", "title": "a", "then": [{"to": "worker_b"}]}
    group = await fan_out(inbox_monitor, offers={"x": chain})
    await work(office, "a")
    assert (await inbox_monitor("get_group", named=group["id"]))["group"]["state"] == "accepted"
    await work(office, "b")
    joined = (await inbox_monitor("get_group", named=group["id"]))["group"]
    assert joined["members"]["x"]["result"] == "B"


async def test_a_chain_goes_on_from_what_was_joined(office: Any, inbox_monitor: Any) -> None:
    support = await office.join("support_agent")
    then = [{"to": "support_agent", "title": "compare"}]
    await fan_out(inbox_monitor, then=then)
    for label in "abc":
        await work(office, label)
    [delivery] = (await support("take"))["deliveries"]
    assert delivery["handoff"]["payload"]["result"] == {"a": "A", "b": "B", "c": "C"}
    assert (await inbox_monitor("inbox"))["items"] == []


async def test_withdrawing_a_group_withdraws_its_members(office: Any, inbox_monitor: Any) -> None:
    group = await fan_out(inbox_monitor)
    await work(office, "a")
    await inbox_monitor("cancel", group["id"])
    members = (await inbox_monitor("get_group", named=group["id"]))["group"]["members"]
    assert [m["state"] for m in members.values()] == ["completed", "cancelled", "cancelled"]
    with pytest.raises(AlreadyFinishedError):
        await inbox_monitor("cancel", group["members"]["b"]["id"])


async def test_withdrawing_a_group_withdraws_the_leg_that_a_member_has_come_to(
    office: Any, inbox_monitor: Any
) -> None:
    chain = {"to": "worker_a", "title": "a", "then": [{"to": "worker_b"}]}
    group = await fan_out(inbox_monitor, offers={"x": chain})
    await work(office, "a")
    await inbox_monitor("cancel", group["id"])
    members = (await inbox_monitor("get_group", named=group["id"]))["group"]["members"]
    assert (members["x"]["to"], members["x"]["state"]) == ("worker_b", "cancelled")


async def test_one_bad_offer_and_none_is_made(inbox_monitor: Any) -> None:
    offers = {**OFFERS, "bad": {"capability": "nobody_can", "title": "x"}}
    with pytest.raises(NoMatchError) as refused:
        await fan_out(inbox_monitor, offers=offers)
    assert refused.value.errors[0].path == "offers.bad"
    assert (await inbox_monitor("list_handoffs"))["handoffs"] == []


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"offers": {}}, "offers"),
        ({"join": "most"}, "join"),
        ({"join": "quorum"}, "quorum"),
        ({"join": "quorum", "quorum": 4}, "quorum"),
        ({"join": "all", "quorum": 0}, "quorum"),
        ({"join": "any", "quorum": 101}, "quorum"),
        ({"offers": {"a": {"to": "b", "title": 3}}}, "offers"),
        ({"offers": {"a": {"to": "b", "idempotency_key": "k"}}}, "offers.a.idempotency_key"),
        ({"offers": {"a": {"to": "b"}}, "traceparent": "nonsense"}, "traceparent"),
    ],
)
async def test_a_group_that_makes_no_sense_is_refused(
    inbox_monitor: Any, fields: dict[str, Any], path: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        await fan_out(inbox_monitor, **fields)
    assert refused.value.errors[0].path.startswith(path)


async def test_the_same_group_again_is_the_same_group(inbox_monitor: Any) -> None:
    first = await fan_out(inbox_monitor, idempotency_key="k1", command_id="c1")
    assert (await fan_out(inbox_monitor, idempotency_key="k1", command_id="c1"))["id"] == first[
        "id"
    ]
    assert (await fan_out(inbox_monitor, idempotency_key="k1"))["id"] == first["id"]
    traced = f"00-{'1' * 32}-{'2' * 16}-01"
    elsewhere = await fan_out(inbox_monitor, idempotency_key="k1", traceparent=traced)
    assert elsewhere["id"] == first["id"], "where it is asked from is no part of what is asked"
    assert len((await inbox_monitor("list_handoffs"))["handoffs"]) == 4
    with pytest.raises(IdempotencyConflictError):
        await fan_out(inbox_monitor, idempotency_key="k1", join="any")


async def test_what_is_no_group_is_not_shown_as_one(inbox_monitor: Any) -> None:
    plain = (await inbox_monitor("offer", to="worker_a", title="x"))["handoff"]
    with pytest.raises(NotFoundError):
        await inbox_monitor("get_group", named=plain["id"])


async def test_a_group_outlives_a_restart(office: Any, inbox_monitor: Any) -> None:
    group = await fan_out(inbox_monitor)
    await work(office, "a")
    await office.restart()
    requester = await office.join("inbox_monitor")
    await work(office, "b")
    await work(office, "c")
    assert (await requester("get_group", named=group["id"]))["group"]["state"] == "completed"


async def test_nobody_can_be_the_relay_that_holds_a_group(office: Any) -> None:
    me = await office.person()
    with pytest.raises(InvalidRequestError):
        await me("create_token", agent="relay")


async def test_a_member_that_does_not_fit_its_late_recipient_counts_as_ended(
    office: Any, inbox_monitor: Any
) -> None:
    offers = {"a": {"to": "worker_a", "payload": "words"}, "b": {"to": "worker_b"}}
    group = await fan_out(inbox_monitor, offers=offers)
    worker = await office.join("worker_a")
    capability = {"name": "count", "input_schema": {"n": "int"}}
    manifest = {"agent_id": "worker_a", "capabilities": [capability]}
    await worker("register", named="worker_a", manifest=manifest)
    await work(office, "b")
    assert (await worker("take"))["deliveries"] == []
    closed = (await inbox_monitor("get_group", named=group["id"]))["group"]
    assert (closed["state"], closed["members"]["b"]["state"]) == ("failed", "completed")
    ended = closed["members"]["a"]
    assert (ended["state"], ended["code"]) == ("rejected", "payload_invalid")
