"""Nodrop, requester over HTTP with an ordinary client: a POST and a long-poll GET."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from nodrop.client.credentials import CredentialsFile
from nodrop.proof.bench import ours
from nodrop.proof.bench.cycle import REQUESTER, WORKER, Ask, Cycle
from nodrop.proof.bench.system import About, Load

ABOUT: Final = About(
    title="Nodrop, HTTP",
    durability=ours.DURABILITY,
    cycle="aiohttp: POST /v1/handoffs, then GET with `wait`; the worker is on the SDK",
    ours=True,
    packages=ours.PACKAGES,
)

server = ours.relay
work = ours.work


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Open a session that has a connection for every caller."""
    async with ours.clients(1, home=address):
        credentials = CredentialsFile(Path(address)).read()
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
                "capability": ours.CAPABILITY,
                "payload": asked,
                "idempotency_key": key,
            }
            async with session.post(base, json=offer) as answer:
                handoff = (await answer.json())["handoff"]
            query = {"wait": ours.WAIT, "until": "finished"}
            async with session.get(f"{base}/{handoff['id']}", params=query) as answer:
                return (await answer.json())["handoff"]["outcome"]["result"]

        yield cycle
