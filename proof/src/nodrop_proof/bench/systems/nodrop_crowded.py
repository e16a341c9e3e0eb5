"""Nodrop over WebSocket in a large team, whose agents publish and beat while others work."""

import asyncio
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nodrop.client.client import Client
from nodrop.client.transports.connecting import connect
from nodrop_proof.bench import ours
from nodrop_proof.bench.system import MANY, About
from nodrop_proof.bench.systems.nodrop_websocket import requester

__all__ = ["ABOUT", "requester", "server", "work"]

AGENTS: Final = 10_000
CAPABILITIES: Final = 5
BEATS_SECOND: Final = 100
PUBLISHED_SECOND: Final = 10
_TOGETHER: Final = 200
"""Agents that are published at the same time, before anything is measured."""

ABOUT: Final = About(
    title="Nodrop, WebSocket, a team of 10,000",
    durability=ours.DURABILITY,
    cycle=(
        f"as over WebSocket, among {AGENTS:,} agents with {CAPABILITIES} capabilities each, of "
        f"which {PUBLISHED_SECOND} publish their manifest again and {BEATS_SECOND} beat every second"
    ),
    ours=True,
    packages=ours.PACKAGES,
    loads=(MANY,),
)

work = ours.work


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Serve a team that is large and alive."""
    async with ours.relay(folder) as home, connect(agent="me", home=home) as operator:
        for first in range(0, AGENTS, _TOGETHER):
            several = range(first, first + _TOGETHER)
            await asyncio.gather(*(operator.register(_manifest(number)) for number in several))
        living = asyncio.create_task(_live(operator))
        try:
            yield home
        finally:
            living.cancel()
            await asyncio.wait([living])


async def _live(operator: Client) -> None:
    for turn in itertools.count():
        await operator.call("heartbeat", {"process": f"process-{turn % AGENTS}"})
        if turn % (BEATS_SECOND // PUBLISHED_SECOND) == 0:
            await operator.register(_manifest(turn % AGENTS))
        await asyncio.sleep(1 / BEATS_SECOND)


def _manifest(number: int) -> dict[str, Any]:
    return {
        "agent_id": f"agent-{number:05d}",
        "capabilities": [
            {
                "name": f"capability-{(number * CAPABILITIES + turn) % 500:03d}",
                "input_schema": {"query": "string", "depth": "int"},
                "output_schema": {"sources": "array", "summary": "string"},
                "timeout_seconds": 300,
            }
            for turn in range(CAPABILITIES)
        ],
    }
