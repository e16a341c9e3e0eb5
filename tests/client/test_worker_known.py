"""A worker whose relay came back knowing less than before publishes its manifest again."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import nodrop
from nodrop import app
from nodrop.client.transports.connecting import TransportName
from nodrop.model.errors import ForbiddenError, NotFoundError, StoreUnavailableError

if TYPE_CHECKING:
    from conftest import FakeTransport, Ticks, Working

SECONDS_MAX = 20


@pytest.fixture
def agent() -> nodrop.Agent:
    agent = nodrop.Agent("code_agent")

    @agent.capability("triage")
    async def triage() -> None: ...

    return agent


def shown(version: int) -> dict[str, Any]:
    return {"agent": {"agent_id": "code_agent", "version": version}}


async def looked(relay: "FakeTransport", ticks: "Ticks") -> list[str]:
    """Let heartbeats pass, each once the one before is done; return what was asked for."""
    for _ in range(3):
        await ticks.tick()
    return relay.said("heartbeat", "release")


async def test_while_nothing_breaks_nothing_is_asked(
    relay: "FakeTransport", ticks: "Ticks", agent: nodrop.Agent, working: "Working"
) -> None:
    async with working(agent):
        assert await looked(relay, ticks) == ["register"]


async def test_a_relay_that_is_empty_is_told_again(
    relay: "FakeTransport", ticks: "Ticks", agent: nodrop.Agent, working: "Working"
) -> None:
    relay.answer("register", shown(3), shown(1))
    relay.refuse("get_agent", NotFoundError())
    async with working(agent):
        relay.stream.breaks += 1
        assert await looked(relay, ticks) == ["register", "get_agent", "register"]
    first, *_, again = [fields for name, fields, _ in relay.calls if name == "register"]
    assert first["manifest"] == again["manifest"]
    assert first["command_id"] != again["command_id"]


@pytest.mark.parametrize(
    ("version", "told"), [(1, ["register"]), (2, []), (3, [])], ids=["older", "ours", "newer"]
)
async def test_only_an_older_manifest_is_replaced(
    *,
    relay: "FakeTransport",
    ticks: "Ticks",
    agent: nodrop.Agent,
    working: "Working",
    version: int,
    told: list[str],
) -> None:
    relay.answer("register", shown(2), shown(2))
    relay.answer("get_agent", shown(version))
    async with working(agent):
        relay.stream.breaks += 1
        assert await looked(relay, ticks) == ["register", "get_agent", *told]


async def test_a_relay_that_cannot_say_is_asked_again_and_a_refusal_ends_nothing(
    relay: "FakeTransport", ticks: "Ticks", agent: nodrop.Agent, working: "Working"
) -> None:
    relay.answer("register", shown(1))
    relay.refuse("get_agent", StoreUnavailableError(), NotFoundError())
    relay.refuse("register")
    async with working(agent):
        relay.stream.breaks += 1
        await relay.next("register")
        await ticks.tick()
        await relay.next("get_agent")
        relay.refuse("register", ForbiddenError())
        assert await looked(relay, ticks) == ["register", "get_agent", "get_agent", "register"]
        relay.deliver()
        await relay.next("complete")


@pytest.mark.parametrize("transport", ["websocket", "http"])
async def test_after_the_volume_was_lost_the_agent_is_found_again(
    agent: nodrop.Agent, tmp_path: Path, transport: TransportName
) -> None:
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        async with empty_relay(tmp_path) as url:
            serving = agent.serve(
                url, token="nd_code_agent", transport=transport, heartbeat_seconds=0.1
            )
            group.create_task(serving)
            await found(url)
        async with empty_relay(tmp_path, port=int(url.rpartition(":")[2])):
            await found(url)
            agent.stop()


@asynccontextmanager
async def empty_relay(home: Path, port: int = 0) -> AsyncGenerator[str]:
    async with app.open_relay(app.MEMORY, home=home) as relay:
        for name in ("me", "code_agent"):
            await relay.ensure_token("default", agent=name, role="agent", secret=f"nd_{name}")
        async with app.listening(relay, port=port) as url:
            yield url


async def found(url: str) -> None:
    """Return when the agent can be found."""
    async with nodrop.connect(url, token="nd_me") as me:
        while not await me.find("triage"):
            await me.log(after=(await me.log())[-1].seq, wait="100ms")
