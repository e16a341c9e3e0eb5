"""Nodrop on PostgreSQL, two nodes: every requester is at one, the worker at the other."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop_proof.bench import ours, postgres
from nodrop_proof.bench.cycle import Cycle
from nodrop_proof.bench.system import MANY, ONE, About, Load

ABOUT: Final = About(
    title="Nodrop on PostgreSQL, across two nodes",
    durability=postgres.DURABILITY,
    cycle="the same; each offer, delivery and outcome goes from one node to the other",
    ours=True,
    packages=(*ours.PACKAGES, "asyncpg", postgres.PACKAGE),
    loads=(ONE, MANY),
)


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Run PostgreSQL and two relays on it; yields both homes."""
    async with ours.nodes(folder, count=2) as [here, there]:
        yield f"{here}\n{there}"


async def work(address: str) -> None:
    """Be a worker process at the second node."""
    await ours.work(address.splitlines()[1])


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect the SDK to the first node."""
    async with ours.clients(load.connections, home=address.splitlines()[0]) as clients:
        yield ours.through(clients)
