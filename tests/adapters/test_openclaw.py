"""`sessions_send` and `sessions_spawn`: each of their statuses is a fact about a handoff."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import nodrop
from nodrop.adapters.openclaw import Sessions
from nodrop.adapters.port.events import Done, Failed, Resume, Run, Work

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
