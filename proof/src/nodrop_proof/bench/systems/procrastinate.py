"""procrastinate, a task queue on PostgreSQL. It keeps no results: a table and NOTIFY are added."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench import postgres
from nodrop_proof.bench.cycle import CONCURRENCY, Ask, Cycle
from nodrop_proof.bench.system import About, Load, foreign

ABOUT: Final = About(
    title="procrastinate",
    durability=postgres.DURABILITY,
    cycle=(
        "`defer_async` with a queueing lock as the idempotency key; the worker fetches (doing), "
        "writes the result to a table of ours with NOTIFY, and finishes (succeeded)"
    ),
    packages=(postgres.PACKAGE, "procrastinate", "psycopg", "asyncpg"),
)

_POOL: Final = 16
_TASK: Final = "answer"
_SCHEMA: Final = "create table outcome (key text primary key, result text not null)"
_COMPLETE: Final = """
with completed as (
    insert into outcome values (%(key)s, %(result)s) returning key, result
)
select pg_notify('outcome', key || result) from completed
"""
_KEY_LENGTH: Final = 32


def _app(address: str) -> Any:
    procrastinate: Any = foreign("procrastinate")
    connector = procrastinate.PsycopgConnector(conninfo=address, min_size=_POOL, max_size=_POOL)
    return procrastinate.App(connector=connector)


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Run a server that has the tables."""
    async with postgres.server(folder) as address:
        app = _app(address)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            await app.connector.execute_query_async(_SCHEMA)
        yield address


async def work(address: str) -> None:
    """Run its worker."""
    app = _app(address)

    @app.task(name=_TASK)
    async def answer(*, asked: Ask) -> None:
        result = msgspec.json.encode(cycles.result(asked)).decode()
        await app.connector.execute_query_one_async(_COMPLETE, key=asked["key"], result=result)

    async with app.open_async():
        await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False)


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Defer, and listen for outcomes."""
    assert load.connections == 1, "one pool carries all"
    waiting: dict[str, asyncio.Future[Any]] = {}
    listener = await foreign("asyncpg").connect(address)

    def arrived(_connection: Any, _pid: int, _channel: str, told: str) -> None:
        future = waiting.get(told[:_KEY_LENGTH])
        if future is not None:
            future.set_result(msgspec.json.decode(told[_KEY_LENGTH:]))

    await listener.add_listener("outcome", arrived)
    app = _app(address)
    async with app.open_async():

        async def cycle(key: str, asked: Ask) -> Any:
            future = waiting[key] = asyncio.get_running_loop().create_future()
            try:
                await app.configure_task(_TASK, queueing_lock=key).defer_async(asked=asked)
                return await future
            finally:
                del waiting[key]

        yield cycle
    await listener.close()
