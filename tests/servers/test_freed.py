"""Memory of a connection or wait is freed as soon as its client leaves, without the garbage collector."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import FrameType
from typing import Any

import aiohttp
import pytest
from starlette.types import Receive

from nodrop.app import listening, machine
from nodrop.relay.relay import Relay
from nodrop.servers.http.direct import Direct
from nodrop.servers.http.parking import Parking
from nodrop.servers.websocket.connection import Connection

SECONDS_MAX = 25.0
HELLO = {"id": 0, "op": "hello", "token": "token-code_agent"}
AUTHORIZED = {"authorization": "Bearer token-code_agent"}
PER_CLIENT = {
    *("Alarm", "Alarms.until", "Awaited", "Connection", "Follower", "NotFoundError", "Outbox"),
    *("Parking.park", "Relay.call", "Shares.measured", "Watch", "WebSocketDoor._read"),
    *("_Asking", "_Following", "_Http", "_Parting", "_WebSocket", "CursorUnknownError"),
    *("Direct", "_Exchange", "RequestResponseCycle", "Revocations.unless_revoked"),
    *("Batch", "HTTPDoor._answer", "Job", "NoMatchError", "PayloadInvalidError", "Taker"),
    *("ForbiddenError", "InvalidRequestError", "Shares.aside"),
}
"""Values that are made for each client, and frames of functions that serve one."""

Waits = Callable[[int], Awaitable[None]]


@pytest.fixture
def uncollected() -> Generator[Callable[[], set[str]]]:
    """Return what of ours only the collector would free, among what was made since."""

    def found() -> set[str]:
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            gc.collect()
            return {name for each in gc.garbage for name in _names(each) if name in PER_CLIENT}
        finally:
            gc.set_debug(0)
            gc.garbage.clear()

    gc.collect()
    gc.freeze()
    gc.disable()
    yield found
    gc.enable()
    gc.unfreeze()


def _names(each: object) -> list[str]:
    """Return what a value is, its bases too: jobs and followers are of several kinds."""
    if isinstance(each, FrameType):
        return [each.f_code.co_qualname]
    return [kind.__qualname__ for kind in type(each).__mro__]


@pytest.fixture
def has_left(monkeypatch: pytest.MonkeyPatch) -> asyncio.Queue[str]:
    """Say when the relay has let go of a connection, or of a request that waits."""
    left: asyncio.Queue[str] = asyncio.Queue()
    close, park, end = Connection.close, Parking.park, Direct.end

    async def closed(self: Connection) -> None:
        await close(self)
        left.put_nowait("connection")

    async def parked(self: Parking, call: Coroutine[Any, Any, Any], receive: Receive) -> Any:
        try:
            return await park(self, call, receive)
        finally:
            left.put_nowait("request")

    def ended(self: Direct) -> None:
        end(self)
        left.put_nowait("request")

    monkeypatch.setattr(Direct, "end", ended)
    monkeypatch.setattr(Connection, "close", closed)
    monkeypatch.setattr(Parking, "park", parked)
    return left


async def test_a_channel_that_is_left_while_it_waits(
    relay: Relay,
    somebody_waits: Waits,
    has_left: asyncio.Queue[str],
    uncollected: Callable[[], set[str]],
) -> None:
    async with asyncio.timeout(SECONDS_MAX), listening(relay) as url:
        async with (
            aiohttp.ClientSession(url) as client,
            client.ws_connect("/v1/channel") as channel,
        ):
            await channel.send_json(HELLO)
            await channel.receive_json()
            await channel.send_json({"op": "credit", "n": 1})
            offer = {"id": 1, "op": "offer", "to": "inbox_monitor", "follow": True}
            await channel.send_json(offer)
            about = (await channel.receive_json())["ok"]["handoff"]["id"]
            for n, asked in enumerate(
                [
                    {"op": "get_handoff", "handoff_id": about, "until": "finished"},
                    {"op": "inbox"},
                    {"op": "inbox", "after": 500},  # refused: there is no such entry
                ]
            ):
                await channel.send_json({"id": 2 + n, "wait": "29s", **asked})
            for _ in range(2):
                await somebody_waits(29_000)
            await channel.send_json({"id": 9, "op": "get_handoff", "handoff_id": "nowhere"})
            while (await channel.receive_json()).get("id") != 9:
                pass
        assert await has_left.get() == "connection"
    assert uncollected() == set()


async def test_requests_that_are_left_while_they_wait_or_refused(
    relay: Relay,
    somebody_waits: Waits,
    has_left: asyncio.Queue[str],
    uncollected: Callable[[], set[str]],
) -> None:
    async with (
        asyncio.timeout(SECONDS_MAX),
        listening(relay) as url,
        aiohttp.ClientSession(url, headers=AUTHORIZED) as client,
    ):
        waiting = asyncio.create_task(client.get("/v1/inbox?wait=29"))
        streaming = await client.get("/v1/log", headers={"accept": "text/event-stream"})
        assert streaming.status == 200
        async with client.get("/v1/handoffs/nowhere?wait=29") as refused:
            assert refused.status == 404
        assert await has_left.get() == "request"
        await somebody_waits(29_000)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await has_left.get() == "request"
        streaming.close()
        assert await has_left.get() == "request"
    assert uncollected() == set()


MISFIT = {"to": "code_agent", "capability": "add", "payload": "x"}
ADDS = {
    "agent_id": "code_agent",
    "capabilities": [{"name": "add", "input_schema": {"type": "integer"}}],
}
ITSELF = {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}
ENDLESS = {"agent_id": "code_agent", "capabilities": [{"name": "add", "input_schema": ITSELF}]}
REFUSED: dict[str, tuple[str, str, Any, int]] = {
    "before the commit": ("POST", "/v1/handoffs", MISFIT, 422),
    "with the commit": ("POST", "/v1/handoffs", {**MISFIT, "idempotency_key": "k"}, 422),
    "for its state": ("POST", "/v1/handoffs/{about}/fail", {"attempt": 1, "reason": "x"}, 403),
    "on the thread": ("POST", "/v1/handoffs", {"to": "x", "payload": "x" * 70_000, "what": 1}, 422),
    "as a manifest": ("PUT", "/v1/agents/code_agent", ENDLESS, 422),
}


@pytest.mark.parametrize("why", REFUSED)
async def test_requests_that_are_refused(
    relay: Relay, uncollected: Callable[[], set[str]], why: str
) -> None:
    method, path, body, status = REFUSED[why]
    async with (
        asyncio.timeout(SECONDS_MAX),
        listening(relay) as url,
        aiohttp.ClientSession(url, headers=AUTHORIZED) as client,
    ):
        async with client.put("/v1/agents/code_agent", json=ADDS) as published:
            assert published.status == 200
        async with client.post("/v1/handoffs", json={"to": "inbox_monitor"}) as offered:
            about = (await offered.json())["handoff"]["id"]
        async with client.request(method, path.format(about=about), json=body) as refused:
            assert refused.status == status
    assert uncollected() == set()


@pytest.mark.parametrize(
    "asked",
    [
        {"op": "credit", "n": 1},
        {"op": "offer", **MISFIT},
        {"op": "offer", **MISFIT, "capability": "none"},
        {"op": "offer", **MISFIT, "what": 1},
    ],
    ids=["credit", "refused", "refused for its capability", "refused for its shape"],
)
async def test_a_channel_that_is_left_after(
    relay: Relay,
    has_left: asyncio.Queue[str],
    uncollected: Callable[[], set[str]],
    asked: dict[str, Any],
) -> None:
    async with asyncio.timeout(SECONDS_MAX), listening(relay) as url:
        async with aiohttp.ClientSession(url, headers=AUTHORIZED) as client:
            async with client.put("/v1/agents/code_agent", json=ADDS) as published:
                assert published.status == 200
            async with client.ws_connect("/v1/channel") as channel:
                await channel.send_json(HELLO)
                await channel.receive_json()
                await channel.send_json({"id": 1, **asked})
                assert (await channel.receive_json())["id"] == 1
        assert await has_left.get() == "connection"
    assert uncollected() == set()


@pytest.mark.usefixtures("uncollected")
async def test_the_collector_frees_what_only_holds_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine, "_GIVE_BACK_SECONDS", 0)
    held: list[Any] = [type("Held", (), {})()]
    held[0].itself = held[0]
    freed = asyncio.Event()
    weakref.finalize(held.pop(), freed.set)
    assert not freed.is_set()
    giving = asyncio.create_task(machine.Memory().give_back())
    async with asyncio.timeout(SECONDS_MAX):
        await freed.wait()
    giving.cancel()


class _Interpreter:
    """An interpreter with so much memory in use, whose collections take 40 ms for each 1,000 blocks."""

    def __init__(self) -> None:
        self.blocks = 1_000
        self.used = 0.0
        self.collections = 0
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        """How often it had collected, each time that it was asked what is in use."""

    def getallocatedblocks(self) -> int:
        self.asked.put_nowait(self.collections)
        return self.blocks

    def collect(self) -> int:
        self.collections += 1
        self.used += 0.04 * self.blocks / 1_000
        return 0

    async def collects(self, wanted: int) -> None:
        """Return when it has collected so often."""
        async with asyncio.timeout(SECONDS_MAX):
            while await self.asked.get() != wanted:
                pass


async def test_a_collection_that_would_take_long_waits_until_less_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interpreter = _Interpreter()
    monkeypatch.setattr(machine, "_GIVE_BACK_SECONDS", 0)
    monkeypatch.setattr(machine, "_LOOKS_MAX", 1)
    monkeypatch.setattr(machine, "_COLLECTING_MAX", 0)
    monkeypatch.setattr(machine.sys, "getallocatedblocks", interpreter.getallocatedblocks)
    monkeypatch.setattr(machine.gc, "collect", interpreter.collect)
    monkeypatch.setattr(machine.time, "thread_time", lambda: interpreter.used)
    giving = asyncio.create_task(machine.Memory().give_back())
    await interpreter.collects(2)
    interpreter.blocks = 2_000
    while not interpreter.asked.empty():
        interpreter.asked.get_nowait()
    before = interpreter.collections
    async with asyncio.timeout(SECONDS_MAX):
        assert [await interpreter.asked.get() for _ in range(5)] == [before] * 5
    interpreter.blocks = 1_000
    await interpreter.collects(before + 1)
    monkeypatch.setattr(machine, "_PUT_OFF_SECONDS_MAX", -1.0)
    interpreter.blocks = 2_000
    await interpreter.collects(interpreter.collections + 2)
    giving.cancel()
