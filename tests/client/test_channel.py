"""When the frames of a connection leave: together, at once, or once the socket takes more."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from nodrop.client.transports.channel import Channel, Message


class Socket:
    """A socket that takes frames as far as the test lets it, and gives what the test puts in."""

    close_code = 1000

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.takes: asyncio.Event = asyncio.Event()
        self.takes.set()
        self.fails: Exception | None = None
        self.said: asyncio.Queue[Any] = asyncio.Queue()

    async def send_frame(self, frame: bytes, _: aiohttp.WSMsgType) -> None:
        if self.fails is not None:
            raise self.fails
        self.sent.append(frame)
        if not self.takes.is_set():
            await asyncio.shield(asyncio.ensure_future(self.takes.wait()))

    async def receive(self) -> Any:
        return await self.said.get()

    def say(self, *ids: int) -> None:
        messages: list[dict[str, Any]] = [{"id": number, "ok": {}} for number in ids]
        said = messages[0] if len(messages) == 1 else messages
        data = msgspec.json.encode(said).decode()
        self.said.put_nowait(SimpleNamespace(type=aiohttp.WSMsgType.TEXT, data=data))


@pytest.fixture
async def socket() -> Socket:
    return Socket()


@pytest.fixture
async def channel(socket: Socket) -> Channel:
    hello = {"agent": "a", "process": "p"}
    return Channel(cast("aiohttp.ClientWebSocketResponse", socket), hello)


async def turns(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def test_what_is_sent_in_one_turn_leaves_as_one_array(
    socket: Socket, channel: Channel
) -> None:
    channel.send(b"1")
    channel.grant(2)
    channel.add(b"2")
    channel.grant(3)
    assert socket.sent == []
    await turns()
    assert socket.sent == [b'[1,2,{"op":"credit","n":5}]']


async def test_what_follows_from_a_lone_message_leaves_at_once(
    socket: Socket, channel: Channel
) -> None:
    taken: list[int | None] = []

    def take(message: Message) -> None:
        taken.append(message.id)
        channel.send(b"%d" % (message.id or 0))
        assert len(socket.sent) < len(taken)

    reading = asyncio.create_task(channel.read(take))
    socket.say(7)
    await turns(1)
    assert taken == [7]
    assert socket.sent == [b"7"], "as soon as the message was taken"
    channel.add(b"8")
    channel.grant(1)
    assert socket.sent == [b"7"], "nobody waits for these"
    channel.send(b"9")
    assert socket.sent == [b"7", b'[8,9,{"op":"credit","n":1}]']
    channel.send(b"10")
    channel.send(b"11")
    assert len(socket.sent) == 2, "these were not the first"
    await turns()
    assert socket.sent[2:] == [b"[10,11]"]
    reading.cancel()


async def test_what_follows_from_an_array_leaves_as_one(socket: Socket, channel: Channel) -> None:
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(message: Message) -> None:
        channel.send(b"%d" % (message.id or 0))
        if not woken.done():
            woken.set_result(None)

    async def follow() -> None:
        await woken
        channel.send(b"3")

    following = asyncio.create_task(follow())
    reading = asyncio.create_task(channel.read(take))
    socket.say(1, 2)
    await turns()
    assert socket.sent == [b"[1,2,3]"]
    await following
    reading.cancel()


async def test_a_full_socket_holds_up_nobody_and_what_follows_keeps_its_order(
    socket: Socket, channel: Channel
) -> None:
    socket.takes.clear()
    channel.send(b"1")
    await turns()
    for number in range(2, 5):
        channel.send(b"%d" % number)
        await turns()
    assert socket.sent == [b"1"]
    socket.takes.set()
    await turns(10)
    assert socket.sent == [b"1", b"[2,3,4]"]
    channel.send(b"5")
    await turns()
    assert socket.sent[2:] == [b"5"]


@pytest.mark.parametrize("full", [False, True])
async def test_a_socket_that_is_lost_raises_nothing(
    socket: Socket, channel: Channel, *, full: bool
) -> None:
    if full:
        socket.takes.clear()
        channel.send(b"1")
        await turns()
    socket.fails = aiohttp.ClientConnectionResetError("gone")
    socket.takes.set()
    channel.send(b"2")
    await turns(10)
    channel.send(b"3")
    await turns(10)
    assert socket.sent == ([b"1"] if full else [])
