"""The doors behind a real server on loopback: what only a socket can show."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from starlette.types import Receive, Scope, Send
from yarl import URL

from nodrop.app import listening
from nodrop.model.errors import UnavailableError
from nodrop.model.limits import DEFAULT
from nodrop.relay.relay import Relay
from nodrop.servers.listener.connections import Connections
from nodrop.servers.listener.server import listen

AUTHORIZED = {"authorization": "Bearer token-code_agent"}
JSON = {"content-type": "application/json"}
SECONDS_MAX = 25.0


@asynccontextmanager
async def session(url: str) -> AsyncGenerator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=SECONDS_MAX)
    async with (
        asyncio.timeout(2 * SECONDS_MAX),
        aiohttp.ClientSession(url, headers=AUTHORIZED, timeout=timeout) as client,
    ):
        yield client


@asynccontextmanager
async def served(relay: Relay) -> AsyncGenerator[aiohttp.ClientSession]:
    async with listening(relay) as url, session(url) as client:
        yield client


async def problem(response: aiohttp.ClientResponse) -> tuple[int, str]:
    return response.status, (await response.json(content_type=None))["code"]


async def test_a_free_port_is_found_and_told(relay: Relay) -> None:
    async with listening(relay) as one, listening(relay) as other:
        assert one != other
        for url in (one, other):
            assert url.startswith("http://127.0.0.1:")
            async with session(url) as client, client.get("/healthz") as response:
                assert response.status == 200
                assert "server" not in response.headers


async def test_a_port_that_is_taken_is_refused(relay: Relay) -> None:
    async with listening(relay) as url:
        with pytest.raises(UnavailableError, match="cannot listen on"):
            async with listening(relay, port=URL(url).port or 0):
                pass


async def test_an_answer_does_not_wait_for_the_client_to_acknowledge_its_head() -> None:
    """Held back by the kernel, every small answer on a connection that is kept takes 40 ms."""

    class Seen(Connections):
        undelayed: int | None = None

        def made(self, transport: Any) -> None:
            connection = transport.get_extra_info("socket")
            self.undelayed = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            super().made(transport)

    async def empty(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    connections = Seen()
    async with (
        listen(
            empty, host="127.0.0.1", port=0, frame_bytes_max=1_024, connections=connections
        ) as url,
        session(url) as client,
        client.get("/") as response,
    ):
        assert response.status == 204
    assert connections.undelayed == 1


async def test_one_connection_serves_many_requests(relay: Relay) -> None:
    async with served(relay) as client:
        for _ in range(3):
            async with client.post("/v1/handoffs", json={"to": "code_agent"}) as response:
                assert response.status == 201
        async with client.get("/v1/handoffs/code_agent%2Fmissing") as response:
            assert await problem(response) == (404, "not_found")


async def test_a_body_in_chunks_without_end_is_cut_off(relay: Relay) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536

    async with served(relay) as client:
        try:
            async with client.post("/v1/handoffs", data=endless(), headers=JSON) as response:
                assert await problem(response) == (413, "too_large")
        except aiohttp.ClientConnectionError:
            pass  # cut off in the middle of a chunk, which is as good


async def test_names_and_pages_from_elsewhere_are_turned_away(relay: Relay) -> None:
    async with served(relay) as client:
        for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}):
            async with client.get("/v1/handoffs", headers=headers) as response:
                assert await problem(response) == (403, "forbidden")
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect("/v1/channel", headers=headers)
            assert refused.value.status == 403


async def test_a_channel_elsewhere_is_not_found(relay: Relay) -> None:
    async with served(relay) as client:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect("/v1/nothing")
        assert refused.value.status == 404


async def test_commands_and_deliveries_go_over_a_channel(relay: Relay) -> None:
    async with served(relay) as client, client.ws_connect("/v1/channel") as channel:
        await channel.send_json({"id": 1, "op": "hello", "heartbeat_seconds": 10})
        assert (await channel.receive_json())["ok"]["agent"] == "code_agent"
        await channel.send_json({"op": "credit", "n": 1})
        await channel.send_json(
            {"id": 2, "op": "offer", "to": "code_agent", "payload": "x" * 90_000}
        )
        heard: list[Any] = [await channel.receive_json() for _ in range(2)]
        offered = next(frame["ok"]["handoff"] for frame in heard if "ok" in frame)
        pushed = next(frame["delivery"]["handoff"] for frame in heard if "push" in frame)
        assert offered["id"] == pushed["id"]


async def test_a_frame_over_the_bound_ends_the_channel(relay: Relay) -> None:
    async with served(relay) as client, client.ws_connect("/v1/channel") as channel:
        await channel.send_str(" " * (DEFAULT.frame_bytes_max + 1))
        message = await channel.receive()
        assert message.type is aiohttp.WSMsgType.CLOSE
        assert channel.close_code == 1009


async def test_a_token_that_is_refused_ends_the_channel(relay: Relay) -> None:
    async with served(relay) as client, client.ws_connect("/v1/channel") as channel:
        await channel.send_json({"id": 1, "op": "hello", "token": "nobody"})
        assert (await channel.receive_json())["error"]["code"] == "unauthenticated"
        assert (await channel.receive()).type is aiohttp.WSMsgType.CLOSE
        assert channel.close_code == 4401


async def test_at_the_end_those_who_wait_are_told_and_nobody_is_let_in(
    relay: Relay, somebody_waits: Callable[[int], Awaitable[None]]
) -> None:
    async with asyncio.timeout(2 * SECONDS_MAX), asyncio.TaskGroup() as group:
        async with listening(relay) as url:
            inside = asyncio.Event()
            waiting = group.create_task(take_and_wait(url))
            hanging = group.create_task(hear_the_end(url, inside))
            await inside.wait()
            await somebody_waits(29_000)
        assert await waiting == (503, "unavailable")
        assert await hanging == 1012
        port = URL(url).port
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port or 0), timeout=SECONDS_MAX)


async def take_and_wait(url: str) -> tuple[int, str]:
    async with session(url) as client, client.post("/v1/inbox/take", json={"wait": 29}) as response:
        return await problem(response)


async def hear_the_end(url: str, inside: asyncio.Event) -> int | None:
    async with session(url) as client, client.ws_connect("/v1/channel") as channel:
        await channel.send_json({"id": 1, "op": "hello"})
        await channel.receive_json()
        inside.set()
        await channel.receive()
        return channel.close_code
