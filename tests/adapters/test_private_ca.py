"""A relay whose certificate only a CA of one's own signed: every way in which adapters connect to it.

Inside of a handoff everything goes over the worker's connection, and `openclaw` takes a client; both are the
SDK's own.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from a2a.server.agent_execution import RequestContext
from a2a.server.context import ServerCallContext
from a2a.types import Message, Part, Role, SendMessageRequest

import nodrop
from kit.certificate import certificate
from nodrop import app
from nodrop.adapters import a2a
from nodrop.adapters.port.events import Done, Resume, Run, Work
from nodrop.adapters.port.handing import Answer, HandOff
from nodrop.adapters.port.serving import agent_of

PATIENCE_SECONDS = 30
NOWHERE = "http://127.0.0.1:9/"


class House:
    """Where the relay is, and who signed its certificate."""

    def __init__(self, url: str, ca: Path) -> None:
        self.url = url
        self.ca = ca

    @asynccontextmanager
    async def connected(self, agent: str) -> AsyncGenerator[nodrop.Client]:
        async with nodrop.connect(self.url, agent=agent, token=f"nd_{agent}", ca=self.ca) as client:
            yield client


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[House]:
    """A relay with TLS, and callers that share no home with it: they would trust it for that."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NODROP_HOME", str(tmp_path / "callers"))
    tls = certificate(tmp_path)
    async with (
        app.open_relay(":memory:", home=tmp_path) as relay,
        app.listening(relay, a2a=app.A2A(home=tmp_path), tls=tls) as url,
    ):
        for name in ("boss", "actor"):
            await relay.ensure_token("default", agent=name, role="agent", secret=f"nd_{name}")
        yield House(url, tls.certificate)


class Counting:
    """A driver that answers at once."""

    async def drive(self, work: Work, resume: Resume | None) -> Run:
        assert resume is None, "nothing is ever parked"
        yield Done(output={"did": work.prompt})


async def with_a_client(house: House) -> Answer:
    async with house.connected("boss") as client:
        return await HandOff("actor", {"client": client})("count")


async def over_a2a(house: House) -> object:
    message = Message(message_id="m1", role=Role.ROLE_USER, parts=[Part(text="count")])
    request = RequestContext(
        ServerCallContext(),
        SendMessageRequest(message=message),
        task_id="run-1",
        context_id="talk-1",
    )
    hand_off = a2a.hand_off("actor", address=house.url, token="nd_boss", ca=house.ca)
    return await hand_off(request)


@pytest.mark.parametrize("hands", [with_a_client, over_a2a])
async def test_work_is_handed_on(house: House, hands: Callable[[House], Awaitable[object]]) -> None:
    agent = agent_of(Counting(), "actor", "script", {})
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(agent.serve(house.url, token="nd_actor", ca=house.ca, grace=0))
        answer = await hands(house)
        agent.stop()
    assert isinstance(answer, Answer)
    assert answer.result == {"did": "count"}


async def test_an_adapter_serves(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODROP_TOKEN", "nd_actor")
    target = a2a.endpoint(NOWHERE)
    async with asyncio.timeout(PATIENCE_SECONDS), house.connected("boss") as me:
        serving = asyncio.create_task(
            a2a.serve(target, agent="actor", address=house.url, ca=house.ca)
        )
        try:
            handoff = await me.hand_off("actor", payload={"task": "count"})
            await handoff.acknowledged(wait="20s")  # by nobody else
        finally:
            serving.cancel()
