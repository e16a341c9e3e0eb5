"""The doors behind a real server on loopback: what only a socket can show."""

import asyncio
import itertools
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send
from yarl import URL

from nodrop.app import listening
from nodrop.model.errors import UnavailableError
from nodrop.model.limits import DEFAULT
from nodrop.protocol.requests import Cancel, Offer, RevokeToken
from nodrop.relay.relay import Relay
from nodrop.servers.http.door import HTTPDoor
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


# --- without ASGI --------------------------------------------------------------------------------


def asked(method: str, path: str, body: bytes = b"", *further: str) -> bytes:
    """Return a request as it is sent."""
    head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    head += [f"Authorization: {AUTHORIZED['authorization']}", *further, "", ""]
    return "\r\n".join(head).encode() + body


class Socket:
    """A connection to a relay, byte for byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, str], Any]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split(" ")[1]), headers, msgspec.json.decode(body)


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Socket]:
    address = URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port, limit=1_000_000)
    async with asyncio.timeout(SECONDS_MAX):
        yield Socket(reader, writer)
    writer.close()


@pytest.fixture
def without_asgi(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have requests fail that come by ASGI."""

    async def fail(*_: Any) -> None:
        raise AssertionError("this came by ASGI")

    monkeypatch.setattr(HTTPDoor, "__call__", fail)


OFFER = b'{"to":"code_agent"}'


@pytest.mark.usefixtures("without_asgi")
@pytest.mark.parametrize("pieces", [1, 2, 3])
async def test_an_operation_needs_no_asgi_however_many_pieces_it_comes_in(
    relay: Relay, pieces: int
) -> None:
    request = asked("POST", "/v1/handoffs", OFFER)
    cuts = [0, len(request) - len(OFFER), len(request) - 3, len(request)][-pieces - 1 :]
    cuts[0] = 0
    async with listening(relay) as url, connected(url) as client:
        for start, end in itertools.pairwise(cuts):
            client.writer.write(request[start:end])
            await client.writer.drain()
        status, headers, answer = await client.answer()
        assert (status, headers["content-type"]) == (201, "application/json")
        assert answer["handoff"]["state"] == "offered"
        assert "date" in headers
        assert "connection" not in headers


async def test_what_is_not_for_this_way_comes_by_asgi(relay: Relay) -> None:
    async with listening(relay) as url, connected(url) as client:
        for method, path, body, expected in (
            ("POST", "/v1/handoffs", b"{", 422),
            ("POST", "/v1/handoffs", b'{"to":"%b"}' % (b"x" * 100_000), 422),
            ("DELETE", "/v1/handoffs", b"", 405),
            ("GET", "/v1/nothing", b"", 404),
            ("GET", "/teams/default/v1/handoffs", b"", 200),
            ("GET", "/healthz", b"", 200),
        ):
            client.writer.write(asked(method, path, body))
            assert (await client.answer())[0] == expected


async def test_requests_that_come_together_are_answered_in_their_order(relay: Relay) -> None:
    requests = [
        asked("POST", "/v1/handoffs", OFFER),
        asked("GET", "/healthz"),
        asked("GET", "/v1/handoffs/nowhere"),
        asked("POST", "/v1/handoffs", OFFER),
        asked("DELETE", "/v1/handoffs"),
    ]
    async with listening(relay) as url, connected(url) as client:
        client.writer.write(b"".join(requests))
        statuses = [(await client.answer())[0] for _ in requests]
    assert statuses == [201, 200, 404, 201, 405]


@pytest.mark.usefixtures("without_asgi")
async def test_a_connection_ends_after_the_answer_where_the_client_wants_that(relay: Relay) -> None:
    async with listening(relay) as url, connected(url) as client:
        client.writer.write(asked("POST", "/v1/handoffs", OFFER, "Connection: close"))
        status, headers, _ = await client.answer()
        assert (status, headers["connection"]) == (201, "close")
        assert await client.reader.read() == b""


@pytest.mark.usefixtures("without_asgi")
async def test_a_large_answer_is_followed_by_others(relay: Relay) -> None:
    text = "x" * 100_000
    sender = await relay.authenticate("token-code_agent")
    offer = Offer(to="code_agent", payload={"text": text})
    made: Any = (await relay.call(sender, "offer", offer)).answer
    async with listening(relay) as url, connected(url) as client:
        for _ in range(2):
            client.writer.write(asked("GET", f"/v1/handoffs/{made.handoff.id}"))
            status, _, answer = await client.answer()
            assert (status, answer["handoff"]["payload"]["text"]) == (200, text)


async def test_what_is_no_http_behind_a_request_that_waits_ends_its_wait(
    relay: Relay, somebody_waits: Callable[[int], Awaitable[None]]
) -> None:
    async with listening(relay) as url, connected(url) as client:
        client.writer.write(asked("GET", "/v1/inbox?wait=29"))
        await somebody_waits(29_000)
        client.writer.write(b"this is no HTTP\r\n\r\n")
        status, headers, problem = await client.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert problem["code"] == "invalid_request"


@pytest.mark.usefixtures("without_asgi")
async def test_who_asks_is_known_by_each_request_and_not_by_its_connection(relay: Relay) -> None:
    operator = await relay.authenticate("token-me")
    mine = await relay.authenticate("token-code_agent")
    offer = asked("POST", "/v1/handoffs", OFFER)
    others = offer.replace(b"token-code_agent", b"token-inbox_monitor")
    assert mine.token_id is not None
    async with listening(relay) as url, connected(url) as client:
        for request, sender in (
            (offer, "code_agent"),
            (offer, "code_agent"),
            (others, "inbox_monitor"),
            (offer, "code_agent"),
        ):
            client.writer.write(request)
            status, _, answer = await client.answer()
            assert (status, answer["handoff"]["from"]) == (201, sender)
        revoking = RevokeToken(token_id=mine.token_id)
        await relay.call(operator, "revoke_token", revoking, name=mine.token_id)
        for request, expected in ((offer, 401), (others, 201)):
            client.writer.write(request)
            status, headers, _ = await client.answer()
            assert (status, headers.get("www-authenticate")) == (
                expected,
                "bearer" if expected == 401 else None,
            )


async def test_whose_a_connection_is_is_told_again_after_each_request_that_came_by_asgi(
    relay: Relay,
) -> None:
    class Seen(Connections):
        def __init__(self) -> None:
            super().__init__()
            self.proven_by: list[str] = []

        def prove(self, transport: Any, team: str, agent: str) -> None:
            self.proven_by.append(agent)
            super().prove(transport, team, agent)

    mine = asked("POST", "/v1/handoffs", OFFER)
    by_asgi = asked("GET", "/teams/default/v1/handoffs").replace(
        b"token-code_agent", b"token-inbox_monitor"
    )
    connections = Seen()
    async with (
        listen(
            HTTPDoor(relay),
            host="127.0.0.1",
            port=0,
            frame_bytes_max=DEFAULT.frame_bytes_max,
            connections=connections,
        ) as url,
        connected(url) as client,
    ):
        for request in (mine, mine, by_asgi, mine):
            client.writer.write(request)
            assert (await client.answer())[0] < 300
    assert connections.proven_by == ["code_agent", "inbox_monitor", "code_agent"]


async def test_a_connection_is_idle_since_its_last_answer_and_not_while_it_waits(
    relay: Relay, somebody_waits: Callable[[int], Awaitable[None]]
) -> None:
    soon = replace(DEFAULT, keep_alive_ms=50, keep_alive_unproven_ms=50)
    async with (
        listen(
            HTTPDoor(relay),
            host="127.0.0.1",
            port=0,
            frame_bytes_max=DEFAULT.frame_bytes_max,
            connections=Connections(soon),
        ) as url,
        connected(url) as client,
        connected(url) as other,
    ):
        client.writer.write(asked("POST", "/v1/handoffs", OFFER))
        handoff = (await client.answer())[2]["handoff"]["id"]
        client.writer.write(asked("GET", f"/v1/handoffs/{handoff}?wait=29&until=finished"))
        await somebody_waits(29_000)
        other.writer.write(asked("GET", "/v1/handoffs/nowhere"))
        assert (await other.answer())[0] == 404
        assert await other.reader.read() == b"", "idle since after the other began to wait"
        sender = await relay.authenticate("token-code_agent")
        await relay.call(sender, "cancel", Cancel(), reference=handoff)
        assert (await client.answer())[2]["handoff"]["state"] == "cancelled"
        assert await client.reader.read() == b""
