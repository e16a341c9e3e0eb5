"""A relay whose clock the test moves, and agents that talk to it through MCP."""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from nodrop import app
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.servers.mcp import toolset
from nodrop.servers.mcp.server import Context, server
from nodrop.servers.mcp.toolset import Answer, Toolset
from nodrop.servers.mcp.way import ShortMemory
from nodrop.testing.clock import FakeClock

DOORS: Final = ("2026-07-28", "handshake", "http")
"""The stateless protocol and the older one on streams, and streamable HTTP."""
PATIENCE_SECONDS: Final = 30


class Agent:
    """A coding agent: the text that a tool answers, and whether it was refused."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self.client = client

    async def __call__(self, tool: str, /, **arguments: Any) -> str:
        text, refused = await self.tried(tool, **arguments)
        assert not refused, text
        return text

    async def refused(self, tool: str, /, **arguments: Any) -> str:
        """Return the words of a refusal."""
        text, refused = await self.tried(tool, **arguments)
        assert refused, text
        return text

    async def tried(self, tool: str, /, **arguments: Any) -> tuple[str, bool]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        assert content.type == "text"
        return content.text, result.is_error


class Office:
    """A relay and a way in for every agent."""

    def __init__(self, door: str, folder: Path) -> None:
        self.clock = FakeClock()
        self._door = door
        self._folder = folder
        self._stack = AsyncExitStack()
        self._agents: dict[str, Agent] = {}
        self._relay: Relay | None = None
        self.url = ""

    @property
    def relay(self) -> Relay:
        assert self._relay is not None, "the relay is down"
        return self._relay

    async def open(self) -> None:
        self._relay = await self._stack.enter_async_context(
            app.open_relay(self._folder / "team.db", home=self._folder, clock=self.clock)
        )
        if self._door == "http":
            self.url = await self._stack.enter_async_context(app.listening(self._relay))

    async def close(self) -> None:
        self._agents.clear()
        self._relay = None
        await self._stack.aclose()

    async def restart(self, *, down_ms: int = 0) -> None:
        await self.close()
        self.clock.advance(down_ms)
        await self.open()

    async def token(self, name: str) -> str:
        secret = f"nd_{name}"
        role = "operator" if name == "me" else "agent"
        await self.relay.ensure_token("default", agent=name, role=role, secret=secret)
        return secret

    async def join(self, name: str) -> Agent:
        """Return `name` with its tools."""
        if name not in self._agents:
            self._agents[name] = await self.session(name)
        return self._agents[name]

    async def session(self, name: str) -> Agent:
        """Return `name` in a session of its own."""
        client = await self._client(await self.token(name))
        return Agent(name, await self._stack.enter_async_context(client))

    async def _client(self, token: str) -> Client:
        if self._door == "http":
            headers = {"Authorization": f"Bearer {token}"}
            http = await self._stack.enter_async_context(create_mcp_http_client(headers=headers))
            return Client(streamable_http_client(f"{self.url}/mcp", http_client=http))
        tools = Toolset(await self.way(token), ShortMemory())

        async def use(_: Context, name: str, arguments: Mapping[str, Any]) -> Answer:
            return await tools.call(name, arguments)

        return Client(server(use), mode="legacy" if self._door == "handshake" else "auto")

    async def way(self, token: str) -> InProcessTransport:
        return InProcessTransport(self.relay, await self.relay.authenticate(token))

    async def handoff(self, told: str) -> dict[str, Any]:
        """Return the handoff that an answer is about, as an operator sees it."""
        me = await self.way(await self.token("me"))
        return (await me.call("get_handoff", {}, handoff=named(told)))["handoff"]

    async def entries(self) -> list[str]:
        """Return the types of everything in the log."""
        me = await self.way(await self.token("me"))
        return [entry["type"] for entry in (await me.call("log", {"limit": 500}))["entries"]]


def named(told: str) -> str:
    """Return the id of the handoff that an answer names first."""
    found = re.search(r"handoff ([0-9a-f-]{36})", told)
    assert found, told
    return found[1]


@pytest.fixture
def patient_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have tools wait for a relay that is there, however long this process is kept from running."""
    monkeypatch.setattr(toolset, "HAND_OFF_SECONDS_MAX", PATIENCE_SECONDS)


@pytest.fixture(params=DOORS)
async def office(
    request: pytest.FixtureRequest, tmp_path: Path, patient_tools: None
) -> AsyncGenerator[Office]:
    del patient_tools  # from before it opens
    office = Office(request.param, tmp_path)
    await office.open()
    yield office
    await office.close()


@pytest.fixture
async def quiet_office(tmp_path: Path, patient_tools: None) -> AsyncGenerator[Office]:
    """An office with one door, for what is the same at each."""
    del patient_tools  # from before it opens
    office = Office("2026-07-28", tmp_path)
    await office.open()
    yield office
    await office.close()


@pytest.fixture
async def planner(office: Office) -> Agent:
    return await office.join("planner")


@pytest.fixture
async def coder(office: Office) -> Agent:
    return await office.join("coder")
