"""Crashes, silence and downtime: who loses what, and who does not."""

from collections.abc import Callable
from typing import Any

import pytest

from kit import mutations
from nodrop.model.errors import StaleAttemptError

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000


def in_state(*states: str) -> Callable[[dict[str, Any]], bool]:
    return lambda view: view["state"] in states


async def take(agent: Any, process: str, **wanted: Any) -> list[dict[str, Any]]:
    answer = await agent("take", process=process, heartbeat_seconds=10, **wanted)
    return answer["deliveries"]


async def test_a_crashed_worker_is_replaced_and_can_no_longer_act(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await take(code_agent, "first")
    await code_agent("ack", offered["id"], attempt=1)
    await code_agent("step", offered["id"], named="open-ticket", attempt=1, value="T-1")

    await office.pass_time(30 * SECOND, of=offered, then=in_state("offered"))
    assert await take(code_agent, "second") == []  # a retry waits for its backoff
    [again] = await office.after(2 * SECOND, take(code_agent, "second", wait="60s"))
    assert (again["attempt"], again["steps"]) == (2, {"open-ticket": "T-1"})
    assert again["handoff"]["tries"] == 1
    for operation, fields in (("complete", {"result": 1}), ("update", {"status": "alive!"})):
        with pytest.raises(StaleAttemptError):
            await code_agent(operation, offered["id"], attempt=1, **fields)

    await code_agent("ack", offered["id"], attempt=2)
    await code_agent("complete", offered["id"], attempt=2, result="fixed")
    entries = (await inbox_monitor("log", handoff_id=offered["id"]))["entries"]
    outcomes = [e for e in entries if e["type"] == "handoff.completed.v1"]
    assert len(outcomes) == 1


async def test_heartbeats_keep_everything_a_process_holds(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    ids = [
        (await inbox_monitor("offer", to="code_agent", title=f"bug {n}"))["handoff"]["id"]
        for n in range(2)
    ]
    await take(code_agent, "p", max=2)
    for handoff_id in ids:
        await code_agent("ack", handoff_id, attempt=1)
    for _ in range(12):
        office.clock.advance(10 * SECOND)
        held = (await code_agent("heartbeat", process="p"))["held"]
        assert sorted(held) == sorted([handoff_id, 1] for handoff_id in ids)
    assert (await inbox_monitor("get_handoff", ids[0]))["handoff"]["state"] == "accepted"


async def test_of_two_processes_one_dies_and_the_others_work_goes_on(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    first = (await inbox_monitor("offer", to="code_agent", title="one"))["handoff"]
    await take(code_agent, "dies")
    await code_agent("ack", first["id"], attempt=1)
    second = (await inbox_monitor("offer", to="code_agent", title="two"))["handoff"]
    await take(code_agent, "lives")
    await code_agent("ack", second["id"], attempt=1)

    for _ in range(2):
        office.clock.advance(10 * SECOND)
        await code_agent("heartbeat", process="lives")
    await office.pass_time(10 * SECOND, of=first, then=in_state("offered"))
    await code_agent("heartbeat", process="lives")
    assert (await inbox_monitor("get_handoff", second["id"]))["handoff"]["state"] == "accepted"
    await code_agent("complete", second["id"], attempt=1, result=2)


async def _a_worker_hangs_beside_an_idle_one(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    """Two workers ask for more, the one that hangs first; only the other is alive."""
    offered = (await inbox_monitor("offer", to="code_agent", title="bug", attempts_max=2))[
        "handoff"
    ]
    await take(code_agent, "hangs")
    await code_agent("ack", offered["id"], attempt=1)
    hung = office.start(take(code_agent, "hangs", wait="60s"))
    await office.settled()
    [again] = await office.after(SECOND, take(code_agent, "idle", wait="60s")) or [None]
    assert again is not None, "the idle worker got nothing"
    assert again["attempt"] == 2
    await code_agent("ack", offered["id"], attempt=2)
    done = (await code_agent("complete", offered["id"], attempt=2, result="fixed"))["handoff"]
    assert (done["state"], done["tries"]) == ("completed", 1)
    assert await office.after(10 * SECOND, hung) == []


async def test_what_a_hung_worker_lost_goes_to_an_idle_one(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    await _a_worker_hangs_beside_an_idle_one(office, inbox_monitor, code_agent)


async def test_a_relay_that_serves_silent_processes_is_found_out(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    with (
        mutations.serves_the_silent(),
        pytest.raises(AssertionError, match="the idle worker got nothing"),
    ):
        await _a_worker_hangs_beside_an_idle_one(office, inbox_monitor, code_agent)


async def test_the_relays_downtime_costs_nobody_an_attempt(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await take(code_agent, "p")
    await code_agent("ack", offered["id"], attempt=1)

    await office.restart(down_ms=90 * SECOND)  # three times the lease
    code_agent = await office.join("code_agent")
    office.clock.advance(29 * SECOND)
    assert (await code_agent("heartbeat", process="p"))["held"] == [[offered["id"], 1]]
    done = (await code_agent("complete", offered["id"], attempt=1, result=1))["handoff"]
    assert (done["attempt"], done["tries"]) == (1, 0)


async def test_without_a_sign_of_life_the_lease_lapses_after_a_restart_too(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await take(code_agent, "p")
    await code_agent("ack", offered["id"], attempt=1)
    await office.restart(down_ms=HOUR)
    lapsed = await office.pass_time(30 * SECOND, of=offered, then=in_state("offered"))
    assert lapsed["tries"] == 1


async def test_a_lapsed_attempt_goes_on_if_nobody_took_over(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await take(code_agent, "p")
    await code_agent("ack", offered["id"], attempt=1)
    await office.pass_time(30 * SECOND, of=offered, then=in_state("offered"))
    assert (await code_agent("heartbeat", process="p"))["held"] == [[offered["id"], 1]]
    done = (await code_agent("complete", offered["id"], attempt=1, result=1))["handoff"]
    assert (done["state"], done["tries"]) == ("completed", 1)


async def test_nobody_keeps_another_agents_deliveries_alive(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await take(code_agent, "p")
    await code_agent("ack", offered["id"], attempt=1)
    office.clock.advance(20 * SECOND)
    assert (await inbox_monitor("heartbeat", process="p"))["held"] == []
    await office.pass_time(10 * SECOND, of=offered, then=in_state("offered"))


async def test_an_assistant_that_misses_its_update_is_nudged_and_escalated_not_failed(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    ladder = [{"when": "silent", "after": "10m", "notify": "me"}]
    offered = (await inbox_monitor("offer", to="code_agent", title="bug", escalation=ladder))[
        "handoff"
    ]
    await code_agent("ack", offered["id"], next_update="20m")  # no heartbeat: turn-based

    office.clock.advance(20 * MINUTE)
    nudge = (await code_agent("inbox", after=0, wait="60s", all=True))["items"]
    nudged = await _wait_for_notice(code_agent, "you owe an update")
    assert nudged["handoff_id"] == offered["id"], nudge
    office.clock.advance(10 * MINUTE)
    told = await _wait_for_notice(await office.person(), "code_agent owes an update")
    assert told["handoff_id"] == offered["id"]

    view = (await inbox_monitor("get_handoff", offered["id"]))["handoff"]
    assert (view["state"], view["tries"], view["attempt"]) == ("accepted", 0, 1)
    await code_agent("complete", offered["id"], attempt=1, result="late but fine")


async def _wait_for_notice(agent: Any, what: str) -> dict[str, Any]:
    after = 0
    while True:
        page = await agent("inbox", after=after, wait="60s", all=True)
        for item in page["items"]:
            if item["kind"] == "notice" and what in item["summary"]:
                return item
        after = page["after"]


async def test_three_crashes_make_a_dead_letter(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="poison"))["handoff"]
    for attempt in (1, 2, 3):
        await office.after(2 * SECOND, take(code_agent, f"p{attempt}", wait="60s"))
        await code_agent("ack", offered["id"], attempt=attempt)
        view = await office.pass_time(30 * SECOND, of=offered, then=in_state("offered", "failed"))
    assert (view["state"], view["outcome"]["code"]) == ("failed", "attempts_exhausted")
    assert view["tries"] == view["attempts_max"]
    [dead] = (await inbox_monitor("dead_letters"))["handoffs"]
    assert dead["id"] == offered["id"]


async def test_a_retry_waits_for_its_backoff_and_is_then_delivered(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    backoff = {"first": "5s", "factor": 2, "max": "1m"}
    offered = (await inbox_monitor("offer", to="code_agent", title="flaky", backoff=backoff))[
        "handoff"
    ]
    await code_agent("ack", offered["id"])
    await code_agent("fail", offered["id"], attempt=1, retryable=True, reason="again")
    assert await take(code_agent, "p") == []
    waiting = office.start(code_agent("take", process="p", wait="60s", heartbeat_seconds=10))
    answer = await office.after(5 * SECOND, waiting)
    assert [d["attempt"] for d in answer["deliveries"]] == [2]


async def test_what_is_released_is_delivered_again_with_what_was_learnt(
    inbox_monitor: Any, code_agent: Any
) -> None:
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    await code_agent("ack", offered["id"])
    await code_agent("checkpoint", offered["id"], attempt=1, checkpoint={"page": 7})
    await code_agent("release", offered["id"], attempt=1)
    with pytest.raises(StaleAttemptError):
        await code_agent("complete", offered["id"], attempt=1, result=1)
    [again] = await take(code_agent, "p")
    assert (again["checkpoint"], again["handoff"]["tries"]) == ({"page": 7}, 0)


async def test_a_waiting_take_is_served_by_the_offer_itself(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    waiting = office.start(code_agent("take", wait="60s", heartbeat_seconds=10))
    offered = (await inbox_monitor("offer", to="code_agent", title="bug"))["handoff"]
    [delivery] = (await waiting)["deliveries"]
    assert delivery["handoff"]["id"] == offered["id"]
    assert delivery["lease_until"] == "2026-01-01T00:01:00.000Z"


async def test_what_matters_more_is_taken_first_and_nothing_starves(
    office: Any, inbox_monitor: Any, code_agent: Any
) -> None:
    async def offer(title: str, priority: str) -> None:
        await inbox_monitor("offer", to="code_agent", title=title, priority=priority)

    await offer("old and low", "low")
    office.clock.advance(HOUR)
    await offer("low", "low")
    await offer("urgent", "urgent")
    await offer("high", "high")
    office.clock.advance(5 * HOUR)
    await offer("new and urgent", "urgent")
    taken = await take(code_agent, "p", max=10)
    titles = [d["handoff"]["title"] for d in taken]
    assert titles == ["urgent", "high", "old and low", "low", "new and urgent"]
