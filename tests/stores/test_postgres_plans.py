"""Plans that were made while a table was empty do not stay when it is not."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest

from nodrop.store import Changes, Team
from nodrop.stores.postgres import PostgresFleet, PostgresStore, plans
from nodrop.stores.postgres.connection import connect
from nodrop.stores.postgres.driver import Connection
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import SENDER, TEAM, offered, story
from nodrop.testing.store_contract.setting import commit
from nodrop_proof.kit.postgres_server import PostgresServer

ENTRIES: Final = 2_000
LOOKS: Final = 10
DATABASE: Final = "plans"

QUESTION: Final = """
    select seq from entry where team = $1 and actor = $2 and command_id = $3 order by seq
"""
"""What every command comes down to somewhere: was it carried out before?"""


class WatchedStore(PostgresStore):
    """Remembers which tables were analyzed."""

    analyzed: list[str]

    async def ask(self, sql: str, *bound: Any) -> Sequence[Sequence[Any]]:
        if sql.startswith("analyze"):
            self.analyzed.append(sql.rpartition(") ")[2])
        return await super().ask(sql, *bound)


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[WatchedStore]:
    """On a database that is too new for the server to have analyzed it."""
    postgres.run(f"create database {DATABASE}")
    async with await WatchedStore.open(postgres.address(DATABASE)) as store:
        store.analyzed = []
        await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        yield store
    postgres.run(f"drop database {DATABASE} with (force)")


@pytest.fixture
async def early(store: PostgresStore) -> AsyncIterator[Connection]:
    """A connection whose plan for the question is from when there were no entries."""
    connection = await connect(store.dsn)
    await connection.fetch(QUESTION, TEAM, SENDER, "c")
    yield connection
    connection.terminate()


@pytest.fixture
async def grown(store: WatchedStore, early: Connection) -> WatchedStore:
    del early  # first
    stories = [story(offered(), number=n, command_id=f"made-{n}") for n in range(ENTRIES)]
    entries = [entry for each in stories for entry in each.entries]
    await commit(store, Changes(entries=entries))
    return store


async def read_for(connection: Connection) -> int:
    """Return how many entries the server reads for the question, asked some times.

    As the connection's own transaction has it: what others have read is told whenever they get
    round to it.
    """
    async with connection.transaction():
        for number in range(LOOKS):
            await connection.fetch(QUESTION, TEAM, SENDER, f"c{number}")
        return await connection.fetchval(
            "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables"
            " where relname = 'entry'"
        )


async def test_who_looks_for_one_command_does_not_read_the_whole_log(
    grown: WatchedStore, early: Connection
) -> None:
    fleet = PostgresFleet(grown, node="a")
    await fleet.join()
    assert any("entry" in tables for tables in grown.analyzed)
    assert await read_for(early) <= LOOKS
    analyzed = len(grown.analyzed)
    await fleet.attend(())
    assert len(grown.analyzed) == analyzed, "it has not grown since"


async def test_with_the_plan_of_an_empty_log_it_would(
    grown: WatchedStore, early: Connection
) -> None:
    """The control."""
    del grown
    assert await read_for(early) >= LOOKS * ENTRIES


async def test_what_is_large_is_left_to_the_server(
    grown: WatchedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "BYTES_MAX", 8_192)
    await plans.refresh(grown.ask)
    assert grown.analyzed == []
