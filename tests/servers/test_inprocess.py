import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from kit.asgi import WAIT_SECONDS_MAX
from nodrop.client.transports.transport import DeliveryStream, Transport
from nodrop.model.errors import (
    InvalidRequestError,
    NotFoundError,
    QueueFullError,
    TooLargeError,
)
from nodrop.model.limits import DEFAULT
from nodrop.relay.relay import Caller, Relay
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
