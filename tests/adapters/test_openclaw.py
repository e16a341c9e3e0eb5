"""`sessions_send` and `sessions_spawn`: each of their statuses is a fact about a handoff."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

import nodrop
from nodrop.adapters import current
from nodrop.adapters.openclaw import Sessions
from nodrop.adapters.port.events import Done, Failed, Resume, Run, Work

WAIT = "20s"
Acting = Callable[..., AbstractAsyncContextManager[nodrop.Agent]]


async def replying(work: Work, _: Resume | None) -> Run:
    yield Done(output=f"re: {work.prompt}")


async def failing(_: Work, __: Resume | None) -> Run:
    yield Failed(reason="the gateway is closed", code="closed")


async def test_a_reply_in_time_is_ok(me: nodrop.Client, acting: Acting) -> None:
    async with acting(replying, "main"):
        sent = await Sessions(me).send("hello", session_key="main")
    assert (sent.status, sent.reply, sent.state) == ("ok", "re: hello", "completed")
    assert sent.as_tool_result()["sessionKey"] == "main"


async def test_zero_seconds_accept_what_is_stored(me: nodrop.Client) -> None:
    sent = await Sessions(me).send("hello", session_key="asleep", timeout_seconds=0)
    assert (sent.status, sent.rung) == ("accepted", "stored")
    assert sent.run_id is not None
    assert (await me.handoff(sent.run_id)).state == "offered"


async def test_a_timeout_says_how_far_it_is_and_that_it_goes_on(
    me: nodrop.Client, acting: Acting
) -> None:
    sessions = Sessions(me)
    sent = await sessions.send("hello", session_key="main", timeout_seconds=0.05)
    assert (sent.status, sent.rung, sent.sent_before_error) == ("timeout", "stored", True)
    assert sent.run_id is not None
    async with acting(replying, "main"):
        later = await sessions.wait(sent.run_id, timeout_seconds=20)
    assert (later.status, later.reply) == ("ok", "re: hello")


async def test_a_failure_is_an_error_after_sending(me: nodrop.Client, acting: Acting) -> None:
    async with acting(failing, "main"):
        sent = await Sessions(me).send("hello", session_key="main")
    assert (sent.status, sent.code, sent.error) == ("error", "closed", "the gateway is closed")
    assert sent.sent_before_error


async def test_what_was_never_stored_is_an_error_before_sending(me: nodrop.Client) -> None:
    sent = await Sessions(me).send("hello", session_key="not a name")
    assert (sent.status, sent.code) == ("error", "invalid_request")
    assert (sent.run_id, sent.sent_before_error) == (None, False)


async def test_a_spawned_run_is_accepted_at_once_and_fetched_later(
    me: nodrop.Client, acting: Acting
) -> None:
    sessions = Sessions(me)
    run = await sessions.spawn("count", agent_id="main", label="counting", run_timeout_seconds=60)
    assert (run.status, run.rung) == ("accepted", "stored")
    assert run.run_id is not None
    async with acting(replying, "main"):
        assert (await sessions.wait(run.run_id, timeout_seconds=20)).reply == "re: count"


async def test_the_same_key_is_the_same_run(me: nodrop.Client) -> None:
    sessions = Sessions(me)
    first = await sessions.spawn("count", agent_id="main", idempotency_key="once")
    again = await sessions.spawn("count", agent_id="main", idempotency_key="once")
    assert first.run_id == again.run_id


# --- inside of a handoff ---------------------------------------------------------------------


@pytest.mark.parametrize(("own", "seconds"), [(None, 3_600), (60, 60), (7_200, 3_600)])
async def test_what_a_handoff_starts_is_part_of_it_over_whatever_connection(
    me: nodrop.Client, acting: Acting, own: float | None, seconds: int
) -> None:
    """The connection is that of somebody who does not even know of the handoff."""
    async with nodrop.connect(":memory:", agent="stranger") as stranger:

        async def spawning(_: Work, __: Resume | None) -> Run:
            sessions = Sessions(stranger)
            run = await sessions.spawn("count", agent_id="asleep", run_timeout_seconds=own)
            again = await sessions.wait(run.run_id or "", timeout_seconds=0.01)
            yield Done(output=[run.status, run.run_id, again.status])

        async with acting(spawning, "main"):
            top = await me.hand_off("main", deadline="1h")
            started, run_id, waited = await top.result(wait=WAIT)
    assert (started, waited) == ("accepted", "timeout")
    async with nodrop.connect(":memory:", agent="main") as agent:
        below = await agent.handoff(run_id)
    assert (below.correlation_id, below.view["parent_id"]) == (top.correlation_id, top.id)
    assert below.deadline <= top.deadline
    assert (below.deadline == top.deadline) == (seconds == 3_600)


async def test_a_later_attempt_finds_what_an_earlier_one_started(
    me: nodrop.Client, acting: Acting
) -> None:
    started: list[str | None] = []

    async def spawning(_: Work, __: Resume | None) -> Run:
        run = await Sessions(me).spawn("count", agent_id="asleep", run_timeout_seconds=60)
        started.append(run.run_id)
        if len(started) == 1:
            raise OSError("and then it broke")
        yield Done(output=run.status)

    async with acting(spawning, "main"):
        top = await me.hand_off("main", backoff={"first": "10ms"})
        assert await top.result(wait=WAIT) == "accepted"
    assert len(started) == 2
    assert started[0] is not None
    assert started[0] == started[1]


async def test_what_is_no_longer_worked_on_starts_nothing(
    me: nodrop.Client, acting: Acting
) -> None:
    async def fenced(_: Work, __: Resume | None) -> Run:
        here = current()
        assert here is not None, "a driver works on something"
        here.close()
        run = await Sessions(me).spawn("count", agent_id="asleep")
        yield Done(output=[run.status, run.code, run.run_id])

    async with acting(fenced, "main"):
        said = await (await me.hand_off("main")).result(wait=WAIT)
    assert said == ["error", "stale_attempt", None]
