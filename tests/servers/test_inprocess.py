import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from kit.asgi import WAIT_SECONDS_MAX
from nodrop.client.transports.transport import DeliveryStream, Pushing, Transport
from nodrop.model.errors import (
    InvalidRequestError,
    NotFoundError,
    QueueFullError,
    TooLargeError,
)
from nodrop.model.limits import DEFAULT
from nodrop.protocol.pushed import Ended, Followed
from nodrop.relay.relay import Caller, Relay
from nodrop.servers import inprocess
from nodrop.servers.inprocess import InProcessDeliveries, InProcessTransport

Waits = Callable[[int], Awaitable[None]]


@pytest.fixture
async def mine(relay: Relay) -> AsyncGenerator[InProcessTransport]:
    transport = InProcessTransport(relay, Caller(team="default", agent="inbox_monitor"))
    yield transport
    await transport.close()


@pytest.fixture
async def theirs(relay: Relay) -> AsyncGenerator[InProcessTransport]:
    transport = InProcessTransport(relay, Caller(team="default", agent="code_agent"))
    yield transport
    await transport.close()


async def offered(transport: InProcessTransport, **fields: Any) -> str:
    answer = await transport.call("offer", {"to": "code_agent", "payload": {"n": 1}, **fields})
    return answer["handoff"]["id"]


async def arrived(deliveries: Any) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await anext(deliveries)


async def test_it_has_the_shape_of_the_clients_transport(relay: Relay) -> None:
    transport: Transport = InProcessTransport(relay, Caller(team="default", agent="a"))
    assert isinstance(transport, Pushing)
    stream: DeliveryStream = InProcessDeliveries(waiting_max=1)
    assert transport is not stream


async def test_answers_are_plain_values(mine: InProcessTransport) -> None:
    answer = await mine.call("offer", {"to": "code_agent", "payload": {"n": [1, 2.5, None]}})
    assert answer["handoff"]["payload"] == {"n": [1, 2.5, None]}
    assert answer["handoff"]["from"] == "inbox_monitor"


async def test_a_name_is_given_beside_the_fields_or_among_them(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    handoff = await offered(mine)
    await theirs.call("ack", {}, handoff=handoff)
    step = {"attempt": 1, "value": 7}
    recorded = await theirs.call("step", step, handoff=handoff, name="ticket")
    assert recorded == {"name": "ticket", "recorded": True, "value": 7}
    assert await theirs.call("get_step", {"name": "ticket"}, handoff=handoff) == recorded
    manifest = {"agent_id": "code_agent"}
    agent = await theirs.call("register", {"manifest": manifest}, name="code_agent")
    assert agent["agent"]["manifest"] == manifest
    again = await theirs.call("register", {"manifest": manifest, "agent": "code_agent"})
    assert again == agent


async def test_what_a_request_is_about_must_be_said(mine: InProcessTransport) -> None:
    with pytest.raises(InvalidRequestError) as no_handoff:
        await mine.call("ack", {})
    with pytest.raises(InvalidRequestError) as no_name:
        await mine.call("get_agent", {})
    paths = [error.value.errors[0].path for error in (no_handoff, no_name)]
    assert paths == ["handoff_id", "name"]


async def test_an_operation_that_does_not_exist_is_not_found(mine: InProcessTransport) -> None:
    with pytest.raises(NotFoundError):
        await mine.call("nothing", {})


async def test_a_request_is_as_large_as_over_a_wire(mine: InProcessTransport) -> None:
    with pytest.raises(TooLargeError):
        await mine.call("note_team", {"text": "x" * DEFAULT.frame_bytes_max})


async def test_deliveries_come_as_far_as_there_is_credit(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    ids = [await offered(mine) for _ in range(2)]
    stream = await theirs.deliveries(process="p1", heartbeat_seconds=10, credit=1)
    deliveries = aiter(stream)
    first = await arrived(deliveries)
    assert (first["handoff"]["id"], first["attempt"]) == (ids[0], 1)
    assert first["handoff"]["payload"] == {"n": 1}
    held = await theirs.call("heartbeat", {"process": "p1"})
    assert held == {"held": [[ids[0], 1]]}
    stream.grant(1)
    assert (await arrived(deliveries))["handoff"]["id"] == ids[1]


async def test_a_process_that_comes_back_gets_again_what_it_never_acknowledged(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    handoff = await offered(mine)
    first = await theirs.deliveries(process="p1", heartbeat_seconds=10, credit=1)
    assert (await arrived(aiter(first)))["handoff"]["id"] == handoff
    await first.close()
    second = await theirs.deliveries(process="p1", heartbeat_seconds=10, credit=1)
    again = await arrived(aiter(second))
    assert (again["handoff"]["id"], again["attempt"]) == (handoff, 1)


async def test_a_stream_ends_when_it_or_its_transport_is_closed(
    theirs: InProcessTransport,
) -> None:
    first = await theirs.deliveries(process="p1", heartbeat_seconds=10, credit=1)
    second = await theirs.deliveries(process="p2", heartbeat_seconds=10, credit=1)
    await first.close()
    await theirs.close()
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert [d async for d in first] == []
        assert [d async for d in second] == []


async def test_deliveries_that_nobody_reads_do_not_pile_up(
    relay: Relay, mine: InProcessTransport
) -> None:
    caller = Caller(team="default", agent="code_agent")
    stream = InProcessDeliveries(waiting_max=1)
    subscription = relay.subscribe(caller, process="p1", heartbeat_seconds=10, deliver=stream.put)
    await stream.open(subscription, 5)
    for _ in range(3):
        await offered(mine)
    await subscription.resume()  # all three again, at once
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        with pytest.raises(QueueFullError):
            assert [d async for d in stream] == []


async def test_closing_refuses_those_who_wait_and_everybody_after(
    theirs: InProcessTransport, somebody_waits: Waits
) -> None:
    waiting = asyncio.create_task(theirs.call("take", {"wait": "29s"}))
    await somebody_waits(29_000)
    await theirs.close()
    for call in (
        waiting,
        theirs.call("take", {}),
        theirs.deliveries(process="p", heartbeat_seconds=1, credit=1),
    ):
        with pytest.raises(InvalidRequestError, match="the connection was closed") as refused:
            await call
        assert refused.value.next_step == "Connect again."


async def test_a_caller_that_gives_up_takes_nothing(
    mine: InProcessTransport, theirs: InProcessTransport, somebody_waits: Waits
) -> None:
    waiting = asyncio.create_task(theirs.call("take", {"wait": "29s"}))
    await somebody_waits(29_000)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    handoff = await offered(mine)
    taken = await theirs.call("take", {})
    assert [(d["handoff"]["id"], d["attempt"]) for d in taken["deliveries"]] == [(handoff, 1)]


# --- outcomes that are pushed, commands that nobody waits for -------------------------------------


async def followed(transport: InProcessTransport, **fields: Any) -> tuple[str, Followed | None]:
    offer = {"to": "code_agent", "payload": {"n": 1}, "brief": True, **fields}
    stored = await transport.call_followed("offer", offer)
    shown = msgspec.json.decode(msgspec.json.encode(stored.answer))["handoff"]
    assert (stored.brief.id, stored.brief.state) == (shown["id"], shown["state"])
    return shown["id"], stored.followed


async def outcome_of(followed: Followed | None) -> Ended | None:
    assert followed is not None
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await followed.wait(None)
    assert followed.done
    return followed.ended


async def done(transport: InProcessTransport, handoff: str, result: Any) -> None:
    await transport.call("ack", {"brief": True}, handoff=handoff)
    fields = {"attempt": 1, "result": result, "brief": True}
    await transport.call("complete", fields, handoff=handoff)


async def rungs(transport: InProcessTransport, handoff: str) -> list[str]:
    shown = await transport.call("get_handoff", {}, handoff=handoff)
    return [receipt["rung"] for receipt in shown["handoff"]["receipts"]]


async def test_the_outcome_of_an_offer_is_pushed(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    handoff, outcome = await followed(mine)
    await done(theirs, handoff, {"fixed": [1, None]})
    ended = await outcome_of(outcome)
    assert ended is not None
    assert (ended.outcome.state, ended.outcome.by) == ("completed", "code_agent")
    assert ended.outcome.result == {"fixed": [1, None]}
    shown = msgspec.json.decode(msgspec.json.encode(ended.handoff))
    assert (ended.brief.id, ended.brief.origin) == (handoff, "inbox_monitor")
    assert (shown["id"], shown["state"]) == (handoff, "completed")
    assert "outcome_delivered" in await rungs(mine, handoff)


async def test_an_outcome_without_a_result_is_pushed_too(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    handoff, outcome = await followed(mine)
    await theirs.call("reject", {"reason": "not mine"}, handoff=handoff)
    ended = await outcome_of(outcome)
    assert ended is not None
    assert (ended.outcome.state, ended.outcome.reason) == ("rejected", "not mine")
    assert ended.outcome.result is None


async def test_closing_leaves_nobody_waiting_for_an_outcome(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    handoff, outcome = await followed(mine)
    await mine.close()
    assert await outcome_of(outcome) is None
    await done(theirs, handoff, 1)
    assert "outcome_delivered" not in await rungs(theirs, handoff)


async def test_an_outcome_is_waited_for_by_several_and_each_may_give_up(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    handoff, outcome = await followed(mine)
    assert outcome is not None
    waiting = [asyncio.create_task(outcome.wait(None)) for _ in range(2)]
    await outcome.wait(0)
    assert not outcome.done
    waiting[0].cancel()
    await done(theirs, handoff, 1)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await waiting[1]
    assert outcome.ended is not None
    assert outcome.ended.outcome.result == 1


async def test_outcomes_beyond_the_bound_have_to_be_asked_for(
    mine: InProcessTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inprocess, "FOLLOWED_MAX", 1)
    assert [(await followed(mine))[1] is None for _ in range(2)] == [False, True]


async def test_a_quiet_command_is_durable_once_it_is_flushed(
    mine: InProcessTransport, theirs: InProcessTransport
) -> None:
    handoff = await offered(mine)
    await done(theirs, handoff, 1)
    mine.tell("settle", {"command_id": "c1"}, handoff=handoff)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await mine.flush()
    shown = await theirs.call("get_handoff", {}, handoff=handoff)
    assert shown["handoff"]["settled_at"] is not None
    await mine.flush()  # there is nothing to wait for


async def test_the_log_tells_of_a_quiet_command_that_is_refused(
    mine: InProcessTransport, theirs: InProcessTransport, caplog: pytest.LogCaptureFixture
) -> None:
    handoff = await offered(mine)
    await done(theirs, handoff, 1)
    theirs.tell("settle", {"command_id": "c1"}, handoff=handoff)  # which is the requester's to say
    await theirs.flush()
    assert not caplog.records
    mine.tell("note", {"text": 1}, handoff=handoff)
    assert "note of" in caplog.text
    theirs.tell("complete", {"attempt": 1}, handoff=handoff)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await theirs.flush()
    assert "refused a quiet complete" in caplog.text
