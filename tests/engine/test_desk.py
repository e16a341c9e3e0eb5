"""The desk: what it takes, whom it tells, and that one who cannot be told is no concern of others."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from nodrop.core.errors import (
    InvalidRequestError,
    NodropError,
    QueueFullError,
    RelayFaultError,
    StaleAttemptError,
)
from nodrop.core.limits import DEFAULT, Limits
from nodrop.core.model import Handoff
from nodrop.engine.offers import OFF_THE_LOOP_BYTES
from nodrop.engine.relay import Asking, Caller, Relay, Reply
from nodrop.engine.shows import Shows
from nodrop.store import Store
from nodrop.stores.memory import MemoryStore
from nodrop.wire import requests
from nodrop.wire.requests import Request
from nodrop.wire.views import BriefAnswer, BriefView, HandoffAnswer

ME = Caller(team="default", agent="inbox_monitor")
WORKER = Caller(team="default", agent="code_agent")


class Asked(Asking):
    """Keeps what it was told."""

    def __init__(self, caller: Caller, operation: str, request: Request) -> None:
        super().__init__(caller, operation, request)
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


def completes(attempt: int = 1) -> Asked:
    return Asked(WORKER, "complete", requests.Complete(attempt=attempt, result=7, brief=True))


async def told(asked: Asked) -> Reply:
    async with asyncio.timeout(30):
        return await asked.answer


async def test_a_command_is_told_where_the_handoff_is_once_committed(relay: Relay) -> None:
    handoff_id = await accepted(relay)
    asked = completes()
    assert relay.desk.ask(asked, handoff_id)
    assert not asked.answer.done()
    answer = (await told(asked)).answer
    assert isinstance(answer, BriefAnswer)
    assert answer.handoff.state == "completed"


async def test_a_repeat_is_answered_as_the_first_time(relay: Relay) -> None:
    handoff_id = await accepted(relay)
    request = requests.Complete(attempt=1, result=7, command_id="c1")
    first, again = (Asked(WORKER, "complete", request) for _ in range(2))
    for asked in (first, again):
        assert relay.desk.ask(asked, handoff_id)
        answer = (await told(asked)).answer
        assert isinstance(answer, HandoffAnswer)
        assert answer.handoff.state == "completed"
    assert (await told(again)).replayed


async def test_what_is_refused_is_told_and_changes_nothing(relay: Relay) -> None:
    handoff_id = await accepted(relay)
    stale = completes(attempt=9)
    assert relay.desk.ask(stale, handoff_id)
    with pytest.raises(StaleAttemptError):
        await told(stale)


@pytest.mark.parametrize(
    ("operation", "request_", "reference"),
    [
        ("take", requests.Take(), None),
        ("complete", requests.Complete(attempt=1), "inbox_monitor/key"),
        ("complete", requests.Complete(attempt=1), "019b"),
        ("ack", requests.Ack(attempt=1), "019b76da-a800-7000-8000-000000000099"),
    ],
    ids=["work", "a reference", "a prefix", "an ack whose position is not known"],
)
async def test_what_needs_the_store_first_is_not_taken_and_nothing_happens(
    relay: Relay, operation: str, request_: Request, reference: str | None
) -> None:
    asked = Asked(WORKER, operation, request_)
    assert not relay.desk.ask(asked, reference)
    assert not asked.answer.done()


def offers(**fields: Any) -> Asked:
    return Asked(ME, "offer", requests.Offer(to="code_agent", **fields))


async def offered(relay: Relay, asked: Asked) -> HandoffAnswer:
    assert relay.desk.ask(asked, None)
    answer = (await told(asked)).answer
    assert isinstance(answer, HandoffAnswer)
    return answer


@pytest.mark.parametrize(
    "payload", [{"n": 1}, {"text": "x" * (OFF_THE_LOOP_BYTES + 1)}], ids=["small", "large"]
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
    assert relay.desk.ask(wrong, None)
    with pytest.raises(InvalidRequestError):
        await told(wrong)
    await offered(relay, offers())
    full = offers()
    assert relay.desk.ask(full, None)
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
    first, second = completes(), completes()
    assert relay.desk.ask(first, broken)
    assert relay.desk.ask(second, whole)
    with pytest.raises(RelayFaultError):
        await told(first)
    answer = (await told(second)).answer
    assert isinstance(answer, BriefAnswer)
    assert answer.handoff.state == "completed"
