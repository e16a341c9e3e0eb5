"""The bad network does what it says, and only that."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from random import Random
from typing import TypeVar

import pytest

from nodrop_proof.kit.proxy import Link, Proxy, Trouble

WAIT_SECONDS_MAX = 20.0
MOMENT_SECONDS = 0.05

T = TypeVar("T")


async def soon(work: Awaitable[T]) -> T:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await work


async def unused(proxy: Proxy) -> None:
    """Return when no connection is in use: its ends are heard of one after the other."""
    while proxy.links:  # noqa: ASYNC110  # each turn brings it on
        await asyncio.sleep(0)


class Side:
    """One end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, text: bytes) -> None:
        self._writer.write(text)

    async def hear(self, size: int) -> bytes:
        return await soon(self._reader.readexactly(size))

    async def ended(self) -> bytes:
        return await soon(self._reader.read())

    async def hears_nothing(self) -> bool:
        """Whether nothing comes for a moment."""
        try:
            async with asyncio.timeout(MOMENT_SECONDS):
                await self._reader.readexactly(1)
        except TimeoutError:
            return True
        return False

    def close(self) -> None:
        self._writer.close()


class Wire:
    """A server behind a proxy, and connections to it."""

    def __init__(self) -> None:
        self.proxy = Proxy("", 0)
        self.linked: asyncio.Queue[Link] = asyncio.Queue()
        self._arrived: asyncio.Queue[Side] = asyncio.Queue()
        self._sides: list[Side] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._arrived.put_nowait(Side(reader, writer))

    async def connect(self) -> tuple[Side, Side]:
        """Return both ends of a new connection, the client's first."""
        client = Side(*await asyncio.open_connection("127.0.0.1", self.proxy.port))
        relay = await soon(self._arrived.get())
        await soon(self.linked.get())
        self._sides += (client, relay)
        return client, relay

    def close(self) -> None:
        for side in self._sides:
            side.close()


@pytest.fixture
async def wire() -> AsyncGenerator[Wire]:
    wire = Wire()
    server = await asyncio.start_server(wire.accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with Proxy.open(host, port) as wire.proxy:
        wire.proxy.on_accept = wire.linked.put_nowait
        yield wire
        wire.close()
    server.close()


async def test_bytes_and_their_end_pass_both_ways(wire: Wire) -> None:
    client, relay = await wire.connect()
    client.say(b"up" * 100_000)
    relay.say(b"down")
    assert await relay.hear(200_000) == b"up" * 100_000
    assert await client.hear(4) == b"down"
    client.close()
    assert await relay.ended() == b""


async def test_a_cut_closes_both_ends(wire: Wire) -> None:
    client, relay = await wire.connect()
    assert wire.proxy.strike(Trouble.CUT) == 1
    assert (await client.ended(), await relay.ended()) == (b"", b"")
    assert wire.proxy.links == []


async def test_a_reset_says_no_goodbye(wire: Wire) -> None:
    client, relay = await wire.connect()
    wire.proxy.strike(Trouble.RESET)
    for side in (client, relay):
        with pytest.raises(ConnectionResetError):
            await side.ended()


@pytest.mark.parametrize(
    ("trouble", "up", "down"),
    [
        (Trouble.HALF_OPEN, False, False),
        (Trouble.HALF_OPEN_UP, False, True),
        (Trouble.HALF_OPEN_DOWN, True, False),
    ],
)
async def test_nothing_comes_through_a_half_open_connection_until_it_heals(
    wire: Wire, trouble: Trouble, *, up: bool, down: bool
) -> None:
    client, relay = await wire.connect()
    (link,) = wire.proxy.links
    link.strike(trouble)
    client.say(b"u")
    relay.say(b"d")
    for side, passes, said in ((relay, up, b"u"), (client, down, b"d")):
        if passes:
            assert await side.hear(1) == said
        else:
            assert await side.hears_nothing()
    link.heal()
    for side, passed, said in ((relay, up, b"u"), (client, down, b"d")):
        if not passed:
            assert await side.hear(1) == said


async def test_the_end_of_a_half_open_connection_does_not_come_through_either(wire: Wire) -> None:
    client, relay = await wire.connect()
    wire.proxy.strike(Trouble.HALF_OPEN)
    client.close()
    assert await relay.hears_nothing()
    await soon(unused(wire.proxy))
    later, _ = await wire.connect()
    assert await later.hears_nothing()
    assert len(wire.proxy.links) == 1


async def test_a_slow_connection_and_a_far_one_take_their_time(wire: Wire) -> None:
    loop = asyncio.get_running_loop()
    client, relay = await wire.connect()
    (link,) = wire.proxy.links
    link.strike(Trouble.SLOW, bytes_per_second=1_000)
    began = loop.time()
    client.say(b"x" * 200)
    await relay.hear(200)
    assert loop.time() - began >= 0.2
    link.heal()
    link.strike(Trouble.LATENCY, latency_seconds=0.1)
    began = loop.time()
    client.say(b"x")
    await relay.hear(1)
    assert loop.time() - began >= 0.1


async def test_the_same_seed_makes_the_same_things_go_wrong(wire: Wire) -> None:
    troubles = [
        [wire.proxy.strike_at_random(chance) for _ in range(20)]
        for chance in (Random(1), Random(1), Random(2))
    ]
    assert troubles[0] == troubles[1] != troubles[2]


async def test_a_client_finds_nobody_where_nobody_listens(wire: Wire) -> None:
    async with Proxy.open("127.0.0.1", 1) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await soon(reader.read()) == b""
        writer.close()
    assert wire.proxy.accepted == 0
