"""Two relays on one PostgreSQL behind a real PgBouncer in transaction mode.

Needs the system's `pgbouncer`, and so is not part of `make test`: `make test-servers`.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none
import pytest

from kit.pgbouncer import SERVER_CONNECTIONS, PgBouncer
from nodrop.log.postgres import PostgresStore
from nodrop.model.errors import StoreUnavailableError
from nodrop_proof.chaos import export
from nodrop_proof.chaos.callers import Callers, calling
from nodrop_proof.chaos.network_cut import behind_proxy
from nodrop_proof.chaos.node_kill import balance
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess
from nodrop_proof.chaos.worker import worker, working
from nodrop_proof.kit.postgres_server import PostgresServer

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

CALLERS: Final = 32
ANSWERS: Final = 200
DRIVER: Final[Any] = asyncpg  # which has no types
ROLE: Final = """
    alter role postgres set statement_timeout = '10s';
    alter role postgres set idle_in_transaction_session_timeout = '10s'
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(settings={"fsync": "off"}) as server:
        server.run(ROLE)
        yield server


@pytest.fixture
def pooler(server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer(server) as pooler:
        yield pooler


@asynccontextmanager
async def served(
    folder: Path, address: str, record: Record
) -> AsyncGenerator[tuple[Callers, list[RelayProcess]]]:
    """Run two relays, with callers and a worker that go to either."""
    nodes = [RelayProcess(folder / f"node-{number}", store=address) for number in range(2)]
    async with (
        nodes[0],
        nodes[1],
        behind_proxy(nodes[0], folder / "clients") as (proxy, reached),
    ):
        balance(proxy, nodes)
        async with (
            working(worker(record), reached),
            calling(reached, record, callers=CALLERS) as callers,
        ):
            yield callers, nodes


def seen(server: PostgresServer, what: str) -> int:
    return int(server.run(f"select count(*) from pg_stat_activity where {what}"))


@pytest.mark.parametrize("direct", [True, False], ids=["listening past it", "polling through it"])
async def test_relays_work_through_a_pooler(
    tmp_path: Path, server: PostgresServer, pooler: PgBouncer, *, direct: bool
) -> None:
    with Record(tmp_path / "records.jsonl") as record:
        async with served(tmp_path, pooler.address(direct=direct), record) as (callers, nodes):
            await callers.flowing(ANSWERS)
            listening = seen(server, "query ilike 'listen %'")
            shared = seen(server, "backend_type = 'client backend' and query not ilike 'listen %'")
            await nodes[1].kill()
            await callers.flowing(ANSWERS)
            await nodes[1].start()
            await callers.flowing(ANSWERS)
        last = RelayProcess(tmp_path / "last", store=server.address())
        async with last, last.operator() as me:
            verdict = await export.check(record.path, me)
    assert verdict.findings == ()
    assert verdict.acknowledged >= 3 * ANSWERS
    assert listening == (2 if direct else 0)
    assert shared <= SERVER_CONNECTIONS + 1, "and the one that asks"
    wrote = server.run("select count(distinct node) from journal where types like '% handoff.%'")
    assert int(wrote) >= 2


async def test_a_pooler_that_the_address_does_not_speak_of_is_noticed_at_once(
    pooler: PgBouncer,
) -> None:
    plain, _, _ = pooler.address(direct=False).partition("?")
    with pytest.raises(StoreUnavailableError, match="startup parameter"):
        await PostgresStore.open(plain)


async def test_what_is_prepared_is_gone_when_a_pooler_has_given_the_connection_away(
    pooler: PgBouncer,
) -> None:
    """The control: with the statement cache that other connections have, nothing would work."""
    plain, _, _ = pooler.address(direct=False).partition("?")
    one = await DRIVER.connect(plain)
    other = await DRIVER.connect(plain)
    try:
        assert await one.fetchval("select $1::int", 1) == 1
        async with other.transaction():
            await other.execute("select 1")  # which has the one server connection that there was
            with pytest.raises(asyncpg.InvalidSQLStatementNameError):
                await one.fetchval("select $1::int", 2)
    finally:
        one.terminate()
        other.terminate()
