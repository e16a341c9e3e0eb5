"""Nodrop on PostgreSQL, one node, requester on the SDK over WebSocket."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop_proof.bench import ours, postgres
from nodrop_proof.bench.cycle import Cycle
from nodrop_proof.bench.system import MANY, ONE, About, Load

ABOUT: Final = About(
    title="Nodrop on PostgreSQL, WebSocket",
    durability=postgres.DURABILITY,
    cycle="as over WebSocket on SQLite; the store is the same PostgreSQL that the peers have",
    ours=True,
    packages=(*ours.PACKAGES, "asyncpg", postgres.PACKAGE),
    loads=(ONE, MANY),
)

work = ours.work


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Run PostgreSQL and a relay on it; yields the relay's home."""
    async with ours.nodes(folder, count=1) as [home]:
        yield str(home)


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect the SDK."""
    async with ours.clients(load.connections, home=address) as clients:
        yield ours.through(clients)
