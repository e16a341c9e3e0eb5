"""Clients that come back while the relay still believes in their earlier connections."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kit.asgi import Channel, Visitor
from nodrop.model.errors import StoreUnavailableError
from nodrop.relay.relay import Subscription

OFFER = {"to": "code_agent", "title": "Login button"}
PROCESS = {"resume": "p1", "heartbeat_seconds": 10}


@asynccontextmanager
async def greeted(visitor: Visitor) -> AsyncGenerator[Channel]:
    async with visitor.channel() as channel:
        channel.tell({"id": 0, "op": "hello"} | PROCESS)
        assert "ok" in await channel.frame()
        yield channel


async def delivered(channel: Channel) -> str:
    """Return the next handoff that a channel delivers."""
    while True:
        frame: dict[str, Any] = await channel.frame()
        if frame.get("push") == "delivery":
            return frame["delivery"]["handoff"]["title"]


async def test_a_process_that_comes_back_hears_everything_on_its_new_channel(
    requester: Visitor, worker: Visitor
) -> None:
    async with greeted(worker) as forgotten, greeted(worker) as theirs:
        for channel in (forgotten, theirs):
            channel.tell({"id": 1, "op": "credit", "n": 8})
            assert await channel.frame() == {"id": 1, "ok": {}}
        titles = [f"bug {number}" for number in range(4)]
        for title in titles:
            await requester.request("POST", "/v1/handoffs", json=OFFER | {"title": title})
        assert [await delivered(theirs) for _ in titles] == titles


async def test_a_take_that_is_sent_again_is_answered_where_it_was_sent_last(
    requester: Visitor, worker: Visitor, somebody_waits: Callable[[int], Awaitable[None]]
) -> None:
    wanted = {"wait": "60s", "command_id": "c1", "process": "p1", "heartbeat_seconds": 10}
    take = ("POST", "/v1/inbox/take")
    async with worker.exchange(*take, json=wanted), worker.exchange(*take, json=wanted) as again:
        await somebody_waits(60_000)
        await somebody_waits(60_000)
        await requester.request("POST", "/v1/handoffs", json=OFFER)
        answer = (await again.response()).json()
    assert [d["handoff"]["title"] for d in answer["deliveries"]] == ["Login button"]


async def test_a_process_that_cannot_be_resumed_now_is_sent_away_to_come_back(
    worker: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_: Subscription) -> None:
        raise StoreUnavailableError

    monkeypatch.setattr(Subscription, "resume", refuse)
    async with greeted(worker) as channel:
        channel.tell({"op": "credit", "n": 1})
        assert await channel.closed() == 1013
