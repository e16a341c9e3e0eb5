"""A worker whose reports are never answered."""

from typing import TYPE_CHECKING

import nodrop

if TYPE_CHECKING:
    from conftest import FakeTransport, Working


async def test_a_result_that_is_never_answered_is_told_as_a_failure_that_may_be_tried_again(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage(task: nodrop.Task) -> str:
        return task.id

    relay.refuse("complete", nodrop.UnansweredError())
    async with working(agent):
        relay.deliver()
        told = await relay.next("fail")
    assert (told["code"], told["retryable"]) == ("unanswered", True)
    assert relay.said("register", "heartbeat", "release") == ["ack", "complete", "fail"]


async def test_a_failure_that_is_never_answered_is_not_repeated_for_ever(
    relay: "FakeTransport", agent: nodrop.Agent, working: "Working"
) -> None:
    @agent.capability("triage")
    async def triage(task: nodrop.Task) -> str:
        return task.id

    relay.refuse("complete", nodrop.UnansweredError())
    relay.refuse("fail", nodrop.UnansweredError())
    async with working(agent):
        relay.deliver()
        await relay.next("fail")
        relay.deliver("h2")
        await relay.next("complete")
    assert relay.said("register", "heartbeat", "release").count("fail") == 1
