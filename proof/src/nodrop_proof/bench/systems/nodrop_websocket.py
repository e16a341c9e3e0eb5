"""Nodrop, requester on the SDK over WebSocket."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from nodrop_proof.bench import ours
from nodrop_proof.bench.cycle import Cycle
from nodrop_proof.bench.system import APART, CROWD, MANY, ONE, About, Load

ABOUT: Final = About(
    title="Nodrop, WebSocket",
    durability=ours.DURABILITY,
    cycle=(
        "SDK: `hand_off`, then `result`, which also settles (a fourth durable step); "
        "the worker's SDK acknowledges and completes. Payload and result are validated"
    ),
    ours=True,
    packages=ours.PACKAGES,
    loads=(ONE, MANY, APART, CROWD),
)

server = ours.relay
work = ours.work


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect the SDK."""
    async with ours.clients(load.connections, home=address) as clients:
        yield ours.through(clients)
