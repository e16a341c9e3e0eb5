"""Restate: a durable handler that its SDK serves, called through the ingress of its server."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import Ask, Cycle
from nodrop_proof.bench.processes import free_port, listening, program, until
from nodrop_proof.bench.system import About, Load, foreign, program_path

_SERVER: Final = "restate-server"

ABOUT: Final = About(
    title="Restate",
    durability=(
        "one node, its log in RocksDB, rocksdb-disable-wal-fsync: false (the default); seen: an "
        "outcome waits for about five fdatasyncs of the log, one after the other"
    ),
    cycle=(
        "aiohttp (quicker than the SDK's own client): POST to the ingress with Idempotency-Key, "
        "which blocks until the outcome; the worker (SDK on hypercorn) records `accepted` as a step "
        "with `run_typed` and returns the result. Invocation, step and result go to the log"
    ),
    packages=("restate-sdk", "hypercorn", "aiohttp"),
    programs=(_SERVER,),
    telling={_SERVER: (_SERVER, "--version")},
)

# Whatever is set, it asks once at its start whether there is a later release; not from here.
_NO_WAY_OUT: Final = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
_CONFIGURATION: Final = """
base-dir = "{folder}/restate"
node-name = "bench"
listen-mode = "tcp"
bind-address = "127.0.0.1:{node}"
advertised-address = "http://127.0.0.1:{node}/"
disable-telemetry = true
log-filter = "warn"
log-disable-ansi-codes = true

[ingress]
bind-address = "127.0.0.1:{ingress}"

[admin]
bind-address = "127.0.0.1:{admin}"
disable-web-ui = true

[log-server]
rocksdb-disable-wal-fsync = false
"""

_SERVICE: Final = "handoffs"
_HANDLER: Final = "answer"


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Run restate-server; yields where its ingress and its admin API are, see `_apart`."""
    node, ingress, admin = free_port(), free_port(), free_port()
    configuration = folder / "restate.toml"
    configuration.write_text(
        _CONFIGURATION.format(folder=folder, node=node, ingress=ingress, admin=admin)
    )
    path = program_path(_SERVER)
    assert path is not None, "looked for before"
    log = folder / "restate.log"
    arguments = ("--config-file", configuration, "--no-logo")
    async with program(path, *arguments, log=log, environment=_NO_WAY_OUT):
        await listening(ingress)
        await listening(admin)
        yield f"http://127.0.0.1:{ingress} http://127.0.0.1:{admin}"


def _apart(address: str) -> tuple[str, str]:
    ingress, admin = address.split(" ")
    return ingress, admin


async def work(address: str) -> None:
    """Serve the handler, and register it."""
    _, admin = _apart(address)
    port = free_port()
    config: Any = foreign("hypercorn.config").Config()
    config.bind = [f"127.0.0.1:{port}"]
    forever = asyncio.Event()  # signals are not hypercorn's to hear: the worker ends with its input
    serving = foreign("hypercorn.asyncio").serve(
        _application(), config, shutdown_trigger=forever.wait
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(serving)
        await listening(port)
        async with (
            aiohttp.ClientSession(admin, raise_for_status=True) as session,
            session.post("/deployments", json={"uri": f"http://127.0.0.1:{port}"}),
        ):
            pass


def _application() -> Any:
    restate: Any = foreign("restate")
    service = restate.Service(_SERVICE)

    @service.handler(_HANDLER)
    async def answer(context: Any, asked: Ask) -> Ask:
        await context.run_typed("accepted", lambda: {"key": asked["key"]})
        return cycles.result(asked)

    return restate.app([service])


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Open a session that has a connection for every caller, once the worker is registered."""
    ingress, _ = _apart(address)
    connector = aiohttp.TCPConnector(limit=load.callers)
    async with aiohttp.ClientSession(
        ingress, connector=connector, raise_for_status=True
    ) as session:

        async def cycle(key: str, asked: Ask) -> Any:
            headers = {"Idempotency-Key": key}
            async with session.post(
                f"/{_SERVICE}/{_HANDLER}", json=asked, headers=headers
            ) as answer:
                return await answer.json()

        async def registered() -> bool:
            key = cycles.fresh_key()
            try:
                await cycle(key, cycles.payload(key))
            except aiohttp.ClientResponseError:
                return False
            return True

        await until(registered)
        yield cycle
