"""DBOS: durable workflows on PostgreSQL, enqueued by a client and run by a worker."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench import postgres
from nodrop_proof.bench.cycle import CONCURRENCY, Ask
from nodrop_proof.bench.processes import READY_SECONDS_MAX
from nodrop_proof.bench.system import About, Blocking, Load, foreign

ABOUT: Final = About(
    title="DBOS",
    durability=postgres.DURABILITY,
    cycle=(
        "`enqueue` with the key as workflow id; the worker dequeues (pending) and records the "
        "output; the requester polls for it. Queue and result polled every 20 ms (default 1 s)"
    ),
    packages=(postgres.PACKAGE, "dbos"),
)

_QUEUE: Final = "handoffs"
_WORKFLOW: Final = "answer"
_POLLING_SECONDS: Final = 0.02
_POOL: Final = 20


def _worker(address: str) -> None:
    dbos: Any = foreign("dbos")
    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": address,
            "sys_db_pool_size": _POOL,
            "log_level": "ERROR",
        }
    )

    @dbos.DBOS.workflow(name=_WORKFLOW)
    def answer(asked: Ask) -> Ask:
        return cycles.result(asked)

    dbos.DBOS.launch()
    dbos.DBOS.register_queue(
        _QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=_POLLING_SECONDS
    )


def _database(address: str) -> str:
    return address.replace("postgresql://", "postgresql+psycopg://")


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Run a database server; the worker makes the tables."""
    async with postgres.server(folder) as address:
        yield _database(address)


async def work(address: str) -> None:
    """Run its workflows."""
    await asyncio.to_thread(_worker, address)
    await asyncio.Event().wait()


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Blocking]:
    """Connect its client, once the worker has made the tables."""
    assert load.connections == 1, "one pool carries all"
    dbos: Any = foreign("dbos")
    client = await asyncio.to_thread(_connected, dbos, address)

    def cycle(key: str, asked: Ask) -> Any:
        options = {"queue_name": _QUEUE, "workflow_name": _WORKFLOW, "workflow_id": key}
        handle = client.enqueue(options, asked)
        return handle.get_result(polling_interval_sec=_POLLING_SECONDS)

    yield Blocking(cycle)


def _connected(dbos: Any, address: str) -> Any:
    client = dbos.DBOSClient(system_database_url=address, system_database_pool_size=_POOL)
    until = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            if client.retrieve_queue(_QUEUE) is not None:
                return client
        except foreign("sqlalchemy.exc").ProgrammingError:
            pass  # no tables yet
        if time.monotonic() > until:
            raise TimeoutError("the worker never came")
        time.sleep(_POLLING_SECONDS)
