"""The WebSocket transport and requests that end every connection they are sent over."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.retrying import Retrying
from nodrop.client.transports.websocket import WebSocketTransport
from nodrop.model.errors import UnansweredError

WAIT_SECONDS_MAX = 30.0


class FakeRelay:
    """A channel that answers a frame, or ends the connection instead."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.ends: Callable[[dict[str, Any]], bool] = lambda _: False
        self.says_something = False
        """Whether it says something else before it ends a connection."""

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        hello = msgspec.json.decode((await socket.receive()).data)
        welcome = {"team": "default", "agent": "a", "process": hello["resume"] or "process-1"}
        await socket.send_json({"id": 0, "ok": welcome})
        assert request.transport is not None
        async for message in socket:
            frame = msgspec.json.decode(message.data)
            self.got.append(frame)
            if self.ends(frame):
                if self.says_something:
                    await socket.send_json({"push": "something else"})
                request.transport.close()
                break
            await socket.send_json({"id": frame["id"], "ok": {"did": frame["op"]}})
        return socket

    def server(self, port: int | None = None) -> TestServer:
        app = web.Application()
        app.router.add_get("/v1/channel", self.serve)
        return TestServer(app, port=port)


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.slept_often = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) > 50:
            self.slept_often.set()
        await asyncio.sleep(0)

    def transport(self, url: str) -> WebSocketTransport:
        policy = Retrying(now=lambda: sum(self.slept), sleep=self.sleep, random=lambda: 1.0)
        return WebSocketTransport(url, FixedToken("good"), policy=policy)


@pytest.fixture
def relay() -> FakeRelay:
    return FakeRelay()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def transport(relay: FakeRelay, clock: Clock) -> AsyncGenerator[WebSocketTransport]:
    server = relay.server()
    await server.start_server(shutdown_timeout=0)
    transport = clock.transport(str(server.make_url("/v1/channel")).replace("http", "ws"))
    yield transport
    await transport.close()
    await server.close()


@pytest.mark.parametrize("says_something", [False, True])
async def test_a_request_that_ends_every_connection_is_refused_after_ten(
    relay: FakeRelay, transport: WebSocketTransport, clock: Clock, *, says_something: bool
) -> None:
    relay.ends = lambda frame: frame["op"] == "offer"
    relay.says_something = says_something
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        with pytest.raises(UnansweredError) as refused:
            await transport.call("offer", {"command_id": "c"})
        assert await transport.call("ack", {"command_id": "d"}) == {"did": "ack"}
    assert [frame["op"] for frame in relay.got] == ["offer"] * 10 + ["ack"]
    assert len({msgspec.json.encode(frame) for frame in relay.got[:10]}) == 1
    assert refused.value.retryable
    assert clock.slept == sorted(clock.slept), "each repeat comes later than the one before"
    assert clock.slept[-1] > 1


async def test_a_request_that_waits_is_sent_again_after_however_many_connections(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    relay.ends = lambda _: len(relay.got) <= 25
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert await transport.call("inbox", {"wait": 20.0}) == {"did": "inbox"}
    assert len(relay.got) == 26


async def test_waiting_for_a_relay_that_is_not_there_does_not_count(
    relay: FakeRelay, clock: Clock
) -> None:
    port = unused_port()
    transport = clock.transport(f"ws://127.0.0.1:{port}/v1/channel")
    before = relay.server(port)
    await before.start_server(shutdown_timeout=0)
    await transport.open()
    await before.close()
    answer = asyncio.create_task(transport.call("offer", {"command_id": "c"}))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await clock.slept_often.wait()
        after = relay.server(port)
        await after.start_server(shutdown_timeout=0)
        assert await answer == {"did": "offer"}
    await transport.close()
    await after.close()
