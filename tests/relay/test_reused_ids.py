"""One command id, used for two different commands: refused, never answered with the other's answer."""

from typing import Any

import pytest

from nodrop.model.errors import IdempotencyConflictError
from nodrop.protocol import requests
from nodrop.protocol.requests import Request
from nodrop.protocol.views import DeliveriesAnswer, HandoffAnswer, HandoffView
from nodrop.relay.relay import Caller, Relay

WORKER = Caller(team="default", agent="code_agent")
SAME = "c1"


async def shown(relay: Relay, operation: str, request: Request, handoff: str) -> HandoffView:
    answer = (await relay.call(WORKER, operation, request, reference=handoff)).answer
    assert isinstance(answer, HandoffAnswer)
    return answer.handoff


@pytest.fixture
async def handoff(relay: Relay) -> str:
    """A handoff of the agent to itself, whose offer had the id."""
    offer = requests.Offer(to="code_agent", command_id=SAME)
    answer = (await relay.call(WORKER, "offer", offer)).answer
    assert isinstance(answer, HandoffAnswer)
    return answer.handoff.id


@pytest.mark.parametrize(
    ("operation", "kind", "fields"),
    [
        ("ack", requests.Ack, {}),
        ("fail", requests.Fail, {"reason": "no"}),
        ("cancel", requests.Cancel, {}),
        ("note", requests.Note, {"text": "hello"}),
    ],
)
async def test_the_id_of_an_offer_is_not_the_id_of_what_is_said_about_it(
    relay: Relay, handoff: str, operation: str, kind: type[requests.Command], fields: Any
) -> None:
    with pytest.raises(IdempotencyConflictError):
        await shown(relay, operation, kind(command_id=SAME, **fields), handoff)
    looked = await shown(relay, "get_handoff", requests.GetHandoff(), handoff)
    assert looked.state == "offered"


async def test_an_ack_and_a_completion_do_not_share_an_id(relay: Relay, handoff: str) -> None:
    await shown(relay, "ack", requests.Ack(command_id="c2"), handoff)
    with pytest.raises(IdempotencyConflictError):
        await shown(relay, "complete", requests.Complete(attempt=1, command_id="c2"), handoff)
    done = await shown(relay, "complete", requests.Complete(attempt=1, command_id="c3"), handoff)
    assert done.state == "completed"


async def test_a_take_and_an_ack_do_not_share_an_id(relay: Relay, handoff: str) -> None:
    take = requests.Take(command_id="c2", heartbeat_seconds=10)
    answer = (await relay.call(WORKER, "take", take)).answer
    assert isinstance(answer, DeliveriesAnswer)
    assert len(answer.deliveries) == 1
    with pytest.raises(IdempotencyConflictError):
        await shown(relay, "ack", requests.Ack(attempt=1, command_id="c2"), handoff)


async def test_every_command_about_a_handoff_is_known_again(relay: Relay, handoff: str) -> None:
    script: list[tuple[str, requests.Command]] = [
        ("ack", requests.Ack(command_id="ack")),
        ("ack", requests.Ack(attempt=1, status="still", command_id="ack again")),
        ("update", requests.Update(attempt=1, status="soon", command_id="update")),
        ("checkpoint", requests.Checkpoint(attempt=1, checkpoint=1, command_id="checkpoint")),
        ("note", requests.Note(text="hello", command_id="note")),
        ("block", requests.Block(attempt=1, question="Which?", command_id="block")),
        ("release", requests.Release(attempt=1, command_id="release")),
        ("reassign", requests.Reassign(to="code_agent", command_id="reassign")),
        ("ack", requests.Ack(command_id="ack directly")),
        ("fail", requests.Fail(attempt=2, retryable=True, command_id="retry")),
        ("reject", requests.Reject(command_id="reject")),
        ("redrive", requests.Redrive(command_id="redrive")),
    ]
    for operation, request in script:
        first = await shown(relay, operation, request, handoff)
        again = await relay.call(WORKER, operation, request, reference=handoff)
        assert again.replayed, operation
        assert isinstance(again.answer, HandoffAnswer)
        assert again.answer.handoff.state == first.state, operation
