"""Nodrop over WebSocket in a team that signs: every offer and every result, verified."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop.client.auth.joining import join
from nodrop.client.transports.connecting import connect
from nodrop_proof.bench import ours
from nodrop_proof.bench.cycle import REQUESTER, WORKER
from nodrop_proof.bench.system import MANY, ONE, About
from nodrop_proof.bench.systems.nodrop_websocket import requester

__all__ = ["ABOUT", "requester", "server", "work"]

ABOUT: Final = About(
    title="Nodrop, WebSocket, signed",
    durability=ours.DURABILITY,
    cycle="as over WebSocket; the team requires signatures, so both sides sign with Ed25519 keys",
    ours=True,
    packages=(*ours.PACKAGES, "joserfc", "cryptography"),
    loads=(ONE, MANY),
)

work = ours.work


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Serve a team whose agents have joined with keys and must sign."""
    async with ours.relay(folder) as home:
        async with connect(agent="me", home=home) as operator:
            for agent in (WORKER, f"{REQUESTER}-0"):
                await join(await operator.invite(agent), home=home)
            await operator.set_policy(signatures="required")
        yield home
