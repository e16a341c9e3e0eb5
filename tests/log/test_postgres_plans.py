"""Plans that were made while a table was empty still find by a key what is in it later."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from nodrop.log.port import Changes, KeyUse, Page, Team
from nodrop.log.postgres import PostgresStore
from nodrop.log.postgres.connection import connect
from nodrop.log.postgres.driver import Connection
from nodrop.log.postgres.pages import handoffs_page
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import SENDER, TEAM, handoff_id, offered, story
from nodrop.testing.store_contract.setting import commit
from nodrop_proof.kit.postgres_server import PostgresServer

HANDOFFS: Final = 300
LOOKS: Final = 10
DATABASE: Final = "plans"
NEW: Final = 10_000_000
"""The number of something that is not there."""

QUESTIONS: Final[dict[str, tuple[str, tuple[Any, ...]]]] = {
    "command": (
        "select seqs from command where team = $1 and actor = $2 and id = $3",
        (TEAM, SENDER, "new"),
    ),
    "idempotency_key": (
        "select handoff_id from idempotency_key where team = $1 and sender = $2 and key = $3",
        (TEAM, SENDER, "new"),
    ),
    "handoff": ("select json from handoff where team = $1 and id = $2", (TEAM, handoff_id(NEW))),
    "inbox": (
        """
        select seq from inbox where team = $1 and agent = $2 and seq > $3 and seq < $4
        order by seq, kind limit 10
        """,
        (TEAM, "nobody", 0, NEW),
    ),
    "journal": (
        "select entries from journal where team = $1 and last_seq >= $2 order by last_seq limit 1",
        (TEAM, NEW),
    ),
    "party": handoffs_page(Page(team=TEAM, party=SENDER, marks=("project=new",), limit=10)),
}
"""Queries of decisions and readers, by table."""
UNINDEXED: Final = ("select id from command where team = $1 and seqs = $2", (TEAM, "new"))


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[PostgresStore]:
    """On a database that is too new for the server to have analyzed it."""
    postgres.run(f"create database {DATABASE}")
    async with await PostgresStore.open(postgres.address(DATABASE)) as store:
        await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        yield store
    postgres.run(f"drop database {DATABASE} with (force)")


@pytest.fixture
async def early(store: PostgresStore) -> AsyncIterator[Connection]:
    """A connection whose plans are from when there was nothing; then there is much."""
    connection = await connect(store.dsn)
    for sql, bound in (*QUESTIONS.values(), UNINDEXED):
        await connection.fetch(sql, *bound)
    stories = [story(offered(), number=n, command_id=f"made-{n}") for n in range(HANDOFFS)]
    keys = [
        KeyUse(team=TEAM, sender=SENDER, key=f"k{n}", handoff_id=handoff_id(n), digest="d")
        for n in range(HANDOFFS)
    ]
    for told in stories:
        await commit(store, told)
    await commit(store, Changes(keys=keys))
    await store.flush(TEAM)
    yield connection
    connection.terminate()


async def read_for(connection: Connection, table: str, sql: str, *bound: Any) -> int:
    """Return how many rows the server reads for a question, asked some times.

    As the connection's own transaction has it: what others have read is told whenever they get
    round to it.
    """
    async with connection.transaction():
        for _ in range(LOOKS):
            await connection.fetch(sql, *bound)
        return await connection.fetchval(
            "select idx_tup_fetch + seq_tup_read from pg_stat_xact_user_tables where relname = $1",
            table,
        )


async def test_who_looks_for_one_thing_does_not_read_everything(early: Connection) -> None:
    for table, (sql, bound) in QUESTIONS.items():
        assert await read_for(early, table, sql, *bound) <= LOOKS, table


async def test_what_no_index_leads_to_is_looked_for_everywhere(early: Connection) -> None:
    """The control."""
    sql, bound = UNINDEXED
    assert await read_for(early, "command", sql, *bound) >= LOOKS * HANDOFFS
