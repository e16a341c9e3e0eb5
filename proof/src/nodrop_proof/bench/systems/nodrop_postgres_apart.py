"""Nodrop on PostgreSQL, two nodes: half of the callers at each, with a worker at the same node."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle as in_turn
from typing import Final

from nodrop_proof.bench import ours, postgres
from nodrop_proof.bench.cycle import WORKER, Ask, Cycle
from nodrop_proof.bench.system import MANY, About, Load
from nodrop_proof.bench.systems import nodrop_postgres_across

ABOUT: Final = About(
    title="Nodrop on PostgreSQL, two nodes side by side",
    durability=postgres.DURABILITY,
    cycle="the same; callers take the nodes in turn, and each node has a worker of its own",
    ours=True,
    packages=(*ours.PACKAGES, "asyncpg", postgres.PACKAGE),
    loads=(MANY,),
)

server = nodrop_postgres_across.server


async def work(address: str) -> None:
    """Be a worker process with an agent at each node."""
    async with asyncio.TaskGroup() as group:
        for number, home in enumerate(address.splitlines()):
            group.create_task(ours.work(home, _worker(number)))


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect the SDK to both nodes."""
    async with AsyncExitStack() as stack:
        cycles: list[Cycle] = []
        for number, home in enumerate(address.splitlines()):
            clients = await stack.enter_async_context(ours.clients(load.connections, home=home))
            cycles.append(ours.through(clients, to=_worker(number)))
        turns = in_turn(cycles)

        async def cycle(key: str, asked: Ask) -> Ask:
            return await next(turns)(key, asked)

        yield cycle


def _worker(number: int) -> str:
    return f"{WORKER}-{number}"
