"""The HTTP transport where a connection stays open and nothing comes through any more."""

import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.http import HttpTransport
from nodrop.client.transports.retrying import Retrying
from nodrop.model.errors import InvalidRequestError, StoreFullError
from nodrop.protocol.errors import document

WAIT_SECONDS_MAX = 20.0


class SilentRelay:
    """A relay whose first answers stop on their way: heartbeats at once, all else in the body."""

    def __init__(self) -> None:
        self.silent = True
        self.asked: asyncio.Queue[str] = asyncio.Queue()
        self.refusals = 0
        """So many requests are refused, because the store is full."""
        self.deliver: list[str] = []

    async def serve(self, request: web.Request) -> web.StreamResponse:
        await request.read()
        self.asked.put_nowait(request.path)
        if self.refusals:
            self.refusals -= 1
            problem = document(StoreFullError())
            return web.json_response(msgspec.to_builtins(problem), status=problem.status)
        if not self.silent:
            return web.json_response({"deliveries": self.deliver, "held": []})
        response = web.StreamResponse(headers={"Content-Length": "100"})
        if not request.path.endswith("heartbeat"):
            await response.prepare(request)
            await response.write(b"{")
        await asyncio.Event().wait()
        return response


@pytest.fixture
def relay() -> SilentRelay:
    return SilentRelay()


@pytest.fixture
async def url(relay: SilentRelay) -> AsyncGenerator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", relay.serve)
    server = TestServer(app)
    await server.start_server(shutdown_timeout=0)
    yield str(server.make_url("/v1"))
    await server.close()


@pytest.fixture
async def transport(url: str) -> AsyncGenerator[HttpTransport]:
    transport = HttpTransport(url, FixedToken("t"), first_seconds_max=None)
    yield transport
    await transport.close()


async def test_an_unanswered_heartbeat_is_repeated_and_so_is_all_that_waits(
    relay: SilentRelay, transport: HttpTransport
) -> None:
    await transport.deliveries(process="p", heartbeat_seconds=0.1, credit=1)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        waiting = asyncio.create_task(transport.call("inbox", {"wait": 60}))
        assert await relay.asked.get() == "/v1/inbox"
        beating = asyncio.create_task(transport.call("heartbeat", {"process": "p"}))
        assert await relay.asked.get() == "/v1/heartbeat"
        relay.silent = False
        assert await beating == await waiting == {"deliveries": [], "held": []}


async def test_whoever_reads_an_answer_is_refused_when_the_transport_is_closed(
    relay: SilentRelay, transport: HttpTransport
) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        waiting = asyncio.create_task(transport.call("inbox", {"wait": 60}))
        await relay.asked.get()
        await transport.close()
        with pytest.raises(InvalidRequestError, match="closed"):
            await waiting


async def test_a_worker_goes_on_asking_for_work_however_long_the_store_is_full(
    relay: SilentRelay, url: str
) -> None:
    passed = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    transport = HttpTransport(
        url, FixedToken("t"), policy=Retrying(now=lambda: passed, sleep=sleep)
    )
    relay.silent = False
    relay.deliver = ["h1"]
    relay.refusals = 50
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=1)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert await anext(aiter(stream)) == "h1"
    assert passed > 60
    await transport.close()
