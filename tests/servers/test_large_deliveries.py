"""More at once than a connection may hold: it comes by and by, and nobody is cut off for it."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

import nodrop
from nodrop import app
from nodrop.client.auth.credentials import Credentials, CredentialsFile
from nodrop.model.limits import DEFAULT

COUNT = 40
PADDING = "x" * 600_000


@pytest.fixture
async def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[str]:
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    async with app.open_relay(":memory:", home=tmp_path) as relay, app.listening(relay) as url:
        await relay.ensure_token("default", agent="me", role="operator", secret="nd_operator")
        CredentialsFile(tmp_path).write(Credentials(url=url, operator="nd_operator"))
        yield url


async def test_a_worker_with_many_slots_gets_many_large_deliveries(address: str) -> None:
    assert COUNT * len(PADDING) > DEFAULT.outgoing_bytes_max
    agent = nodrop.Agent("code_agent", concurrency=64)
    attempts: list[int] = []

    @agent.handler
    async def measure(task: nodrop.Task) -> int:
        attempts.append(task.attempt)
        return len(task.payload["padding"])

    async with nodrop.connect(address, agent="inbox_monitor") as me, asyncio.timeout(40):
        payload = {"padding": PADDING}
        handed = [await me.hand_off(to="code_agent", payload=payload) for _ in range(COUNT)]
        working = asyncio.create_task(agent.serve(address, heartbeat_seconds=10))
        results = await asyncio.gather(*(handoff.result() for handoff in handed))
        agent.stop()
        await working
    assert results == [len(PADDING)] * COUNT
    assert attempts == [1] * COUNT
