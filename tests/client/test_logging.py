"""Log lines of an agent's program: its connection, and each piece of work in two lines."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

import nodrop
from kit.certificate import certificate
from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.connection_log import REMIND_SECONDS, SHORT_SECONDS, shown
from nodrop.client.transports.http import HttpTransport
from nodrop.client.transports.retrying import Retrying
from nodrop.client.transports.websocket import WebSocketTransport
from nodrop.model.errors import NodropError, StaleAttemptError
from nodrop.servers.listener.server import listen

if TYPE_CHECKING:
    from conftest import FakeTransport, Working

WAIT_SECONDS_MAX = 30.0
SECRET = "hunter2"

Lines = list[tuple[str, str]]


def lines(caplog: pytest.LogCaptureFixture, logger: str) -> Lines:
    """The level and the text of what one logger told."""
    return [(r.levelname, r.getMessage()) for r in caplog.records if r.name == logger]


class Clock:
    """Time that passes only by sleeping, up to an end."""

    def __init__(self, end: float = 3_600.0) -> None:
        self.time = 0.0
        self.end = end
        self.ended = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.time > self.end:
            self.ended.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def policy(self) -> Retrying:
        return Retrying(now=lambda: self.time, sleep=self.sleep, random=lambda: 1.0)


def transport(name: str, port: int, policy: Retrying, scheme: str = "http") -> Any:
    """A transport that waits for its relay for as long as it takes, as a worker's does."""
    address = f"{scheme}://127.0.0.1:{port}/v1"
    if name == "http":
        return HttpTransport(address, FixedToken("t"), first_seconds_max=None, policy=policy)
    channel = f"{address.replace('http', 'ws')}/channel"
    return WebSocketTransport(channel, FixedToken("t"), first_seconds_max=None, policy=policy)


@asynccontextmanager
async def trying(reaching: Any) -> AsyncGenerator[None]:
    """Have a transport try to make its first call while the block runs."""
    call = asyncio.create_task(reaching.call("heartbeat", {"process": "p"}))
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            yield
    finally:
        call.cancel()
        await asyncio.wait([call])
        await reaching.close()


# --- the connection ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["websocket", "http"])
async def test_a_relay_that_was_never_reached_is_told_of_within_seconds_and_then_once_a_minute(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    port, clock = unused_port(), Clock(end=3 * REMIND_SECONDS)
    with caplog.at_level(logging.WARNING):
        async with trying(transport(name, port, clock.policy())):
            await clock.ended.wait()
    told = lines(caplog, "nodrop.client")
    assert len(told) == 3
    for level, text in told:
        assert level == "WARNING"
        assert text.startswith(f"cannot connect to http://127.0.0.1:{port}: Connection refused; ")
        assert "trying again in" in text


async def test_a_short_interruption_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(end=SHORT_SECONDS * 0.7)
    with caplog.at_level(logging.INFO):
        async with trying(transport("websocket", unused_port(), clock.policy())):
            await clock.ended.wait()
    assert lines(caplog, "nodrop.client") == []


async def test_a_connection_is_told_of_when_it_stands_when_it_is_lost_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sockets: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()

    async def channel(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.receive()
        await socket.send_str(
            '{"id": 0, "ok": {"team": "default", "agent": "coder", "process": "p"}}'
        )
        sockets.put_nowait(socket)
        async for message in socket:
            await socket.send_json({"id": message.json()["id"], "ok": {"held": []}})
        return socket

    app, port = web.Application(), unused_port()
    app.router.add_get("/v1/channel", channel)
    clock = Clock()
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    with caplog.at_level(logging.INFO):
        reaching = transport("websocket", port, clock.policy())
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            await reaching.open()
            await (await sockets.get()).close(code=1012)
            await sockets.get()
            await reaching.call("heartbeat", {"process": "p"})
            await reaching.close()
            await runner.cleanup()
    address = f"http://127.0.0.1:{port}"
    assert lines(caplog, "nodrop.client") == [
        ("INFO", f"connected to {address} as coder"),
        ("INFO", f"lost the connection to {address} (code 1012); reconnecting now"),
        ("INFO", f"connected to {address} as coder"),
    ]


@pytest.mark.parametrize("name", ["websocket", "http"])
async def test_a_certificate_that_is_not_trusted_is_told_of_at_once_with_what_helps(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def nothing(_scope: Any, _receive: Any, _send: Any) -> None: ...

    clock = Clock(end=SHORT_SECONDS * 0.5)
    tls = certificate(tmp_path)
    async with listen(nothing, host="127.0.0.1", port=0, frame_bytes_max=1_000, tls=tls) as url:
        port = int(url.rpartition(":")[2])
        with caplog.at_level(logging.WARNING):
            async with trying(transport(name, port, clock.policy(), scheme="https")):
                await clock.ended.wait()
    [(level, text)] = lines(caplog, "nodrop.client")
    assert level == "WARNING"
    assert f"https://127.0.0.1:{port}: its certificate is not trusted (self-signed" in text
    assert "--ca FILE or NODROP_CA=FILE" in text


def test_an_address_is_shown_without_its_password() -> None:
    assert shown("wss://ana:hunter2@relay.example:1/x/v1/channel") == "https://relay.example:1/x"


def test_a_program_without_any_logging_shows_that_its_relay_is_not_there(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{unused_port()}"
    program = tmp_path / "agent.py"
    program.write_text(
        "import nodrop\n"
        "agent = nodrop.Agent('coder')\n"
        "@agent.handler\n"
        "async def anything(task: nodrop.Task) -> None: ...\n"
        f"agent.run({address!r})\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "NODROP_HOME": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, program], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        told = process.stderr.readline()  # pytest-timeout bounds it
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS_MAX) == 0
    assert told.startswith(f"cannot connect to {address}: Connection refused; trying again in")


# --- the work ------------------------------------------------------------------------------------


async def completes(word: str) -> str:
    return word


async def gives_up() -> None:
    raise nodrop.Fail("no such branch", code="irreproducible")


async def wants_another_try() -> None:
    raise nodrop.Fail("rate limited", retryable=True)


async def declines() -> None:
    raise nodrop.Reject("not my job")


@pytest.mark.parametrize(
    ("handler", "ending", "operation"),
    [
        (completes, "completed in 2.0 s", "complete"),
        (gives_up, "failed in 2.0 s (irreproducible: no such branch); it stays failed", "fail"),
        (
            wants_another_try,
            "failed in 2.0 s (failed: rate limited); the relay may try it again",
            "fail",
        ),
        (declines, "rejected (not my job)", "reject"),
    ],
)
async def test_each_piece_of_work_is_two_lines_and_its_payload_is_in_neither(
    *,
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    clock: Any,
    caplog: pytest.LogCaptureFixture,
    handler: Callable[..., Any],
    ending: str,
    operation: str,
) -> None:
    relay.answer("register", {"agent": {"agent_id": "code_agent", "version": 3}})

    @agent.capability("triage", concurrency=2)
    async def triage(word: str) -> Any:
        clock.seconds += 2
        return await (handler(word) if handler is completes else handler())

    with caplog.at_level(logging.DEBUG):
        async with working(agent):
            relay.deliver("h1", attempt=4, payload={"word": SECRET})
            await relay.next(operation)
    assert [line for line in lines(caplog, "nodrop.worker") if line[0] == "INFO"] == [
        (
            "INFO",
            "code_agent works for the relay now: manifest version 3, 2 handoffs at a time",
        ),
        ("INFO", "inbox_monitor/h1 started: attempt 4"),
        ("INFO", f"inbox_monitor/h1 {ending}"),
    ]
    assert SECRET not in caplog.text


@pytest.mark.parametrize("refusal", [StaleAttemptError(), None])
async def test_an_ending_is_told_only_where_the_relay_took_it(
    relay: "FakeTransport",
    agent: nodrop.Agent,
    working: "Working",
    caplog: pytest.LogCaptureFixture,
    refusal: NodropError | None,
) -> None:
    if refusal is not None:
        relay.refuse("complete", refusal)

    @agent.handler
    async def anything(task: nodrop.Task) -> None: ...

    with caplog.at_level(logging.INFO):
        async with working(agent):
            relay.deliver(capability=None)
            await relay.next("complete")
    told = [text for _, text in lines(caplog, "nodrop.worker")][-1]
    assert ("completed" in told, "came too late" in told) == (refusal is None, refusal is not None)
