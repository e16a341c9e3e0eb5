"""Versions of the schema: nodes of two of them on one database, and what is refused.

The older node is not this code: `frozen` has the relay as it was when its schema was the latest.
"""

import asyncio
import hashlib
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from nodrop.core.errors import SchemaInUseError, SchemaTooNewError, StoreUnavailableError
from nodrop.store import Team
from nodrop.stores.postgres import PostgresFleet, PostgresStore, migrations
from nodrop.stores.postgres.connection import connect
from nodrop.stores.postgres.driver import Connection
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, offered, story
from nodrop.testing.store_contract.setting import commit
from nodrop_proof.chaos import export
from nodrop_proof.chaos.between import balance, behind_proxy
from nodrop_proof.chaos.callers import calling
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.chaos.worker import worker, working
from nodrop_proof.kit.postgres_server import PostgresServer
from nodrop_proof.kit.proxy import Trouble

FROZEN: Final = Path(__file__).parent / "frozen"
SECONDS_MAX: Final = 60.0
CALLERS: Final = 8
ANSWERS: Final = 24
"""So many offers are answered before, during and after each change."""
DATABASE: Final = "versions"

BREAKING: Final = f"""-- readable from {migrations.VERSION + 1}
alter table entry rename column node to writer;
"""
"""A step that no node of the version before could live with."""


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[str]:
    """A database that has no schema yet, and that is gone afterwards."""
    postgres.run(f"create database {DATABASE}")
    yield postgres.address(DATABASE)
    postgres.run(f"drop database {DATABASE} with (force)")


@pytest.fixture
async def connection(database: str) -> AsyncIterator[Connection]:
    made = await connect(database)
    yield made
    made.terminate()


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(database) as store:
        await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        yield store


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """The code of the first version."""
    with tarfile.open(FROZEN / "schema_1.tar.xz") as archive:
        archive.extractall(tmp_path / "first", filter="data")
    return tmp_path / "first" / "src"


async def version(connection: Connection) -> int:
    return await connection.fetchval("select max(version) from nodrop_schema")


# --- both at once -------------------------------------------------------------------------------


@pytest.mark.timeout(180)  # real processes, on a machine that does other things too
async def test_a_node_of_the_first_version_serves_before_during_and_after_the_migration(
    tmp_path: Path, database: str, connection: Connection, first: Path
) -> None:
    older = RelayProcess(tmp_path / "older", store=database, source=first)
    newer = RelayProcess(tmp_path / "newer", store=database)
    async with asyncio.timeout(SECONDS_MAX * 2), AsyncExitStack() as stack:
        stack.push_async_callback(newer.stop)
        await stack.enter_async_context(older)
        assert await version(connection) == 1
        with Record(tmp_path / "records.jsonl") as record:
            async with (
                behind_proxy(older, tmp_path / "clients") as (proxy, reached),
                working(worker(record), reached),
                calling(reached, record, callers=CALLERS) as callers,
            ):
                await callers.flowing(ANSWERS)
                starting = asyncio.create_task(newer.start())
                while not starting.done():
                    await callers.flowing(ANSWERS)  # all of it at the older one
                assert await version(connection) == migrations.VERSION
                migrated = await connection.fetchval("select max(head_seq) from team")
                await callers.flowing(ANSWERS)
                balance(proxy, [newer, older])
                await older.kill()  # whoever was there goes to the newer one
                await callers.flowing(ANSWERS)
                await older.start()  # to a schema that is not its own
                balance(proxy, [older])
                proxy.strike(Trouble.RESET, proxy.links)
                await callers.flowing(ANSWERS)
        async with newer.operator() as me:
            verdict = await export.check(record.path, me)
    wrote = await connection.fetch("select distinct node from entry where seq > $1", migrated)
    assert len(wrote) >= 3, "the newer one, and the older one before and after its restart"
    assert verdict.findings == ()
    assert verdict.acknowledged >= 5 * ANSWERS


async def test_a_node_of_the_first_version_does_not_survive_a_breaking_step(
    tmp_path: Path, database: str, connection: Connection, first: Path
) -> None:
    """The control: that it served afterwards was not for want of using what is there."""
    older = RelayProcess(tmp_path / "older", store=database, source=first)
    async with asyncio.timeout(SECONDS_MAX), older:
        await connection.execute(BREAKING)
        async with older.operator() as me:
            with pytest.raises(StoreUnavailableError):
                await me.transport.call("offer", {"to": "code_agent"})


# --- steps that an older node could not live with -----------------------------------------------


async def test_a_breaking_step_waits_for_the_last_node_that_could_not_live_with_it(
    store: PostgresStore, connection: Connection
) -> None:
    fleet = PostgresFleet(store, node="a")
    await fleet.join()
    steps = (*migrations.STEPS, BREAKING)
    with pytest.raises(SchemaInUseError, match=r"a \(schema"):
        await migrations.migrate(connection, steps=steps)
    assert await version(connection) == migrations.VERSION, "nothing of it was done"
    assert await commit(store, story(offered())) == [1]
    await fleet.leave()
    await migrations.migrate(connection, steps=steps)
    assert await version(connection) == migrations.VERSION + 1


async def test_a_node_that_was_taken_for_gone_serves_no_more_after_a_breaking_step(
    store: PostgresStore, connection: Connection
) -> None:
    fleet = PostgresFleet(store, node="a")
    await fleet.join()
    await connection.execute("update node set seen_at = 0")
    await migrations.migrate(connection, steps=(*migrations.STEPS, BREAKING))
    with pytest.raises(SchemaTooNewError):
        await fleet.attend(())
    with pytest.raises(SchemaTooNewError):
        await store.teams()


async def test_a_node_that_is_too_old_for_the_schema_does_not_start(
    store: PostgresStore, connection: Connection, database: str
) -> None:
    await migrations.migrate(connection, steps=(*migrations.STEPS, BREAKING))
    with pytest.raises(SchemaTooNewError, match=f"schema {migrations.VERSION + 1}"):
        await PostgresStore.open(database)
    del store


# --- steps that it can live with ----------------------------------------------------------------


async def test_a_node_serves_a_later_schema_that_is_made_for_it(
    store: PostgresStore, connection: Connection, database: str
) -> None:
    columns = "alter table entry add column later text; alter table handoff add column later text;"
    await migrations.migrate(connection, steps=(*migrations.STEPS, columns))
    assert await commit(store, story(offered(), number=1)) == [1]
    async with await PostgresStore.open(database) as another:
        assert await commit(another, story(offered(), number=2)) == [2]


async def test_a_step_that_has_to_wait_for_a_lock_lets_others_go_first(
    store: PostgresStore,
    connection: Connection,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever wants a table that a step waits for waits behind it."""
    monkeypatch.setattr(migrations, "LOCK_SECONDS_MAX", 0.001)
    monkeypatch.setattr(migrations, "TRIES_MAX", 3)
    holder = await connect(database)
    step = (*migrations.STEPS, "alter table node add column later text;")
    async with holder.transaction():
        await holder.execute("select count(*) from node")
        with pytest.raises(StoreUnavailableError, match="locked"):
            await migrations.migrate(connection, steps=step)
        assert await PostgresFleet(store, node="a").join(), "nobody waits for the step any more"
    await migrations.migrate(connection, steps=step)
    holder.terminate()


# --- what was released stays as it is -----------------------------------------------------------

RELEASED: Final = {
    "0001_initial.sql": "50a37acdee0f6929",
    "0002_what_nodes_say.sql": "78712f029ed77a7f",
}


def test_a_step_that_was_released_is_never_edited() -> None:
    schema = files("nodrop.stores.postgres").joinpath("schema")
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in schema.iterdir()
    }
    assert {name: found.get(name) for name in RELEASED} == RELEASED
