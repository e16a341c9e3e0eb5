"""Nodrop inside of the program: relay, worker and requester share one process and event loop."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop_proof.bench import ours
from nodrop_proof.bench.cycle import Cycle
from nodrop_proof.bench.system import CROWD, MANY, ONE, About, Load

ABOUT: Final = About(
    title="Nodrop, in-process",
    durability=ours.DURABILITY,
    cycle="the SDK on a database file: no server process, no network",
    ours=True,
    packages=ours.PACKAGES,
    loads=(ONE, MANY, CROWD),
)


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Serve nothing: the requester does all."""
    yield str(folder / "team.db")


async def work(address: str) -> None:
    """Do nothing: the worker is where the requester is."""
    assert address, "a path"
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Open the database, with a worker on it."""
    home = str(Path(address).parent)
    agent = ours.worker()
    working = asyncio.create_task(agent.serve(address, home=home))
    try:
        async with ours.clients(load.connections, address=address, home=home) as clients:
            yield ours.through(clients)
    finally:
        agent.stop()
        await asyncio.wait([working])
