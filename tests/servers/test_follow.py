"""Offers that are followed, answers that are brief, commands that are quiet."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.asgi import Channel, Visitor
from nodrop.relay.relay import Relay
from nodrop.servers.websocket.door import WebSocketDoor
from nodrop.testing.clock import FakeClock

OFFER = {"op": "offer", "to": "code_agent", "title": "Login button", "payload": {"n": 1}}
FINISHED = ["stored", "delivered", "acknowledged", "finished"]
FOLLOWED = OFFER | {"follow": True, "brief": True}


@asynccontextmanager
async def greeted(visitor: Visitor, **hello: Any) -> AsyncGenerator[Channel]:
    async with visitor.channel() as channel:
        channel.tell({"id": 0, "op": "hello"} | hello)
        assert "ok" in await channel.frame()
        yield channel


async def answered(channel: Channel, **frame: Any) -> Any:
    channel.tell({"id": 1} | frame)
    answer = await channel.frame()
    assert answer["id"] == frame.get("id", 1)
    return answer


async def complete(channel: Channel, handoff: str, result: Any = 1) -> None:
    assert "ok" in await answered(channel, op="ack", handoff_id=handoff)
    command = {"op": "complete", "handoff_id": handoff, "attempt": 1, "result": result}
    assert "ok" in await answered(channel, **command)


async def rungs(channel: Channel, handoff: str) -> list[str]:
    shown = await answered(channel, id="look", op="get_handoff", handoff_id=handoff)
    return [receipt["rung"] for receipt in shown["ok"]["handoff"]["receipts"]]


# --- follow --------------------------------------------------------------------------------------


async def test_the_outcome_of_a_followed_offer_comes_under_its_id(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        stored = await answered(mine, id="o", **FOLLOWED)
        handoff = stored["ok"]["handoff"]["id"]
        assert stored["follows"] is True
        await complete(theirs, handoff, {"fixed": 1})
        ended = await mine.frame()
        assert (ended["id"], ended["handoff"]["id"]) == ("o", handoff)
        outcome = ended["outcome"]
        assert (outcome["state"], outcome["by"], outcome["result"]) == (
            *("completed", "code_agent"),
            {"fixed": 1},
        )
        assert await rungs(mine, handoff) == [*FINISHED, "outcome_delivered"]


async def test_an_outcome_without_a_result_follows_too(requester: Visitor, worker: Visitor) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        handoff = (await answered(mine, id="o", **FOLLOWED))["ok"]["handoff"]["id"]
        await answered(theirs, op="reject", handoff_id=handoff, reason="not mine")
        outcome = (await mine.frame())["outcome"]
        assert (outcome["state"], outcome["reason"]) == ("rejected", "not mine")
        assert "result" not in outcome


async def test_an_offer_that_is_repeated_is_followed_again(
    requester: Visitor, worker: Visitor
) -> None:
    offer = {"id": "o", **FOLLOWED, "command_id": "c1", "idempotency_key": "k1"}
    async with greeted(worker) as theirs:
        async with greeted(requester) as mine:
            handoff = (await answered(mine, **offer))["ok"]["handoff"]["id"]
        await complete(theirs, handoff)
        async with greeted(requester) as mine:
            stored = await answered(mine, **offer)
            assert (stored["ok"]["handoff"]["id"], stored["follows"]) == (handoff, True)
            assert (await mine.frame())["outcome"]["result"] == 1
            # And so is the same offer as another command, known by its key.
            again = await answered(mine, **offer | {"command_id": "c2", "id": "p"})
            assert (again["ok"]["replayed"], again["follows"]) == (True, True)
            ended = await mine.frame()
            assert (ended["id"], ended["outcome"]["result"]) == ("p", 1)


async def test_nobody_is_told_of_an_outcome_over_a_connection_that_is_gone(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(worker) as theirs:
        async with greeted(requester) as mine:
            handoff = (await answered(mine, **FOLLOWED))["ok"]["handoff"]["id"]
        await complete(theirs, handoff)
        assert await rungs(theirs, handoff) == FINISHED


async def test_an_offer_is_not_followed_unless_it_asks(requester: Visitor, worker: Visitor) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        stored = await answered(mine, **OFFER)
        assert "follows" not in stored
        handoff = stored["ok"]["handoff"]["id"]
        await complete(theirs, handoff)
        assert await rungs(theirs, handoff) == FINISHED


async def test_no_more_offers_are_followed_than_commands_may_wait(relay: Relay) -> None:
    made = iter(range(100))
    door = WebSocketDoor(relay, new_id=lambda: f"process-{next(made)}", in_flight_max=2)
    async with greeted(Visitor(door), token="token-inbox_monitor") as channel:
        follows = [(await answered(channel, **FOLLOWED)).get("follows") for _ in range(3)]
        assert follows == [True, True, None]


async def test_who_follows_does_not_wait_for_a_time(
    requester: Visitor, worker: Visitor, clock: FakeClock
) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        offer = FOLLOWED | {"deadline": "7d", "accept_within": "7d"}
        handoff = (await answered(mine, **offer))["ok"]["handoff"]["id"]
        clock.advance(3_600_000)
        await complete(theirs, handoff)
        assert (await mine.frame())["outcome"]["result"] == 1


# --- brief ---------------------------------------------------------------------------------------


async def test_a_brief_answer_to_an_offer_has_what_the_relay_added(requester: Visitor) -> None:
    async with greeted(requester) as mine:
        brief = (await answered(mine, **OFFER, brief=True, idempotency_key="k"))["ok"]["handoff"]
        shown = (await answered(mine, op="get_handoff", handoff_id=brief["id"]))["ok"]["handoff"]
    assert brief.pop("warnings")[0]["code"] == "recipient_asleep"
    assert brief.pop("origin") == shown["chain"]["origin"]
    assert {name: shown[name] for name in brief} == brief
    assert {"id", "ref", "state", "due_at", "version", "deadline", "receipts"} < set(brief)
    assert not {"payload", "title"} & set(brief)
    assert None not in brief.values()


async def test_a_delivery_leaves_out_what_is_not_there(requester: Visitor, worker: Visitor) -> None:
    async with greeted(requester) as mine, greeted(worker, heartbeat_seconds=10) as theirs:
        handoff = (await answered(mine, **OFFER))["ok"]["handoff"]["id"]
        theirs.tell({"op": "credit", "n": 1})
        delivery = (await theirs.frame())["delivery"]
        shown = (await answered(mine, op="get_handoff", handoff_id=handoff))["ok"]["handoff"]
    task = delivery["handoff"]
    assert task == {name: shown[name] for name in task}
    assert all(task.values())
    assert set(delivery) == {"handoff", "attempt", "lease_until"}


# --- bare ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["e", "\\u00e9"], ids=["at once", "on a closer look"])
async def test_a_bare_command_is_answered_with_nothing_once_it_is_durable(
    requester: Visitor, worker: Visitor, text: str
) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        handoff = (await answered(mine, **OFFER))["ok"]["handoff"]["id"]
        said = f'{{"id":1,"op":"ack","handoff_id":"{handoff}","status":"{text}","bare":true}}'
        theirs.tell(said.encode())
        assert await theirs.frame() == {"id": 1, "ok": {}}
        assert (await rungs(mine, handoff))[-1] == "acknowledged"


async def test_a_bare_command_that_is_refused_says_why(requester: Visitor) -> None:
    async with greeted(requester) as mine:
        handoff = (await answered(mine, **OFFER))["ok"]["handoff"]["id"]
        refused = await answered(mine, op="settle", handoff_id=handoff, bare=True)
    assert refused["error"]["code"] == "not_finished"


async def test_a_bare_command_that_is_repeated_is_answered_again(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        handoff = (await answered(mine, **OFFER))["ok"]["handoff"]["id"]
        said = {"op": "ack", "handoff_id": handoff, "command_id": "c", "bare": True}
        for _ in range(2):
            assert (await answered(theirs, **said))["ok"] == {}
        assert (await rungs(mine, handoff)).count("acknowledged") == 1


async def test_who_follows_what_it_offers_is_told_which_handoff_that_is(
    requester: Visitor,
) -> None:
    async with greeted(requester) as mine:
        assert (await answered(mine, **FOLLOWED, bare=True))["ok"]["handoff"]["state"] == "offered"


# --- quiet ---------------------------------------------------------------------------------------


async def test_a_quiet_command_is_carried_out_and_answered_by_the_flush(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        handoff = (await answered(mine, **OFFER))["ok"]["handoff"]["id"]
        await complete(theirs, handoff)
        mine.tell(
            {"id": "s", "op": "settle", "handoff_id": handoff, "command_id": "c", "quiet": True}
        )
        assert await answered(mine, id="f", op="flush") == {"id": "f", "ok": {}}
        assert (await rungs(mine, handoff))[-1] == "settled"


async def test_a_quiet_command_that_is_refused_is_answered_before_the_flush(
    requester: Visitor,
) -> None:
    async with greeted(requester) as mine:
        handoff = (await answered(mine, **OFFER))["ok"]["handoff"]["id"]
        mine.tell({"id": "s", "op": "settle", "handoff_id": handoff, "quiet": True})
        mine.tell({"id": "f", "op": "flush"})
        refused, flushed = await mine.frame(), await mine.frame()
        assert (refused["id"], refused["error"]["code"]) == ("s", "not_finished")
        assert flushed == {"id": "f", "ok": {}}


@pytest.mark.parametrize("text", ["e", "\\u00e9"], ids=["at once", "on a closer look"])
async def test_a_flush_waits_for_what_goes_the_long_way(
    requester: Visitor, worker: Visitor, text: str
) -> None:
    said = f'{{"id":1,"op":"note_team","text":"{text}","quiet":true}}'
    async with greeted(requester) as mine, greeted(worker) as theirs:
        mine.tell(said.encode())
        assert await answered(mine, id="f", op="flush") == {"id": "f", "ok": {}}
        page = (await answered(theirs, op="log"))["ok"]["entries"]
        assert page[-1]["type"] == "team.noted.v1"


async def test_nothing_quiet_is_flushed_at_once(requester: Visitor) -> None:
    async with greeted(requester) as mine:
        assert await answered(mine, id="f", op="flush") == {"id": "f", "ok": {}}
