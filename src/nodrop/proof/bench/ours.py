"""Our side of the cycle: a real relay process, a worker on the real SDK, and how to find them.

What only the requester's door decides is in `systems`: WebSocket, HTTP, in-process.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop.client.agent import Agent
from nodrop.client.client import Client
from nodrop.client.connecting import connect
from nodrop.client.task import Task
from nodrop.proof.bench import cycle as cycles
from nodrop.proof.bench import postgres
from nodrop.proof.bench.cycle import CONCURRENCY, WORKER, Ask, Cycle
from nodrop.proof.chaos.relay_process import RelayProcess

CAPABILITY: Final = "answer"
DURABILITY: Final = "SQLite WAL, synchronous=FULL, one sync per batch of commands"
PACKAGES: Final = ("nodrop", "apsw", "uvicorn", "websockets", "aiohttp", "uvloop")
WAIT: Final = "30s"
FIRST_SECONDS_MAX: Final = 60.0
_LOOK_SECONDS: Final = 0.05


@asynccontextmanager
async def relay(folder: Path) -> AsyncGenerator[str]:
    """Run `nodrop up` with a fresh home; yields where that is."""
    async with RelayProcess(folder / "home") as served:
        yield str(served.home)


@asynccontextmanager
async def nodes(folder: Path, *, count: int) -> AsyncGenerator[list[Path]]:
    """Run so many relays on one fresh PostgreSQL; yields their homes."""
    async with postgres.server(folder) as address, AsyncExitStack() as stack:
        served = [RelayProcess(folder / f"node-{n}", store=address) for n in range(count)]
        for each in served:
            await stack.enter_async_context(each)
        yield [each.home for each in served]


def worker() -> Agent:
    """Return the agent that does the work; payload and result are held against its types."""
    agent = Agent(WORKER, concurrency=CONCURRENCY)

    @agent.capability(CAPABILITY, concurrency=CONCURRENCY)
    async def answer(_: Task, key: str, text: str) -> dict[str, str]:  # a handler
        return cycles.result({"key": key, "text": text})

    return agent


async def work(address: str) -> None:
    """Be a worker process over WebSocket."""
    await worker().serve(home=address)


@asynccontextmanager
async def clients(
    count: int, *, address: str | None = None, home: str
) -> AsyncGenerator[list[Client]]:
    """Connect requesters, each an agent with a connection of its own, once the worker is there."""
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(
                connect(address, agent=f"{cycles.REQUESTER}-{number}", home=home)
            )
            for number in range(count)
        ]
        await worker_is_there(made[0])
        yield made


async def worker_is_there(client: Client) -> None:
    """Return when somebody offers the capability."""
    async with asyncio.timeout(FIRST_SECONDS_MAX):
        while not await client.find(CAPABILITY):  # noqa: ASYNC110  # it is another process's doing
            await asyncio.sleep(_LOOK_SECONDS)


def through(clients: list[Client]) -> Cycle:
    """Return the cycle as the SDK does it; callers take the connections in turn."""
    turn = 0

    async def cycle(key: str, asked: Ask) -> Ask:
        nonlocal turn
        turn += 1
        client = clients[turn % len(clients)]
        handoff = await client.hand_off(
            to=WORKER, capability=CAPABILITY, payload=asked, idempotency_key=key
        )
        return await handoff.result(wait=WAIT)

    return cycle
