"""A queue as people write it themselves: a table, FOR UPDATE SKIP LOCKED, LISTEN and NOTIFY."""

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
    title="PostgreSQL SKIP LOCKED",
    durability=postgres.DURABILITY,
    cycle=(
        "three transactions: insert (unique key), claim a batch with SKIP LOCKED, complete; "
        "NOTIFY wakes both sides and carries the result. asyncpg, pools of 16 connections"
    ),
    packages=(postgres.PACKAGE, "asyncpg"),
)

_POOL: Final = 16
_SCHEMA: Final = """
create table handoff (
    id bigint generated always as identity primary key,
    key text not null unique,
    state text not null default 'offered',
    payload text not null,
    result text,
    offered_at timestamptz not null default now(),
    accepted_at timestamptz,
    completed_at timestamptz
);
create index on handoff (id) where state = 'offered';
"""
_OFFER: Final = """
with offered as (
    insert into handoff (key, payload) values ($1, $2) on conflict (key) do nothing returning id
)
select pg_notify('offered', '') from offered
"""
_CLAIM: Final = """
update handoff set state = 'accepted', accepted_at = now() where id in (
    select id from handoff where state = 'offered' order by id limit $1 for update skip locked
)
returning id, payload
"""
_COMPLETE: Final = """
with completed as (
    update handoff set state = 'completed', result = $2, completed_at = now()
    where id = $1 and state = 'accepted' returning key, result
)
select pg_notify('completed', key || result) from completed
"""
_KEY_LENGTH: Final = 32


@asynccontextmanager
async def server(folder: Path) -> AsyncGenerator[str]:
    """Run a server that has the table."""
    async with postgres.server(folder) as address:
        connection = await foreign("asyncpg").connect(address)
        await connection.execute(_SCHEMA)
        await connection.close()
        yield address


async def work(address: str) -> None:
    """Claim whenever something is there and a hand is free."""
    asyncpg: Any = foreign("asyncpg")
    pool = await asyncpg.create_pool(address, min_size=_POOL, max_size=_POOL)
    listener = await asyncpg.connect(address)
    look = asyncio.Event()
    running: set[asyncio.Task[None]] = set()

    async def handle(row: Any) -> None:
        answer = cycles.result(msgspec.json.decode(row["payload"]))
        await pool.execute(_COMPLETE, row["id"], msgspec.json.encode(answer).decode())

    def finished(task: asyncio.Task[None]) -> None:
        running.discard(task)
        look.set()

    def offered(_connection: Any, _pid: int, _channel: str, _told: str) -> None:
        look.set()

    await listener.add_listener("offered", offered)
    look.set()
    while True:
        await look.wait()
        look.clear()
        if free := CONCURRENCY - len(running):
            for row in await pool.fetch(_CLAIM, free):
                task = asyncio.create_task(handle(row))
                running.add(task)
                task.add_done_callback(finished)


@asynccontextmanager
async def requester(address: str, load: Load) -> AsyncGenerator[Cycle]:
    """Connect a pool, and listen for outcomes."""
    asyncpg: Any = foreign("asyncpg")
    waiting: dict[str, asyncio.Future[Any]] = {}
    size = min(load.callers, _POOL)
    async with asyncpg.create_pool(address, min_size=size, max_size=size) as pool:
        listener = await asyncpg.connect(address)

        def arrived(_connection: Any, _pid: int, _channel: str, told: str) -> None:
            future = waiting.get(told[:_KEY_LENGTH])
            if future is not None:
                future.set_result(msgspec.json.decode(told[_KEY_LENGTH:]))

        await listener.add_listener("completed", arrived)

        async def cycle(key: str, asked: Ask) -> Any:
            future = waiting[key] = asyncio.get_running_loop().create_future()
            try:
                await pool.execute(_OFFER, key, msgspec.json.encode(asked).decode())
                return await future
            finally:
                del waiting[key]

        yield cycle
        await listener.close()
