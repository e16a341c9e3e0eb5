"""Frames that are none of RFC 6455, on a real relay: told why, closed, and nobody else notices."""

import asyncio
import base64
import os
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

if TYPE_CHECKING:
    from conftest import Answers, Served

SECONDS_MAX = 20.0
FIN, CONTINUATION, TEXT, BINARY, CLOSE, PING = 0x80, 0x0, 0x1, 0x2, 0x8, 0x9
KEY = b"\x11\x22\x33\x44"
HELLO = {"id": 0, "op": "hello"}


def frame(first: int, payload: bytes = b"", *, masked: bool = True, length: int = -1) -> bytes:
    """Return a frame with a first byte as given; it may lie about its length."""
    size = len(payload) if length < 0 else length
    mask = 0x80 if masked else 0
    if size < 126:
        head = bytes([first, mask | size])
    elif size < 65_536:
        head = bytes([first, mask | 126]) + struct.pack(">H", size)
    else:
        head = bytes([first, mask | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    return head + KEY + bytes(byte ^ KEY[at % 4] for at, byte in enumerate(payload))


class Case(NamedTuple):
    """Bytes on a channel, and the code that it is closed with."""

    sent: bytes
    code: int


def closing(code: int, reason: bytes = b"") -> bytes:
    return frame(FIN | CLOSE, struct.pack(">H", code) + reason)


CASES = {
    "a reserved bit": Case(frame(FIN | 0x40 | TEXT, b"{}"), 1002),
    "all reserved bits": Case(frame(FIN | 0x70 | TEXT, b"{}"), 1002),
    "an opcode that nobody knows": Case(frame(FIN | 0x3, b"{}"), 1002),
    "a control opcode that nobody knows": Case(frame(FIN | 0xB), 1002),
    "a frame without a mask": Case(frame(FIN | TEXT, b"{}", masked=False), 1002),
    "a ping in pieces": Case(frame(PING, b"a"), 1002),
    "a ping over its bound": Case(frame(FIN | PING, b"a" * 126), 1002),
    "a close of one byte": Case(frame(FIN | CLOSE, b"\x03"), 1002),
    "a close with code 0": Case(closing(0), 1002),
    "a close with code 1005": Case(closing(1005), 1002),
    "a close with code 1006": Case(closing(1006), 1002),
    "a close with code 65535": Case(closing(65_535), 1002),
    "a close whose reason is no UTF-8": Case(closing(1000, b"\xff"), 1007),
    "a text that is no UTF-8": Case(frame(FIN | TEXT, b'{"op":"\xff"}'), 1007),
    "a text that is a surrogate": Case(frame(FIN | TEXT, b"\xed\xa0\x80"), 1007),
    "a text cut off in a character": Case(frame(FIN | TEXT, b"\xe2\x82"), 1007),
    "a continuation of nothing": Case(frame(FIN | CONTINUATION, b"{}"), 1002),
    "a text within a text": Case(frame(TEXT, b"{") + frame(FIN | TEXT, b"}"), 1002),
    "a length over the bound": Case(frame(FIN | TEXT, length=1_310_721), 1009),
    "a length of 63 bits": Case(frame(FIN | TEXT, length=2**63 - 1), 1009),
    "a length of 64 bits": Case(frame(FIN | TEXT, length=2**64 - 1), 1009),
    "pieces without end": Case(
        frame(TEXT, b" " * 65_000) + frame(CONTINUATION, b" " * 65_000) * 30, 1009
    ),
    "no frame at all": Case(b"GET / HTTP/1.1\r\n\r\n", 1002),
}


class Channel:
    """A WebSocket of which every byte is our own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def hear(self) -> tuple[int, bytes]:
        """Return the opcode and payload of the next frame."""
        first, size = await self._reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack(">H", await self._reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", await self._reader.readexactly(8))
        return first & 0x0F, await self._reader.readexactly(size)

    async def closed(self) -> int:
        """Return the code that it is closed with; nothing else may be said before."""
        opcode, payload = await self.hear()
        assert opcode == CLOSE, payload
        return struct.unpack(">H", payload[:2])[0]


@asynccontextmanager
async def channel(served: "Served", answers: "Answers") -> AsyncGenerator[Channel]:
    async with asyncio.timeout(SECONDS_MAX):
        reader, writer = await asyncio.open_connection(*served.address)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET /v1/channel HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\n"
            f"Authorization: Bearer {served.token}\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
            "".encode()
        )
        assert (await answers(reader)).status == 101
        try:
            yield Channel(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def greeted(open_channel: Channel) -> str:
    """Say hello; return who the relay thinks is there."""
    open_channel.say(frame(FIN | TEXT, msgspec.json.encode(HELLO)))
    _, answer = await open_channel.hear()
    return msgspec.json.decode(answer)["ok"]["agent"]


@pytest.mark.parametrize("hello", [True, False], ids=["after hello", "before hello"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_malformed_frame_closes_its_channel_and_no_other(
    served: "Served", answers: "Answers", case: Case, *, hello: bool
) -> None:
    async with channel(served, answers) as other:
        assert await greeted(other) == "me"
        async with channel(served, answers) as broken:
            if hello:
                await greeted(broken)
            broken.say(case.sent)
            assert await broken.closed() == case.code
        offer = b'{"id":1,"op":"offer","to":"b"}'
        other.say(frame(FIN | TEXT, offer))
        _, answer = await other.hear()
        assert msgspec.json.decode(answer)["ok"]["handoff"]["state"] == "offered"
    assert "Traceback" not in served.complaints()


async def test_what_is_odd_but_allowed_is_answered(served: "Served", answers: "Answers") -> None:
    async with channel(served, answers) as odd:
        await greeted(odd)
        odd.say(frame(FIN | BINARY, b'{"id":1,"op":"agents"}'))
        pieces = [b'{"id":', b"2,", b"", b'"op":"agents"}']
        odd.say(frame(TEXT, pieces[0]))
        odd.say(frame(FIN | PING, b"still there?"))  # between the pieces, as it may be
        odd.say(frame(CONTINUATION, pieces[1]) + frame(CONTINUATION, pieces[2]))
        odd.say(frame(FIN | CONTINUATION, pieces[3]))
        heard = [await odd.hear() for _ in range(3)]
    pongs = [payload for opcode, payload in heard if opcode == 0xA]
    ids = {msgspec.json.decode(payload)["id"] for opcode, payload in heard if opcode == TEXT}
    assert (pongs, ids) == ([b"still there?"], {1, 2})


async def test_a_frame_that_is_closed_well_is_not_taken_for_a_malformed_one(
    served: "Served", answers: "Answers"
) -> None:
    async with channel(served, answers) as polite:
        await greeted(polite)
        polite.say(closing(1000, b"bye"))
        assert await polite.closed() == 1000
