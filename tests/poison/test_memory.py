"""Bodies that are too large, or never end, are refused before they are in memory."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kit import buffering

if TYPE_CHECKING:
    from conftest import Answers, Serve, Served

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

SECONDS_MAX = 60.0
MB = 1_000_000
LARGE = 50 * MB
AT_ONCE = 2
RELAY = ("-m", "nodrop.cli", "up", "--json", "--port", "0")
BUFFERING = (buffering.__file__,)


def declared() -> Iterator[bytes]:
    """A body that says how large it is."""
    yield b"content-length: %d\r\n\r\n" % LARGE
    for _ in range(LARGE // MB):
        yield b" " * MB


def endless() -> Iterator[bytes]:
    """A body in chunks. Without end for who refuses it; whoever does not must be found out."""
    yield b"transfer-encoding: chunked\r\n\r\n"
    for _ in range(LARGE // 65_536):
        yield b"10000\r\n" + b" " * 65_536 + b"\r\n"
    yield b"0\r\n\r\n"


async def sent(answers: "Answers", server: "Served", pieces: Iterator[bytes]) -> int:
    """Send a body until there is an answer; return its status."""
    async with asyncio.timeout(SECONDS_MAX):
        reader, writer = await asyncio.open_connection(*server.address)
        answer = asyncio.ensure_future(answers(reader))
        try:
            writer.write(b"POST /v1/handoffs HTTP/1.1\r\nhost: 127.0.0.1\r\n")
            writer.write(f"authorization: Bearer {server.token}\r\n".encode())
            with suppress(ConnectionError):
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                    if answer.done():
                        break
            return (await answer).status
        finally:
            answer.cancel()
            writer.close()


def memory(server: "Served", field: str) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith(f"{field}:"))


async def grown(answers: "Answers", server: "Served") -> int:
    """Return by how many bytes a server grew, at its largest, while it refused large bodies."""
    before = memory(server, "VmRSS")
    for body in (declared, endless):
        statuses = await asyncio.gather(*(sent(answers, server, body()) for _ in range(AT_ONCE)))
        assert statuses == [413] * AT_ONCE
    return memory(server, "VmHWM") - before


async def test_large_and_endless_bodies_are_refused_before_they_are_read(
    answers: "Answers", serve: "Serve"
) -> None:
    assert await grown(answers, serve(RELAY)) < 50 * MB


async def test_a_door_that_reads_first_is_found_out(answers: "Answers", serve: "Serve") -> None:
    assert await grown(answers, serve(BUFFERING)) > 50 * MB
