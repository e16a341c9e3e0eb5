"""Our side of the cycle: a real relay process, a worker on the real SDK, and how to find them.

Which of these makes a system is in `systems`: WebSocket, HTTP, in-process, one node or two.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from nodrop.client.agent import Agent
from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.client import Client
from nodrop.client.transports.connecting import connect
from nodrop.client.working.task import Task
from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench import postgres
from nodrop_proof.bench.cycle import CONCURRENCY, REQUESTER, WORKER, Ask, Cycle
from nodrop_proof.bench.system import Load
from nodrop_proof.chaos.relay_process import RelayProcess

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


def worker(name: str = WORKER) -> Agent:
    """Return the agent that does the work; payload and result are held against its types."""
    agent = Agent(name, concurrency=CONCURRENCY)

    @agent.capability(CAPABILITY, concurrency=CONCURRENCY)
    async def answer(_: Task, key: str, text: str) -> dict[str, str]:  # a handler
        return cycles.result({"key": key, "text": text})

    return agent


async def work(address: str, name: str = WORKER) -> None:
    """Be a worker process over WebSocket."""
    await worker(name).serve(home=address)


@asynccontextmanager
async def clients(
    count: int, *, address: str | None = None, home: str
) -> AsyncGenerator[list[Client]]:
    """Connect requesters, each an agent with a connection of its own, once the worker is there."""
    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(
                connect(address, agent=f"{REQUESTER}-{number}", home=home)
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


def through(clients: list[Client], *, to: str = WORKER) -> Cycle:
    """Return the cycle as the SDK does it; callers take the connections in turn."""
    turn = 0

    async def cycle(key: str, asked: Ask) -> Ask:
        nonlocal turn
        turn += 1
        client = clients[turn % len(clients)]
        handoff = await client.hand_off(
            to=to, capability=CAPABILITY, payload=asked, idempotency_key=key
        )
        return await handoff.result(wait=WAIT)

    return cycle


@asynccontextmanager
async def over_http(home: str, load: Load) -> AsyncGenerator[Cycle]:
    """Open a session that has a connection for every caller; yields the cycle as it does it."""
    async with clients(1, home=home):
        credentials = CredentialsFile(Path(home)).read()
    token = credentials.agents[f"{REQUESTER}-0"]
    base = f"{credentials.url}/v1/handoffs"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=load.callers),
        headers={"Authorization": f"Bearer {token}"},
        raise_for_status=True,
    ) as session:

        async def cycle(key: str, asked: Ask) -> Any:
            offer = {
                "to": WORKER,
                "capability": CAPABILITY,
                "payload": asked,
                "idempotency_key": key,
            }
            async with session.post(base, json=offer) as answer:
                handoff = (await answer.json())["handoff"]
            query = {"wait": WAIT, "until": "finished"}
            async with session.get(f"{base}/{handoff['id']}", params=query) as answer:
                return (await answer.json())["handoff"]["outcome"]["result"]

        yield cycle
