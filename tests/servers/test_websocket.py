import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from kit.asgi import WAIT_SECONDS_MAX, Channel, Visitor
from kit.keyholder import KeyHolder
from nodrop.model.limits import DEFAULT
from nodrop.protocol.requests import AddKey, RevokeToken
from nodrop.relay.relay import Relay
from nodrop.servers.websocket import connection
from nodrop.servers.websocket.door import WebSocketDoor
from nodrop.testing.clock import FakeClock

OFFER = {"op": "offer", "to": "code_agent", "title": "Login button"}


def ids() -> Callable[[], str]:
    made = iter(range(1_000))
    return lambda: f"process-{next(made)}"


@asynccontextmanager
async def greeted(visitor: Visitor, **hello: Any) -> AsyncGenerator[Channel]:
    """A channel whose hello was answered."""
    async with visitor.channel() as channel:
        channel.tell({"id": 0, "op": "hello"} | hello)
        assert "ok" in await channel.frame()
        yield channel


async def asked(channel: Channel, **frame: Any) -> Any:
    """Return what a frame is answered with, on a channel without pushes."""
    channel.tell({"id": 1} | frame)
    answer = await channel.frame()
    assert answer["id"] == frame.get("id", 1)
    return answer.get("ok", answer.get("error"))


# --- hello ---------------------------------------------------------------------------------------


async def test_a_hello_is_answered_with_who_one_is(stranger: Visitor) -> None:
    async with stranger.channel() as channel:
        channel.tell({"id": 1, "op": "hello", "token": "token-code_agent", "resume": None})
        answer = await channel.frame()
    assert answer["id"] == 1
    process = answer["ok"].pop("process")
    assert answer["ok"] == {"team": "default", "agent": "code_agent"}
    assert process


async def test_the_token_may_come_with_the_upgrade(worker: Visitor) -> None:
    async with worker.channel() as channel:
        channel.tell({"id": 1, "op": "hello", "token": None, "resume": "p1"})
        answer = await channel.frame()
    assert answer["ok"] == {"team": "default", "agent": "code_agent", "process": "p1"}


@pytest.mark.parametrize(
    ("frame", "frame_id", "code"),
    [
        ({"id": 1, "op": "offer", "to": "b"}, 1, "unauthenticated"),
        ({"id": 1, "op": "hello"}, 1, "unauthenticated"),
        ({"id": 1, "op": "hello", "token": "nobody"}, 1, "unauthenticated"),
        ({"id": "x", "op": "hello", "tokn": "token-me"}, "x", "invalid_request"),
        (b"{", None, "invalid_request"),
        (b"[]", None, "invalid_request"),
        (b'"hello"', None, "invalid_request"),
    ],
)
async def test_who_does_not_say_hello_is_refused_and_the_channel_closed(
    stranger: Visitor, frame: Any, frame_id: Any, code: str
) -> None:
    async with stranger.channel() as channel:
        channel.tell(frame)
        answer = await channel.frame()
        assert (answer["id"], answer["error"]["code"]) == (frame_id, code)
        assert await channel.closed() == 4401


async def test_a_hello_is_not_waited_for_long(relay: Relay) -> None:
    door = WebSocketDoor(relay, new_id=ids(), hello_seconds_max=0.01)
    async with Visitor(door).channel() as channel:
        answer = await channel.frame()
        assert (answer["id"], answer["error"]["code"]) == (None, "unauthenticated")
        assert await channel.closed() == 4401


async def test_a_hello_is_said_once(worker: Visitor) -> None:
    async with greeted(worker) as channel:
        answer = await asked(channel, op="hello")
        assert (answer["code"], answer["errors"][0]["path"]) == ("invalid_request", "op")


async def test_a_channel_belongs_to_the_team_in_its_path(worker: Visitor) -> None:
    async with worker.channel("/teams/default/v1/channel") as channel:
        channel.tell({"id": 1, "op": "hello"})
        assert "ok" in await channel.frame()
    async with worker.channel("/teams/other/v1/channel") as channel:
        channel.tell({"id": 1, "op": "hello"})
        assert (await channel.frame())["error"]["code"] == "not_found"
        assert await channel.closed() == 4401


async def test_there_is_no_channel_elsewhere(worker: Visitor) -> None:
    async with worker.channel("/v1/handoffs") as channel:
        await channel.closed()


# --- commands ------------------------------------------------------------------------------------


async def test_an_operation_is_asked_for_by_its_name_or_by_its_path(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        first = await asked(mine, **OFFER)
        second = await asked(mine, **OFFER | {"op": "handoffs"})
        ids = [first["handoff"]["id"], second["handoff"]["id"]]
        by_name = await asked(theirs, op="ack", handoff_id=ids[0])
        by_path = await asked(theirs, op=f"handoffs/{ids[1]}/ack", status="mine")
        assert [a["handoff"]["state"] for a in (by_name, by_path)] == ["accepted", "accepted"]
        assert by_path["handoff"]["ack"]["status"] == "mine"


async def test_answers_are_what_http_answers(requester: Visitor) -> None:
    async with greeted(requester) as channel:
        handoff = (await asked(channel, **OFFER))["handoff"]
        over_websocket = await asked(channel, op="get_handoff", handoff_id=handoff["id"])
    over_http = await requester.request("GET", f"/v1/handoffs/{handoff['id']}")
    assert over_websocket == over_http.json()


async def test_a_step_an_agent_and_a_block_each_have_their_own_name(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester) as mine, greeted(worker) as theirs:
        handoff = (await asked(mine, **OFFER))["handoff"]["id"]
        await asked(theirs, op="ack", handoff_id=handoff)
        about = {"handoff_id": handoff, "attempt": 1}
        step = await asked(theirs, op="step", name="ticket", value=7, **about)
        assert step == {"name": "ticket", "recorded": True, "value": 7}
        assert await asked(theirs, op="get_step", handoff_id=handoff, name="ticket") == step
        manifest = {"agent_id": "code_agent"}
        agent = await asked(theirs, op="register", name="code_agent", manifest=manifest)
        assert agent["agent"]["manifest"] == manifest
        blocked = await asked(theirs, op="block", question="Which?", name="version", **about)
        assert blocked["handoff"]["question"]["name"] == "version"


@pytest.mark.parametrize(
    ("frame", "code", "path"),
    [
        ({"op": "ack"}, "invalid_request", "handoff_id"),
        ({"op": "get_step", "handoff_id": "x"}, "invalid_request", "name"),
        ({"op": "ack", "handoff_id": 3}, "invalid_request", "handoff_id"),
        ({"op": 3}, "invalid_request", "op"),
        ({}, "invalid_request", "op"),
        ({"op": "nothing"}, "not_found", None),
        ({"op": "handoffs/x"}, "not_found", None),
        ({"op": "heartbeat", "processes": "x"}, "invalid_request", "processes"),
        ({"op": "credit"}, "invalid_request", "n"),
        ({"op": "credit", "n": -1}, "invalid_request", "n"),
        ({"op": "credit", "n": 1, "m": 1}, "invalid_request", "m"),
    ],
)
async def test_a_frame_that_is_wrong_is_refused_under_its_id(
    worker: Visitor, frame: dict[str, Any], code: str, path: str | None
) -> None:
    async with greeted(worker) as channel:
        answer = await asked(channel, id="wrong", **frame)
        assert answer["code"] == code
        assert [e["path"] for e in answer["errors"]] == ([] if path is None else [path])


@pytest.mark.parametrize(
    "data", [b"{", b"7", b"[7]", b"[{]", b'{"id": {}, "op": "ack"}', b"[" * 9_999]
)
async def test_what_is_no_frame_is_refused_under_no_id_and_the_channel_goes_on(
    worker: Visitor, data: bytes
) -> None:
    async with greeted(worker) as channel:
        channel.tell(data)
        answer = await channel.frame()
        assert (answer["id"], answer["error"]["code"]) == (None, "invalid_request")
        assert await asked(channel, op="heartbeat") == {"held": []}


async def test_commands_of_one_channel_run_side_by_side(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(worker) as theirs, greeted(requester) as mine:
        theirs.tell({"id": "waits", "op": "take", "wait": "29s"}, {"id": "now", "op": "heartbeat"})
        assert (await theirs.frame())["id"] == "now"
        await asked(mine, **OFFER)
        assert (await theirs.frame())["id"] == "waits"


async def test_more_commands_than_may_wait_are_refused(relay: Relay) -> None:
    door = WebSocketDoor(relay, new_id=ids(), in_flight_max=2)
    async with greeted(Visitor(door), token="token-code_agent") as channel:
        for frame_id in (1, 2):
            channel.tell({"id": frame_id, "op": "take", "wait": "29s"})
        answer = await asked(channel, id=3, op="heartbeat")
        assert (answer["code"], answer["retryable"]) == ("queue_full", True)


async def test_a_process_that_a_frame_leaves_out_is_the_channels_own(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester) as mine:
        handoff = (await asked(mine, **OFFER))["handoff"]["id"]
    async with greeted(worker, resume="p1") as channel:
        taken = await asked(channel, op="take", heartbeat_seconds=10)
        assert taken["process"] == "p1"
        assert await asked(channel, op="heartbeat") == {"held": [[handoff, 1]]}
        assert await asked(channel, op="heartbeat", process="p2") == {"held": []}


async def test_a_fault_of_ours_is_told_as_one(
    worker: Visitor,
    relay: Relay,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret inside")

    async with greeted(worker) as channel:
        monkeypatch.setattr(relay, "call", broken)
        answer = await asked(channel, op="heartbeat")
    assert answer["code"] == "relay_fault"
    assert "secret inside" not in str(answer)
    assert "secret inside" in caplog.text


# --- several messages in one frame ---------------------------------------------------------------


async def test_answers_of_one_turn_share_a_frame_where_the_client_agreed(worker: Visitor) -> None:
    async with greeted(worker, batch=True) as channel:
        channel.tell([{"id": i, "op": "nothing"} for i in range(3)])
        answers = await channel.frame()
        assert [answer["id"] for answer in answers] == [0, 1, 2]


async def test_each_answer_has_its_own_frame_where_it_did_not(worker: Visitor) -> None:
    async with greeted(worker) as channel:
        channel.tell([{"id": i, "op": "nothing"} for i in range(3)])
        assert [(await channel.frame())["id"] for _ in range(3)] == [0, 1, 2]


async def test_commands_may_follow_a_hello_in_the_same_array(worker: Visitor) -> None:
    async with worker.channel() as channel:
        channel.tell([{"id": 1, "op": "hello"}, {"id": 2, "op": "heartbeat"}])
        assert [(await channel.frame())["id"] for _ in range(2)] == [1, 2]


async def test_a_shared_frame_is_no_longer_than_a_client_must_accept(
    worker: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Such frames are costly, and would be read aside and begun one by one.
    monkeypatch.setattr(connection, "COSTLY_SECONDS", WAIT_SECONDS_MAX)
    monkeypatch.setattr(connection, "LARGE_BYTES", DEFAULT.frame_bytes_max)
    long = "x" * 300_000
    async with greeted(worker, batch=True) as channel:
        # A refusal repeats the id of its frame, so the answers are as long as we like.
        for part in range(3):
            channel.tell([{"id": f"{part}{i}{long}", "op": "nothing"} for i in range(3)])
        frames = list[Any]()
        while sum(map(len, frames)) < 9:
            frame = await channel.frame()
            frames.append(frame if isinstance(frame, list) else [frame])
    assert max(len(msgspec.json.encode(frame)) for frame in frames) <= DEFAULT.frame_bytes_max
    assert len(frames) < 9


# --- pushes --------------------------------------------------------------------------------------


async def pushed(channel: Channel, kind: str) -> Any:
    """Return the next push of a kind."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while (frame := await channel.frame()).get("push") != kind:
            pass
    return frame


async def test_deliveries_come_as_far_as_there_is_credit(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester) as mine, greeted(worker, heartbeat_seconds=10) as theirs:
        for _ in range(3):
            await asked(mine, **OFFER)
        theirs.tell({"op": "credit", "n": 2})
        deliveries = [await pushed(theirs, "delivery") for _ in range(2)]
        assert [d["delivery"]["attempt"] for d in deliveries] == [1, 1]
        held = await asked(theirs, op="heartbeat")
        assert len(held["held"]) == 2
        theirs.tell({"op": "credit", "n": 1})
        third = (await pushed(theirs, "delivery"))["delivery"]["handoff"]["id"]
        assert third not in {d["delivery"]["handoff"]["id"] for d in deliveries}


async def test_credit_with_an_id_is_answered(worker: Visitor) -> None:
    async with greeted(worker) as channel:
        assert await asked(channel, op="credit", n=1) == {}


async def test_a_process_that_comes_back_gets_again_what_it_never_acknowledged(
    requester: Visitor, worker: Visitor
) -> None:
    process = {"resume": "p1", "heartbeat_seconds": 10}
    async with greeted(requester) as mine:
        async with greeted(worker, **process) as theirs:
            for _ in range(2):
                await asked(mine, **OFFER)
            theirs.tell({"op": "credit", "n": 2})
            first, second = [(await pushed(theirs, "delivery"))["delivery"] for _ in range(2)]
            await asked(theirs, op="ack", handoff_id=first["handoff"]["id"], attempt=1)
        async with greeted(worker, **process) as theirs:
            theirs.tell({"op": "credit", "n": 2})
            again = (await pushed(theirs, "delivery"))["delivery"]
            assert (again["handoff"]["id"], again["attempt"]) == (second["handoff"]["id"], 1)


async def test_outcomes_and_notices_are_pushed_to_whoever_wants_to_hear(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(requester, inbox=True) as mine, greeted(worker) as theirs:
        handoff = (await asked(mine, **OFFER))["handoff"]["id"]
        await asked(theirs, op="ack", handoff_id=handoff)
        block = {"op": "block", "handoff_id": handoff, "attempt": 1, "question": "Which?"}
        await asked(theirs, **block)
        notice = await pushed(mine, "notice")
        assert (notice["item"]["kind"], notice["item"]["handoff_id"]) == ("question", handoff)
        await asked(theirs, op="complete", handoff_id=handoff, attempt=1, result=1)
        outcome = await pushed(mine, "outcome")
        assert (outcome["item"]["kind"], outcome["item"]["handoff_id"]) == ("outcome", handoff)


async def test_a_channel_without_a_free_slot_is_told_what_waits(
    requester: Visitor, worker: Visitor, clock: FakeClock
) -> None:
    async with greeted(requester) as mine, greeted(worker, heartbeat_seconds=10) as theirs:
        await asked(theirs, op="credit", n=0)
        handoff = (await asked(mine, **OFFER))["handoff"]["id"]
        clock.advance(1_000)
        offered = (await pushed(theirs, "offered"))["offered"]
        assert (offered["id"], offered["position"]) == (handoff, 1)
        answer = await asked(mine, op="get_handoff", handoff_id=handoff)
        assert (answer["handoff"]["state"], answer["handoff"]["attempt"]) == ("offered", 0)


async def test_nothing_is_delivered_to_a_channel_that_is_gone(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(worker, heartbeat_seconds=10) as theirs:
        theirs.tell({"op": "credit", "n": 5})
        await asked(theirs, op="heartbeat")
    async with greeted(requester) as mine:
        handoff = (await asked(mine, **OFFER))["handoff"]["id"]
        # The commit of a note is a later one: whatever the offer set off has happened by now.
        await asked(mine, op="note", handoff_id=handoff, text="anybody there?")
        answer = await asked(mine, op="get_handoff", handoff_id=handoff)
        assert (answer["handoff"]["state"], answer["handoff"]["attempt"]) == ("offered", 0)


# --- bounds --------------------------------------------------------------------------------------


async def test_a_frame_over_the_bound_ends_the_channel(worker: Visitor) -> None:
    async with greeted(worker) as channel:
        channel.tell(b" " * (DEFAULT.frame_bytes_max + 1))
        assert await channel.closed() == 1009


async def test_a_reader_that_falls_asleep_is_cut_off(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = msgspec.structs.replace(DEFAULT, outgoing_bytes_max=10_000)
    monkeypatch.setattr(relay, "limits", limits)
    door = WebSocketDoor(relay, new_id=ids())
    async with greeted(Visitor(door), token="token-code_agent") as channel:
        channel.sleep()
        for i in range(100):
            channel.tell({"id": i, "op": "nothing"})
        await channel.taken()
        channel.wake()
        assert await channel.closed() == 1013


# --- credentials that end ------------------------------------------------------------------------


async def test_a_channel_is_closed_when_its_token_is_revoked(
    stranger: Visitor, relay: Relay
) -> None:
    operator = await relay.authenticate("token-me")
    mine = await relay.authenticate("token-code_agent")
    async with greeted(stranger, token="token-code_agent") as channel:
        channel.tell({"op": "credit", "n": 5})
        other = stranger.with_headers(authorization="Bearer token-inbox_monitor")
        async with greeted(other) as unharmed:
            assert mine.token_id is not None
            revoking = RevokeToken(token_id=mine.token_id)
            await relay.call(operator, "revoke_token", revoking, name=mine.token_id)
            assert await channel.closed() == 4401
            assert "handoff" in await asked(unharmed, **OFFER)


async def test_a_channel_is_closed_when_its_key_has_expired(
    stranger: Visitor, relay: Relay, clock: FakeClock
) -> None:
    operator = await relay.authenticate("token-me")
    old, new = KeyHolder("me"), KeyHolder("me")
    for number, holder in enumerate((old, new)):
        added = holder.adding(f"c{number}") | {"command_id": f"c{number}", "overlap": "1h"}
        await relay.call(operator, "add_key", msgspec.convert(added, AddKey))
    async with greeted(stranger, token=old.bearer(clock.now())) as channel:
        assert "items" in await asked(channel, op="inbox")
        clock.advance(3_600_000)
        channel.tell({"id": 2, "op": "inbox"})
        assert await channel.closed() == 4401
