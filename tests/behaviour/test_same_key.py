"""Fifty callers with the same idempotency key at once: one handoff, and the same answer for all.

`NODROP_SAME_KEY_ROUNDS` sets how often that is tried in the relay's own process.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from kit import mutations
from nodrop import app
from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.http import HttpTransport
from nodrop.client.transports.transport import Transport
from nodrop.client.transports.websocket import WebSocketTransport
from nodrop.servers.inprocess import InProcessTransport

CALLERS: Final = 50
ROUNDS: Final = int(os.environ.get("NODROP_SAME_KEY_ROUNDS", "40"))
PATIENCE_SECONDS: Final = 30
TOKEN: Final = "nd_inbox_monitor_secret"


@asynccontextmanager
async def opened(door: str, folder: Path) -> AsyncGenerator[list[Transport]]:
    """Open a relay on a file, and so many ways of the same agent to it."""
    async with AsyncExitStack() as stack:
        relay = await stack.enter_async_context(app.open_relay(folder / "team.db", home=folder))
        await relay.ensure_token("default", agent="inbox_monitor", role="agent", secret=TOKEN)
        url = ""
        if door != "in-process":
            url = await stack.enter_async_context(app.listening(relay))
        callers: list[Transport] = []
        for _ in range(CALLERS):
            caller: Transport
            if door == "in-process":
                caller = InProcessTransport(relay, await relay.authenticate(TOKEN))
            elif door == "http":
                caller = HttpTransport(f"{url}/v1", FixedToken(TOKEN))
            else:
                channel = f"{url.replace('http', 'ws', 1)}/v1/channel"
                caller = WebSocketTransport(
                    channel, FixedToken(TOKEN), first_seconds_max=PATIENCE_SECONDS
                )
            stack.push_async_callback(caller.close)
            callers.append(caller)
        yield callers


async def offer_at_once(callers: list[Transport], key: str) -> None:
    """Let everybody offer the same at once; hold the answers and the books to each other."""
    offer = {
        "to": "code_agent",
        "title": "Login button not working on mobile",
        "payload": {"email_id": key},
        "idempotency_key": key,
    }
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(caller.call("offer", {**offer, "command_id": f"{key}-{number}"}))
            for number, caller in enumerate(callers)
        ]
    answers: list[dict[str, Any]] = [task.result() for task in tasks]
    # Which of them was the first is all that may differ.
    assert sum(not answer.pop("replayed", False) for answer in answers) == 1
    assert len({json.dumps(answer) for answer in answers}) == 1
    handoff_id = answers[0]["handoff"]["id"]
    assert answers[0]["handoff"]["receipts"][-1]["rung"] == "stored"
    page = await callers[0].call("list_handoffs", {"limit": 2})
    [latest, *before] = page["handoffs"]
    assert latest["id"] == handoff_id
    assert all(each["idempotency_key"] != key for each in before)


async def stored(caller: Transport) -> int:
    """Return how many handoffs the log tells of."""
    count = after = 0
    while True:
        page = {"type": "handoff.offered.v1", "after": after, "limit": 500}
        log = await caller.call("log", page)
        if not log["entries"]:
            return count
        count, after = count + len(log["entries"]), log["after"]


@pytest.mark.timeout(max(60, ROUNDS))
async def test_fifty_callers_with_the_same_key_make_one_handoff(tmp_path: Path) -> None:
    async with opened("in-process", tmp_path) as callers:
        for number in range(ROUNDS):
            await offer_at_once(callers, f"msg_{number}")
        assert await stored(callers[0]) == ROUNDS


@pytest.mark.parametrize("door", ["http", "websocket"])
async def test_fifty_connections_with_the_same_key_make_one_handoff(
    door: str, tmp_path: Path
) -> None:
    async with opened(door, tmp_path) as callers:
        for number in range(3):
            await offer_at_once(callers, f"msg_{number}")
        assert await stored(callers[0]) == 3


async def test_a_relay_that_does_not_look_at_keys_is_noticed(tmp_path: Path) -> None:
    async with opened("in-process", tmp_path) as callers:
        with mutations.no_keys(), pytest.raises(AssertionError):
            await offer_at_once(callers, "msg_1")
