"""Several relays on one PostgreSQL, each a process of its own."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.kit.postgres_server import PostgresServer

FLOW_ANSWERS: Final = 32
"""Load flows again when so many offers were answered since the last fault."""


@asynccontextmanager
async def postgres() -> AsyncGenerator[PostgresServer]:
    """Run a PostgreSQL; starting and stopping one would hold up the loop."""
    server = await asyncio.to_thread(PostgresServer().__enter__)
    try:
        yield server
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


@asynccontextmanager
async def nodes_at(folder: Path, addresses: Iterable[str]) -> AsyncGenerator[list[RelayProcess]]:
    """Run a relay for each of `addresses`, with its home in `folder`; they lead to one database."""
    nodes = [
        RelayProcess(folder / f"node-{number}", store=address)
        for number, address in enumerate(addresses)
    ]
    async with AsyncExitStack() as stack:
        for node in nodes:
            await stack.enter_async_context(node)
        yield nodes
