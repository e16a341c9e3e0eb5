"""The corpus of bad input, and a relay that it is given to."""

import asyncio
import subprocess
import sys
import tomllib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

from nodrop import app
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.protocol import requests
from nodrop.protocol.views import LogAnswer
from nodrop.relay.relay import Caller, Relay
from nodrop_proof.chaos.relay_process import environment

HERE = Path(__file__).parent
SECONDS_MAX = 20.0
ME = Caller(team="default", agent="me", operator=True)
TOKEN = "nd_poisoner"
CORPORA = ("corpus.toml", "corpus_requests.toml")

Piece = str | dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """One entry of the corpus."""

    name: str
    request: bytes
    body: bytes
    status: int
    code: str | None
    framed: bool
    exit: int | None

    @property
    def accepted(self) -> bool:
        return self.status < 400


def read(entry: dict[str, Any]) -> Poison:
    body = joined(entry["text"], "utf-8") if "text" in entry else joined(entry.get("body", ""))
    if "raw" in entry:
        request = joined(entry["raw"])
    else:
        target = joined(entry.get("target", "/v1/handoffs"))
        headers = {
            "host": "HOST",
            "authorization": "Bearer TOKEN",
            "content-length": str(len(body)),
            **entry.get("headers", {}),
        }
        lines = [name.encode() + b": " + joined(value) for name, value in headers.items()]
        first = entry.get("method", "POST").encode() + b" " + target + b" HTTP/1.1"
        request = b"\r\n".join([first, *lines, b"", b""]) + body
    plain = entry.keys().isdisjoint({"raw", "target", "headers", "method"})
    return Poison(
        name=entry["name"],
        request=request,
        body=body,
        status=entry["status"],
        code=entry.get("code"),
        framed=plain and entry.get("frame", True),
        exit=entry.get("exit"),
    )


def joined(pieces: str | list[Piece], encoding: str = "latin-1") -> bytes:
    """Return the bytes that an entry spells."""
    spelled = [pieces] if isinstance(pieces, str) else pieces
    return b"".join(
        piece.encode(encoding)
        if isinstance(piece, str)
        else piece["of"].encode(encoding) * piece["times"]
        for piece in spelled
    )


CORPUS = [
    read(entry)
    for name in CORPORA
    for entry in tomllib.loads((HERE / name).read_text(encoding="utf-8"))["poison"]
]
FIT = {
    "poison": CORPUS,
    "framed": [poison for poison in CORPUS if poison.framed],
    "filed": [poison for poison in CORPUS if poison.exit is not None],
}
"""Which poisons a test takes, by the name of its argument."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for argument, chosen in FIT.items():
        if argument in metafunc.fixturenames:
            metafunc.parametrize(argument, chosen, ids=[poison.name for poison in chosen])


@pytest.fixture(scope="session")
def corpus() -> list[Poison]:
    return CORPUS


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back over HTTP."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Victim:
    """A relay behind its doors, and what is looked at afterwards."""

    def __init__(self, relay: Relay, url: str) -> None:
        self.relay = relay
        self.url = url
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        self.host, self.port = address.hostname, address.port

    async def ask(self, request: bytes) -> Answer:
        """Return the first answer to bytes on a connection of their own."""
        address = f"{self.host}:{self.port}".encode()
        sent = request.replace(b"HOST", address, 1).replace(b"TOKEN", TOKEN.encode(), 1)
        async with asyncio.timeout(SECONDS_MAX):
            reader, writer = await asyncio.open_connection(self.host, self.port)
            try:
                writer.write(sent)
                return await answer_from(reader)
            finally:
                writer.close()

    async def frame(self, data: bytes) -> Any:
        """Return the answer to the first frame after a hello."""
        async with self.channel() as channel:
            await channel.send_bytes(data)
            return await channel.receive_json()

    @asynccontextmanager
    async def channel(self) -> AsyncGenerator[aiohttp.ClientWebSocketResponse]:
        async with (
            asyncio.timeout(SECONDS_MAX),
            aiohttp.ClientSession(self.url) as session,
            session.ws_connect("/v1/channel", max_msg_size=0) as channel,
        ):
            await channel.send_json({"id": 0, "op": "hello", "token": TOKEN})
            assert (await channel.receive_json())["ok"]["agent"] == "poisoner"
            yield channel

    async def head(self) -> int:
        """Return how long the log is."""
        answer = (await self.relay.call(ME, "log", requests.GetLog(limit=500))).answer
        assert isinstance(answer, LogAnswer)
        return answer.after

    async def check_serves(self) -> None:
        """Have it carry out something ordinary."""
        offer = b'{"to":"code_agent","title":"Login button"}'
        ordinary = read({"name": "", "body": offer.decode(), "status": 201})
        assert (await self.ask(ordinary.request)).status == 201


async def answer_from(reader: asyncio.StreamReader) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Answer(status=int(first.split()[1]), headers=headers, body=body)


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncGenerator[Victim]:
    async with app.open_relay(":memory:", home=tmp_path) as relay, app.listening(relay) as url:
        await relay.ensure_token("default", agent="poisoner", role="agent", secret=TOKEN)
        yield Victim(relay, url)


# --- a relay in a process of its own -------------------------------------------------------------

RELAY = ("-m", "nodrop.cli", "up", "--json", "--port", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A server that runs."""

    pid: int
    url: str
    home: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        assert parts.port is not None
        return parts.hostname, parts.port

    @property
    def token(self) -> str:
        """The operator's; a server that has none takes any."""
        return CredentialsFile(self.home).read().operator or "any"

    def complaints(self) -> str:
        return (self.home / "complaints").read_text(encoding="utf-8", errors="replace")


@contextmanager
def serving(home: Path, command: tuple[str, ...] = RELAY) -> Generator[Served]:
    """Run a server that prints where it is."""
    with (
        (home / "complaints").open("wb") as complaints,
        subprocess.Popen(
            [sys.executable, *command],
            env=environment(home),
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            url = msgspec.json.decode(process.stdout.readline())["url"]
            yield Served(pid=process.pid, url=url, home=home)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_MAX)
            process.kill()


Serve = Callable[[tuple[str, ...]], Served]


@pytest.fixture
def serve(tmp_path: Path) -> Generator[Serve]:
    """Run servers until the end of the test."""
    with ExitStack() as stack:
        yield lambda command: stack.enter_context(serving(tmp_path, command))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A relay that all tests of a module share."""
    with serving(tmp_path_factory.mktemp("home")) as relay:
        yield relay


Answers = Callable[[asyncio.StreamReader], Awaitable[Answer]]


@pytest.fixture
def answers() -> Answers:
    """Read one answer over HTTP."""
    return answer_from
