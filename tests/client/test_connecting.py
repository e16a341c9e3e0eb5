"""From an address to a relay: tokens, files, restarts, signals."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port

import nodrop
from nodrop import app
from nodrop.client.auth.credentials import Credentials, CredentialsFile
from nodrop.client.transports import websocket
from nodrop.client.transports.connecting import TransportName

WAIT = "20s"
WAIT_SECONDS_MAX = 20.0


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


Up = Callable[..., AbstractAsyncContextManager[app.Served]]


@pytest.fixture
def up(home: Path) -> Up:
    """`nodrop up` while the block runs."""

    @asynccontextmanager
    async def up(port: int = 0, home: Path = home) -> AsyncGenerator[app.Served]:
        ready: asyncio.Future[app.Served] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()
        serving = asyncio.create_task(app.serve(home, port=port, ready=ready.set_result, stop=stop))
        await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
        try:
            yield ready.result()
        finally:
            stop.set()
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await serving

    return up


async def test_an_agent_of_this_user_needs_no_token(up: Up, home: Path) -> None:
    async with up():
        async with nodrop.connect(agent="inbox_monitor") as me:
            assert me.agent == "inbox_monitor"
            handoff = await me.hand_off("code_agent")
            assert handoff.sender == "inbox_monitor"
        token = CredentialsFile(home).read().agents["inbox_monitor"]
        # The next one uses the same, and a token is enough to be somebody.
        async with nodrop.connect(agent="inbox_monitor"):
            assert CredentialsFile(home).read().agents == {"inbox_monitor": token}
        async with nodrop.connect(token=token) as me:
            assert me.agent == "inbox_monitor"


async def test_who_is_nobody_in_particular_is_the_person(up: Up) -> None:
    async with up(), nodrop.connect() as me:
        assert me.agent == "me"


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_token_that_the_relay_forgot_is_minted_anew(
    up: Up, home: Path, transport: TransportName
) -> None:
    async with up():
        file = CredentialsFile(home)
        file.save_agent("inbox_monitor", "nd_of-another-life")
        async with nodrop.connect(agent="inbox_monitor", transport=transport) as me:
            await me.hand_off("code_agent")
        assert file.read().agents["inbox_monitor"] != "nd_of-another-life"


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_credentials_are_not_shown_to_another_relay(
    up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transport: TransportName
) -> None:
    async with up() as served:
        elsewhere = tmp_path / "elsewhere"
        monkeypatch.setenv("NODROP_HOME", str(elsewhere))
        CredentialsFile(elsewhere).write(
            Credentials(url=f"http://127.0.0.1:{unused_port()}", operator="nd_secret")
        )
        with pytest.raises(nodrop.UnauthenticatedError):
            async with nodrop.connect(served.url, agent="a", transport=transport) as me:
                await me.agents()


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_a_token_that_is_not_valid_is_refused(up: Up, transport: TransportName) -> None:
    async with up():
        with pytest.raises(nodrop.UnauthenticatedError):
            async with nodrop.connect(token="nd_guessed", transport=transport) as me:
                await me.agents()


async def test_a_token_and_another_name_do_not_go_together(up: Up, home: Path) -> None:
    async with up():
        async with nodrop.connect(agent="inbox_monitor"):
            token = CredentialsFile(home).read().agents["inbox_monitor"]
        with pytest.raises(nodrop.UnauthenticatedError, match="inbox_monitor's, not code_agent's"):
            async with nodrop.connect(agent="code_agent", token=token):
                pass


async def test_no_relay_is_told_and_not_waited_for(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "FIRST_SECONDS_MAX", 0.1)
    address = f"http://127.0.0.1:{unused_port()}"
    CredentialsFile(home).write(Credentials(url=address, operator="nd_operator"))
    with pytest.raises(nodrop.UnreachableError):
        async with nodrop.connect(address, agent="inbox_monitor"):
            pass


async def test_a_database_is_opened_in_this_process(home: Path) -> None:
    database = home / "team.db"
    async with nodrop.connect(database, agent="inbox_monitor") as me:
        handoff = await me.hand_off("code_agent", title="Keep me")
    async with nodrop.connect(str(database), agent="inbox_monitor") as me:
        assert (await me.handoff(handoff.id)).title == "Keep me"


async def test_a_database_that_is_served_is_reached_at_its_relay(up: Up) -> None:
    async with up() as served:
        async with nodrop.connect(served.database, agent="inbox_monitor") as me:
            handoff = await me.hand_off("code_agent")
        async with nodrop.connect(served.url) as me:
            assert (await me.handoff(handoff.id)).sender == "inbox_monitor"


def test_a_program_without_an_event_loop_hands_off(home: Path) -> None:
    with nodrop.connect_sync(home / "team.db", agent="inbox_monitor") as me:
        assert me.agent == "inbox_monitor"
        handoff = me.hand_off("code_agent", payload={"n": 1})
        assert handoff.receipts[0].rung == "stored"
        with pytest.raises(nodrop.WaitElapsed) as elapsed:
            handoff.result(wait="10ms")
        assert elapsed.value.rung == "stored"
        assert handoff.cancel("never mind").state == "cancelled"


async def test_a_restart_of_the_relay_loses_nothing(up: Up) -> None:
    agent = nodrop.Agent("code_agent")
    started, go_on = asyncio.Event(), asyncio.Event()

    @agent.handler
    async def work(task: nodrop.Task) -> int:
        started.set()
        await go_on.wait()
        await task.update("still here")
        return task.attempt

    port = unused_port()
    async with (
        asyncio.timeout(WAIT_SECONDS_MAX),
        asyncio.TaskGroup() as group,
        AsyncExitStack() as stack,
    ):
        async with up(port) as served:
            serving = group.create_task(agent.serve(served.url, heartbeat_seconds=5))
            me = await stack.enter_async_context(nodrop.connect(served.url, agent="inbox_monitor"))
            handoff = await me.hand_off("code_agent")
            result = group.create_task(handoff.result(wait=WAIT))
            await started.wait()
        # Nobody is there. The handler goes on, and what it says waits.
        go_on.set()
        later = group.create_task(me.hand_off("code_agent", title="Meanwhile"))
        async with up(port):
            assert await result == 1
            assert await (await later).result(wait=WAIT) == 1
            agent.stop()
            await serving
            await stack.aclose()


WORKER = """
import asyncio, sys
import nodrop

agent = nodrop.Agent("code_agent")

@agent.handler
async def work():
    loop = asyncio.get_running_loop()
    line = loop.create_future()
    loop.add_reader(0, lambda: line.done() or line.set_result(sys.stdin.readline()))
    print("started", flush=True)
    return await line

agent.run(grace=sys.argv[1])
print("stopped", flush=True)
"""


class Process:
    """A worker in a process of its own, which works until it reads a line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, grace: str) -> "Process":
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", WORKER, grace, stdin=pipe, stdout=pipe
            )
        )

    async def line(self) -> str:
        assert self._process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return (await self._process.stdout.readline()).decode().strip()

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"done\n")

    def signal(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self._process.send_signal(number)

    async def ended(self) -> int:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return await self._process.wait()

    async def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


async def test_a_signal_lets_handlers_finish(up: Up) -> None:
    async with up(), nodrop.connect(agent="inbox_monitor") as me:
        handoff = await me.hand_off("code_agent")
        worker = await Process.start("1h")
        try:
            assert await worker.line() == "started"
            worker.signal(signal.SIGTERM)
            worker.go_on()
            assert await handoff.result(wait=WAIT) == "done\n"
            assert await worker.line() == "stopped"
            assert await worker.ended() == 0
        finally:
            await worker.kill()


async def test_what_does_not_finish_in_time_is_given_back(up: Up) -> None:
    async with up(), nodrop.connect(agent="inbox_monitor") as me:
        handoff = await me.hand_off("code_agent")
        worker = await Process.start("0s")
        try:
            assert await worker.line() == "started"
            worker.signal(signal.SIGTERM)
            assert await worker.line() == "stopped"
            assert (await handoff.refresh()).state == "offered"
        finally:
            await worker.kill()


async def test_a_second_signal_does_not_wait(up: Up) -> None:
    async with up(), nodrop.connect(agent="inbox_monitor") as me:
        await me.hand_off("code_agent")
        worker = await Process.start("1h")
        try:
            assert await worker.line() == "started"
            worker.signal(signal.SIGINT, signal.SIGTERM)
            assert await worker.ended() in {-signal.SIGINT, -signal.SIGTERM}
        finally:
            await worker.kill()
