"""Spans of relays that share a database: one of them exports, and another when that one is gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nodrop import app
from nodrop.outbound.telemetry.follower import NAME, Follower
from nodrop.outbound.telemetry.spans import Spans
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffAnswer
from nodrop.relay.relay import Caller, Relay

SECONDS_MAX: Final = 30.0
ASKER = Caller(team="default", agent="asker")
WORKER = Caller(team="default", agent="worker")


class Node(AsyncExitStack):
    """A relay that exports."""

    relay: Relay

    async def ask(
        self, caller: Caller, operation: str, request: requests.Request, handoff: str = ""
    ) -> str:
        async with asyncio.timeout(SECONDS_MAX):
            reply = await self.relay.call(caller, operation, request, reference=handoff or None)
        assert isinstance(reply.answer, HandoffAnswer)
        return reply.answer.handoff.id

    async def finish_one(self) -> str:
        """Have a handoff that is settled; return its id."""
        handoff = await self.ask(ASKER, "offer", requests.Offer(to="worker"))
        await self.ask(WORKER, "ack", requests.Ack(), handoff)
        await self.ask(WORKER, "complete", requests.Complete(attempt=1), handoff)
        return await self.ask(ASKER, "settle", requests.Settle(), handoff)


@pytest.fixture
def collector() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def start(
    database: str, tmp_path: Path, collector: InMemorySpanExporter
) -> AsyncIterator[Callable[[], Awaitable[Node]]]:
    """Start one more node."""
    started: list[Node] = []
    async with AsyncExitStack() as nodes:

        async def start() -> Node:
            node = await nodes.enter_async_context(Node())
            node.relay = await node.enter_async_context(app.open_relay(database, home=tmp_path))
            if not started:
                # Else whoever comes first begins at the end of the log, wherever that is by then.
                await node.relay.endings.keep("default", NAME, 0)
            started.append(node)
            follower = Follower(
                node.relay.endings,
                "default",
                spans=Spans(Resource.create()),
                exporter=collector,
                clock=app.SystemClock(),
                gather_ms=10,
            )
            holding = asyncio.create_task(node.relay.duties.hold("spans", follower.run))

            async def stop() -> None:
                holding.cancel()
                await asyncio.gather(holding, return_exceptions=True)

            node.push_async_callback(stop)
            return node

        yield start


async def exported(collector: InMemorySpanExporter, count: int) -> list[str]:
    """Return the last digits of what was exported, once it is so many."""
    async with asyncio.timeout(SECONDS_MAX):
        while len(collector.get_finished_spans()) < count:  # noqa: ASYNC110  # it has no event
            await asyncio.sleep(0.01)
    contexts = [span.get_span_context() for span in collector.get_finished_spans()]
    return [f"{context.span_id:016x}" for context in contexts if context is not None]


def last_digits(handoffs: list[str]) -> list[str]:
    return [handoff.replace("-", "")[-16:] for handoff in handoffs]


async def test_whichever_node_goes_every_span_is_exported_once(
    start: Callable[[], Awaitable[Node]], collector: InMemorySpanExporter
) -> None:
    here, there = await start(), await start()
    ended: list[str] = []
    for node in (here, there, here):
        ended.append(await node.finish_one())
        await exported(collector, len(ended))
    await here.aclose()
    ended.append(await there.finish_one())
    assert await exported(collector, len(ended)) == last_digits(ended)
