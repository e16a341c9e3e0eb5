"""Asking without awaiting: everyone is told, and one who cannot be told is no concern of others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.errors import (
    InvalidRequestError,
    NodropError,
    QueueFullError,
    RelayFaultError,
    StaleAttemptError,
    UnavailableError,
)
from nodrop.model.handoff import Handoff
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests
from nodrop.protocol.requests import Request
from nodrop.protocol.views import BriefAnswer, BriefView, HandoffAnswer, HandoffView
from nodrop.relay.relay import Asking, Caller, Relay, Reply
from nodrop.relay.room import LARGE_BYTES
from nodrop.relay.shows import Shows

ME = Caller(team="default", agent="inbox_monitor")
WORKER = Caller(team="default", agent="code_agent")


class Asked(Asking):
    """Keeps what it was told."""

    def __init__(
        self, caller: Caller, operation: str, request: Request, reference: str | None = None
    ) -> None:
        super().__init__(caller, operation, request, reference=reference)
        self.answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

    def tell(self, reply: Reply) -> None:
        self.answer.set_result(reply)

    def refuse(self, error: NodropError) -> None:
        self.answer.set_exception(error)


@pytest.fixture
async def relay(started: Callable[[Store, Limits], Awaitable[Relay]]) -> Relay:
    relay = await started(MemoryStore(), DEFAULT)
    await relay.ensure_team("default")
    return relay


async def accepted(relay: Relay) -> str:
    """A handoff that the worker has acknowledged."""
    offered = await relay.call(ME, "offer", requests.Offer(to="code_agent", title="T"))
    assert isinstance(offered.answer, HandoffAnswer)
    handoff_id = offered.answer.handoff.id
    await relay.call(WORKER, "ack", requests.Ack(), reference=handoff_id)
    return handoff_id


def completes(handoff_id: str, attempt: int = 1) -> Asked:
    request = requests.Complete(attempt=attempt, result=7, brief=True)
    return Asked(WORKER, "complete", request, handoff_id)


async def told(asked: Asked) -> Reply:
    async with asyncio.timeout(30):
        return await asked.answer


async def test_a_command_is_told_where_the_handoff_is_once_committed(relay: Relay) -> None:
    handoff_id = await accepted(relay)
    asked = completes(handoff_id)
    relay.ask(asked)
    assert not asked.answer.done()
    answer = (await told(asked)).answer
    assert isinstance(answer, BriefAnswer)
    assert answer.handoff.state == "completed"


async def test_a_repeat_is_answered_as_the_first_time(relay: Relay) -> None:
    handoff_id = await accepted(relay)
    request = requests.Complete(attempt=1, result=7, command_id="c1")
    first, again = (Asked(WORKER, "complete", request, handoff_id) for _ in range(2))
    for asked in (first, again):
        relay.ask(asked)
        answer = (await told(asked)).answer
        assert isinstance(answer, HandoffAnswer)
        assert answer.handoff.state == "completed"
    assert (await told(again)).replayed


async def test_what_is_refused_is_told_and_changes_nothing(relay: Relay) -> None:
    handoff_id = await accepted(relay)
    stale = completes(handoff_id, attempt=9)
    relay.ask(stale)
    with pytest.raises(StaleAttemptError):
        await told(stale)


@pytest.mark.parametrize(
    ("operation", "request_", "by"),
    [
        ("complete", requests.Complete(attempt=1), "key"),
        ("complete", requests.Complete(attempt=1), "prefix"),
        ("note", requests.Note(text="seen"), "key"),
        ("get_handoff", requests.GetHandoff(), "prefix"),
        ("cancel", requests.Cancel(), "id"),
        ("list_handoffs", requests.ListHandoffs(), "nothing"),
    ],
)
async def test_what_needs_the_store_first_is_told_too(
    relay: Relay, operation: str, request_: Request, by: str
) -> None:
    offer = requests.Offer(to="code_agent", idempotency_key="k")
    made = (await relay.call(ME, "offer", offer)).answer
    assert isinstance(made, HandoffAnswer)
    handoff_id = made.handoff.id
    await relay.call(WORKER, "ack", requests.Ack(), reference=handoff_id)
    references = {"key": "inbox_monitor/k", "prefix": handoff_id[:20], "id": handoff_id}
    caller = WORKER if operation == "complete" else ME
    asked = Asked(caller, operation, request_, references.get(by))
    relay.ask(asked)
    assert handoff_id.encode() in msgspec.json.encode((await told(asked)).answer)


async def test_an_ack_waits_until_the_position_is_known(relay: Relay) -> None:
    offered = (await relay.call(ME, "offer", requests.Offer(to="code_agent"))).answer
    assert isinstance(offered, HandoffAnswer)
    asked = Asked(WORKER, "ack", requests.Ack(), offered.handoff.id)
    relay.ask(asked)
    answer = (await told(asked)).answer
    assert isinstance(answer, HandoffAnswer)
    assert answer.handoff.ack is not None
    assert answer.handoff.ack.position == 1


async def test_who_leaves_is_told_nothing(relay: Relay) -> None:
    handoff_id = await accepted(relay)
    waits = requests.GetHandoff(wait=30, until="finished")
    gone = [
        Asked(ME, "get_handoff", waits, handoff_id),
        Asked(ME, "log", requests.GetLog(after=99, wait=30)),
    ]
    for asked in gone:
        relay.ask(asked)
        relay.leave(asked)
    done = completes(handoff_id)
    relay.ask(done)
    await told(done)
    assert not any(asked.answer.done() for asked in gone)


def offers(**fields: Any) -> Asked:
    return Asked(ME, "offer", requests.Offer(to="code_agent", **fields))


async def offered(relay: Relay, asked: Asked) -> HandoffAnswer:
    relay.ask(asked)
    answer = (await told(asked)).answer
    assert isinstance(answer, HandoffAnswer)
    return answer


@pytest.mark.parametrize(
    "payload", [{"n": 1}, {"text": "x" * (LARGE_BYTES + 1)}], ids=["small", "large"]
)
async def test_an_offer_is_told_what_it_made_once_committed(
    relay: Relay, payload: dict[str, Any]
) -> None:
    asked = offers(payload=payload)
    answer = await offered(relay, asked)
    assert (answer.handoff.state, answer.handoff.to) == ("offered", "code_agent")
    assert msgspec.json.decode(answer.handoff.payload) == payload


async def test_an_offer_below_another_is_part_of_its_chain(relay: Relay) -> None:
    above = await offered(relay, offers())
    below = await offered(relay, offers(parent_id=above.handoff.id))
    assert below.handoff.correlation_id == above.handoff.correlation_id


@pytest.mark.parametrize(
    "remembered",
    [{"idempotency_key": "k"}, {"command_id": "c"}, {"turn_based": True}],
    ids=["by its key", "by its command", "by its content"],
)
async def test_an_offer_that_was_made_before_is_answered_with_the_same_handoff(
    relay: Relay, remembered: dict[str, Any]
) -> None:
    answers = [await offered(relay, offers(**remembered)) for _ in range(2)]
    assert len({answer.handoff.id for answer in answers}) == 1


async def test_an_offer_that_is_refused_takes_up_no_room(
    started: Callable[[Store, Limits], Awaitable[Relay]],
) -> None:
    relay = await started(MemoryStore(), msgspec.structs.replace(DEFAULT, open_handoffs_max=1))
    await relay.ensure_team("default")
    wrong = offers(priority="never", command_id="c")
    relay.ask(wrong)
    with pytest.raises(InvalidRequestError):
        await told(wrong)
    await offered(relay, offers())
    full = offers()
    relay.ask(full)
    with pytest.raises(QueueFullError):
        await told(full)


async def test_one_that_cannot_be_shown_is_no_concern_of_others(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, whole = await accepted(relay), await accepted(relay)
    brief = Shows.brief

    def shown(self: Shows, handoff: Handoff) -> BriefView:
        if handoff.id == broken:
            raise RuntimeError("cannot be shown")
        return brief(self, handoff)

    monkeypatch.setattr(Shows, "brief", shown)
    first, second = completes(broken), completes(whole)
    relay.ask(first)
    relay.ask(second)
    with pytest.raises(RelayFaultError):
        await told(first)
    answer = (await told(second)).answer
    assert isinstance(answer, BriefAnswer)
    assert answer.handoff.state == "completed"


async def test_who_awaits_an_answer_is_refused_when_the_relay_stops(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    handoff_id = await accepted(relay)
    looking, never = asyncio.Event(), asyncio.Event()

    async def seen(*_: object) -> tuple[HandoffView, ...]:
        looking.set()
        await never.wait()
        return ()

    monkeypatch.setattr(Shows, "seen", seen)
    looker = msgspec.structs.replace(ME, observer=True)
    call = relay.call(looker, "get_handoff", requests.GetHandoff(), reference=handoff_id)
    asked = asyncio.create_task(call)
    async with asyncio.timeout(30):
        await looking.wait()
        await relay.stop()
        with pytest.raises(UnavailableError, match="stopping"):
            await asked
