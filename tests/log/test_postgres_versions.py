"""Versions of the schema: steps that nodes of the version before can live with, and others."""

from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest

from nodrop.log.port import Team
from nodrop.log.postgres import PostgresFleet, PostgresStore, migrations
from nodrop.log.postgres.connection import connect
from nodrop.log.postgres.driver import Connection
from nodrop.model.errors import SchemaInUseError, SchemaTooNewError, StoreUnavailableError
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, offered, story
from nodrop.testing.store_contract.setting import commit
from nodrop_proof.kit.postgres_server import PostgresServer

DATABASE: Final = "versions"

BREAKING: Final = f"""-- readable from {migrations.VERSION + 1}
alter table journal rename column node to writer;
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


async def version(connection: Connection) -> int:
    return await connection.fetchval("select max(version) from nodrop_schema")


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
    columns = (
        "alter table journal add column later text; alter table handoff add column later text;"
    )
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


async def test_a_database_from_before_the_first_release_is_refused_and_says_what_to_do(
    connection: Connection, database: str
) -> None:
    await connection.execute(
        "create table nodrop_schema (version bigint primary key, readable_from bigint not null)"
    )
    await connection.execute("insert into nodrop_schema values ($1, $1)", migrations.BEFORE)
    with pytest.raises(StoreUnavailableError, match="before the first release") as refused:
        await PostgresStore.open(database)
    assert "new database" in refused.value.next_step
    assert await version(connection) == migrations.BEFORE, "and left as it is"
