"""Clients that dribble: nobody waits for them, and they are not waited for long."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest

from nodrop.app import SystemIds
from nodrop.relay.relay import Relay
from nodrop.servers.gate import Gate
from nodrop.servers.http.door import HTTPDoor
from nodrop.servers.listener.server import Patience, listen
from nodrop.servers.websocket.door import WebSocketDoor

if TYPE_CHECKING:
    from conftest import Answers, Victim

SECONDS_MAX = 20.0
SHORT = 0.3
LONG = 600.0
CROWD = 100
HEAD = b"POST /v1/handoffs HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer nd_poisoner\r\n"
BODY = HEAD + b"content-length: 1000\r\n\r\n"
CHUNKS = HEAD + b"transfer-encoding: chunked\r\n\r\n"
UPGRADE = (
    b"GET /v1/channel HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\n\r\n"
)
DRIBBLES = {
    "nothing at all": (b"", b""),
    "a first line": (b"GET /v1/handoffs HT", b""),
    "headers": (HEAD, b"x: y\r\n"),
    "a body": (BODY, b" "),
    "chunks": (CHUNKS, b"1\r\n \r\n"),
    "the size of a chunk": (CHUNKS, b"0"),
}


@asynccontextmanager
async def listening(
    relay: Relay, seconds: float, *, head_seconds: float | None = None
) -> AsyncGenerator[int]:
    """Serve a relay with so much patience, for the head of a request too; yields the port."""
    gate = Gate(
        http=HTTPDoor(relay, body_seconds_max=seconds),
        websocket=WebSocketDoor(relay, new_id=SystemIds().new, hello_seconds_max=seconds),
    )
    patience = Patience(
        head_seconds=seconds if head_seconds is None else head_seconds, parting_seconds=seconds
    )
    async with listen(
        gate, host="127.0.0.1", port=0, frame_bytes_max=1_000_000, patience=patience
    ) as url:
        yield int(url.rpartition(":")[2])


class Dribbler:
    """Says something, and then a little more and more until it is not heard any longer."""

    def __init__(self, port: int, first: bytes, more: bytes) -> None:
        self._port = port
        self._first = first
        self._more = more
        self.inside = asyncio.Event()

    async def run(self) -> bytes:
        """Return everything that was heard until the connection was closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._first)
        self.inside.set()
        dribbling = asyncio.create_task(self._dribble(writer))
        try:
            with suppress(ConnectionError):
                return await reader.read()
            return b""
        finally:
            dribbling.cancel()
            writer.close()

    async def _dribble(self, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while self._more:
                writer.write(self._more)
                await writer.drain()
                await asyncio.sleep(SHORT / 10)


async def crowd(port: int, first: bytes, more: bytes, *, size: int) -> list[asyncio.Task[bytes]]:
    """Let many dribble at once; returns once all of them do."""
    dribblers = [Dribbler(port, first, more) for _ in range(size)]
    tasks = [asyncio.create_task(dribbler.run()) for dribbler in dribblers]
    for dribbler in dribblers:
        await dribbler.inside.wait()
    return tasks


@pytest.mark.parametrize(("first", "more"), DRIBBLES.values(), ids=DRIBBLES)
async def test_who_dribbles_is_told_and_closed(victim: "Victim", first: bytes, more: bytes) -> None:
    before = await victim.head()
    async with asyncio.timeout(SECONDS_MAX), listening(victim.relay, SHORT) as port:
        heard = await asyncio.gather(*await crowd(port, first, more, size=5))
    assert [told.partition(b"\r\n")[0] for told in heard] == [b"HTTP/1.1 408 Request Timeout"] * 5
    assert all(b"application/problem+json" in told for told in heard)
    assert await victim.head() == before


async def test_a_channel_that_never_says_hello_is_closed(
    victim: "Victim", answers: "Answers"
) -> None:
    serving = listening(victim.relay, SHORT, head_seconds=LONG)
    async with asyncio.timeout(SECONDS_MAX), serving as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(UPGRADE)
        assert (await answers(reader)).status == 101
        # A refusal in a text frame, and a close frame of two bytes.
        heard = await reader.readuntil(b"\x88\x02" + (4401).to_bytes(2, "big"))
        assert b'"code":"unauthenticated"' in heard
        writer.close()


@pytest.mark.parametrize(("first", "more"), DRIBBLES.values(), ids=DRIBBLES)
async def test_a_crowd_that_dribbles_keeps_nobody_from_being_served(
    victim: "Victim", answers: "Answers", first: bytes, more: bytes
) -> None:
    async with asyncio.timeout(SECONDS_MAX), listening(victim.relay, LONG) as port:
        dribbling = await crowd(port, first, more, size=CROWD)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HEAD + b'content-length: 10\r\n\r\n{"to":"b"}')
            assert (await answers(reader)).status == 201
            writer.close()
            assert not any(task.done() for task in dribbling), "they are still there"
        finally:
            for task in dribbling:
                task.cancel()
            await asyncio.gather(*dribbling, return_exceptions=True)


async def test_patience_without_end_is_found_out(victim: "Victim") -> None:
    """CONTROL: with no bound, whoever dribbles would stay."""
    async with listening(victim.relay, LONG) as port:
        dribbling: list[asyncio.Task[Any]] = list(await crowd(port, *DRIBBLES["headers"], size=1))
        done, _ = await asyncio.wait(dribbling, timeout=5 * SHORT)
        assert not done
        for task in dribbling:
            task.cancel()
        await asyncio.gather(*dribbling, return_exceptions=True)
