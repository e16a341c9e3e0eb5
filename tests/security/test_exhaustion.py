"""Exhaustion: connections and bytes that one caller takes away from all others; each bound, taken away, lets it through."""

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from kit.fortress import Fortress
from nodrop.app import listening
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.model.errors import QueueFullError
from nodrop.model.limits import DEFAULT
from nodrop.protocol import requests
from nodrop.relay.room import Outgoing
from nodrop.servers.listener.connections import Connections
from nodrop_proof.chaos.relay_process import environment

SECONDS_MAX = 30.0
ROOM = 8
CROWD = 40
LOOK = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


class Crowd:
    """Connections without a token that asked once, and stay."""

    def __init__(self) -> None:
        self._writers: list[asyncio.StreamWriter] = []
        self._readers: list[asyncio.StreamReader] = []

    async def grow(self, url: str, count: int) -> None:
        port = int(url.rpartition(":")[2])
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            self._readers.append(reader)
            self._writers.append(writer)
            writer.write(LOOK)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            await reader.readuntil(b"}")

    async def closed(self, count: int) -> None:
        """Return when the first `count` connections were closed."""
        for reader in self._readers[:count]:
            with suppress(ConnectionError):
                assert await reader.read() == b""

    def leave(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def crowd() -> AsyncGenerator[Crowd]:
    strangers = Crowd()
    async with asyncio.timeout(SECONDS_MAX):
        try:
            yield strangers
        finally:
            strangers.leave()


@asynccontextmanager
async def narrow() -> AsyncGenerator[Fortress]:
    """A relay with room for few connections."""
    fortress = Fortress(replace(DEFAULT, connections_max=ROOM))
    await fortress.open()
    try:
        yield fortress
    finally:
        await fortress.relay.stop()


async def asked(url: str, token: str) -> int:
    """Return the status of an ordinary request over a connection of its own."""
    headers = {"authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{url}/v1/handoffs") as response,
    ):
        return response.status


async def test_idle_connections_without_a_token_keep_nobody_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with narrow() as fortress, listening(fortress.relay) as url, crowd() as strangers:
        with caplog.at_level(logging.WARNING, logger="nodrop"):
            await strangers.grow(url, CROWD)
            assert await asked(url, "token-me") == 200
            await strangers.closed(CROWD - ROOM)
        lines = [r.message for r in caplog.records if "showed no token" in r.message]
        assert len(lines) == 1


async def test_without_the_bound_idle_connections_take_all_there_is() -> None:
    """CONTROL: nothing is closed, and there are more connections than the relay has room for."""
    listeners: list[Connections] = []
    made = Connections.made

    def kept(self: Connections, transport: asyncio.Transport) -> None:
        listeners.append(self)
        made(self, transport)

    async with narrow() as fortress:
        with (
            mock.patch.object(Connections, "_close"),
            mock.patch.object(Connections, "made", kept),
        ):
            async with listening(fortress.relay) as url, crowd() as strangers:
                await strangers.grow(url, CROWD)
                assert len(listeners[0]) == CROWD


async def test_one_agent_leaves_connections_to_the_others() -> None:
    async with (
        narrow() as fortress,
        listening(fortress.relay) as url,
        asyncio.timeout(SECONDS_MAX),
        aiohttp.ClientSession() as session,
    ):
        held: list[aiohttp.ClientWebSocketResponse] = []
        for number in range(ROOM // 2 + 1):
            channel = await session.ws_connect(f"{url}/v1/channel")
            await channel.send_json({"id": 1, "op": "hello", "token": "token-bystander"})
            said = await channel.receive_json()
            held.append(channel)
            if number < ROOM // 2:
                assert said["ok"]["agent"] == "bystander"
                continue
            assert said["error"]["code"] == "queue_full"
            assert said["error"]["retryable"]
            await channel.receive()
            assert channel.close_code == 1013
        assert await asked(url, "token-me") == 200


async def test_a_connection_with_a_token_is_kept_and_one_without_is_not() -> None:
    fortress = Fortress(replace(DEFAULT, keep_alive_unproven_ms=1))
    await fortress.open()
    async with listening(fortress.relay) as url, crowd() as strangers:
        await strangers.grow(url, 1)
        await strangers.closed(1)
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        for _ in range(2):
            writer.write(LOOK.replace(b"\r\n\r\n", b"\r\nauthorization: Bearer token-me\r\n\r\n"))
            writer.write(
                b"GET /v1/handoffs?limit=1 HTTP/1.1\r\nhost: 127.0.0.1\r\n"
                b"authorization: Bearer token-me\r\n\r\n"
            )
            for _ in range(2):
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                await reader.readexactly(length)
        writer.close()
    await fortress.relay.stop()


async def test_a_relay_with_few_descriptors_serves_who_has_a_token(tmp_path: Path) -> None:
    up = (sys.executable, "-m", "nodrop.cli", "up", "--json", "--port", "0")
    async with crowd() as strangers:
        relay = await asyncio.create_subprocess_exec(
            *("sh", "-c", 'ulimit -n 160; exec "$@"', "sh", *up),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(tmp_path),
        )
        assert relay.stdout is not None
        assert relay.stderr is not None
        try:
            url: str = msgspec.json.decode(await relay.stdout.readline())["url"]
            await strangers.grow(url, 300)
            token = CredentialsFile(tmp_path).read().operator
            assert token is not None
            assert await asked(url, token) == 200
        finally:
            strangers.leave()
            relay.terminate()
            complaints = await relay.stderr.read()
            await relay.wait()
    assert complaints.count(b"showed no token") == 1


# --- bytes ---------------------------------------------------------------------------------------

LARGE = 1_000_000
STORED = 30
SMALL_BOUNDS = {
    "page_bytes_max": 2 * LARGE,
    "outgoing_bytes_max": 2 * LARGE,
    "outgoing_bytes_per_agent_max": 3 * LARGE,
}
UNBOUNDED = dict.fromkeys(SMALL_BOUNDS, 2**40)


@asynccontextmanager
async def stored(bounds: dict[str, int]) -> AsyncGenerator[tuple[Fortress, list[str]]]:
    """A relay with these bounds on which an agent has stored large handoffs, to itself."""
    fortress = Fortress(replace(DEFAULT, **bounds))
    await fortress.open()
    body = requests.Offer(to="bystander", payload="x" * LARGE)
    made = [
        (await fortress.ask("bystander", "offer", body))["handoff"]["id"] for _ in range(STORED)
    ]
    try:
        yield fortress, made
    finally:
        await fortress.relay.stop()


async def left_unread(url: str, about: list[str]) -> Counter[str]:
    """Ask for large handoffs without reading; then read, and return what came of them."""
    told: Counter[str] = Counter()
    async with asyncio.timeout(SECONDS_MAX), aiohttp.ClientSession() as session:
        channel = await session.ws_connect(f"{url}/v1/channel", max_msg_size=0)
        await channel.send_json({"id": 0, "op": "hello", "token": "token-bystander"})
        await channel.receive_json()
        asked = [{"id": n, "op": "get_handoff", "handoff_id": i} for n, i in enumerate(about, 1)]
        await channel.send_json(asked)
        for _ in asked:
            said = await channel.receive_json()
            told["ok" if "ok" in said else said["error"]["code"]] += 1
    return told


async def waiting_bytes(bounds: dict[str, int]) -> int:
    """Return how many bytes a relay held, at most, for an agent that asked for too many at once."""
    most = 0
    add = Outgoing.add

    def watched(self: Outgoing, key: tuple[str, str], size: int) -> None:
        nonlocal most
        add(self, key, size)
        most = max(most, self.of(key))

    async with stored(bounds) as (fortress, made), listening(fortress.relay) as url:
        with mock.patch.object(Outgoing, "add", watched):
            told = await left_unread(url, made)
    assert set(told) <= {"ok", "queue_full"}
    assert told["ok"] >= 1
    return most


async def test_answers_that_are_not_read_are_bounded() -> None:
    assert await waiting_bytes(SMALL_BOUNDS) <= SMALL_BOUNDS["outgoing_bytes_per_agent_max"] + LARGE


async def test_without_the_bound_all_of_them_are_held() -> None:
    """CONTROL: the relay holds everything that one agent asked for."""
    assert await waiting_bytes(UNBOUNDED) > STORED * LARGE // 2


async def test_a_page_ends_before_it_is_too_large_and_the_next_goes_on() -> None:
    async with stored(SMALL_BOUNDS) as (fortress, made):
        seen: list[str] = []
        before: str | None = None
        pages = 0
        while True:
            asked = requests.ListHandoffs(limit=500, before=before, to="bystander")
            page = await fortress.ask("bystander", "list_handoffs", asked)
            if not page["handoffs"]:
                break
            pages += 1
            seen += [handoff["id"] for handoff in page["handoffs"]]
            before = page["before"]
        assert sorted(seen) == sorted(made)
        assert pages >= 2
        entries: list[Any] = []
        while page := await fortress.ask(
            "bystander",
            "log",
            requests.GetLog(
                after=entries[-1]["seq"] if entries else 0, limit=500, actor="bystander"
            ),
        ):
            if not page["entries"]:
                break
            entries += page["entries"]
        assert [e["handoff_id"] for e in entries if e["type"] == "handoff.offered.v1"] == made


async def test_requests_that_wait_are_bounded_for_each_agent() -> None:
    fortress = Fortress(replace(DEFAULT, polls_per_agent_max=3, waits_per_agent_max=3))
    await fortress.open()
    async with asyncio.timeout(SECONDS_MAX):
        waits = requests.GetHandoff(wait="60s", until="finished")
        for operation, request, about in (
            ("log", requests.GetLog(after=10_000, wait="60s", actor="nobody"), None),
            ("get_handoff", waits, fortress.handoffs["offered"]),
        ):
            ask = partial(fortress.ask, "inbox_monitor", operation, request, about)
            waiting = [asyncio.create_task(ask()) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(QueueFullError, match="3 requests of inbox_monitor wait"):
                await ask()
            other = asyncio.create_task(fortress.ask("me", operation, request, about))
            await asyncio.sleep(0)
            assert not other.done()
            for task in (*waiting, other):
                task.cancel()
            await asyncio.gather(*waiting, other, return_exceptions=True)
    await fortress.relay.stop()


class Line:
    """A connection, as the listener counts it."""

    def abort(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("most", "kept"), [(100, False), (2**40, True)], ids=["bounded", "control"]
)
def test_unfinished_messages_are_bounded_for_each_agent(most: int, *, kept: bool) -> None:
    connections = Connections(replace(DEFAULT, incoming_bytes_per_agent_max=most))
    hostile, honest = [Line(), Line()], Line()
    for line in (*hostile, honest):
        connections.made(line)
        connections.prove(line, "default", "alice" if line is honest else "mallory")
    assert connections.hold(hostile[0], 60)
    assert connections.hold(hostile[1], 60) is kept
    assert connections.hold(honest, 60)
    connections.lost(hostile[1])
    assert connections.hold(hostile[0], 90)
