"""From one file to PostgreSQL: the same log, the same answers, or nothing at all."""

from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from nodrop import app
from nodrop.log.port import LogPage, Page
from nodrop.log.postgres import PostgresStore
from nodrop.log.postgres.connection import connect
from nodrop.log.postgres.taking_in import take_in
from nodrop.log.sqlite import SQLiteStore, SQLiteTables
from nodrop.log.sqlite.driver import Connection
from nodrop.model.errors import RelayFaultError, StoreInUseError, StoreUnavailableError
from nodrop.protocol import requests, views
from nodrop.relay.relay import Caller, Relay

SENDER = Caller(team="default", agent="inbox_monitor")
WORKER = Caller(team="default", agent="code_agent")
OFFER = requests.Offer(
    to="code_agent",
    title="Login button",
    payload={"email_id": "e1"},
    watchers=("otto",),
    idempotency_key="k1",
    command_id="c1",
)


async def use(relay: Relay) -> str:
    answer = (await relay.call(SENDER, "offer", OFFER)).answer
    assert isinstance(answer, views.HandoffAnswer)
    handoff = answer.handoff.id
    await relay.call(WORKER, "ack", requests.Ack(), reference=handoff)
    done = requests.Complete(attempt=1, result={"n": 1}, command_id="c2")
    await relay.call(WORKER, "complete", done, reference=handoff)
    await relay.call(SENDER, "offer", requests.Offer(to="code_agent"))
    await relay.ensure_token("default", agent="code_agent", role="agent", secret="nd_secret")
    return handoff


def tamper(home: Path, sql: str) -> None:
    connection = cast("Connection", apsw.Connection(str(home / app.DATABASE)))
    connection.execute(sql)
    connection.close()


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    async with app.open_relay(tmp_path / app.DATABASE, home=tmp_path) as relay:
        await use(relay)
    return tmp_path


async def test_a_relay_goes_on_where_it_was(home: Path, database: str) -> None:
    counts = await app.migrate(home, database)
    async with (
        await SQLiteStore.open(home / app.DATABASE) as file,
        await PostgresStore.open(database) as moved,
    ):
        everything = LogPage(team="default", limit=1_000)
        assert await moved.log(everything) == await file.log(everything)
        assert await moved.head("default") == await file.head("default")
        assert counts["entry"] == (await file.head("default")).seq
        page = Page(team="default", party="otto", limit=10)
        assert await moved.list_handoffs(page) == await file.list_handoffs(page) != []
        seqs = [entry.seq for entry in await file.log(everything)]
        assert await moved.entry_bodies("default", seqs) == await file.entry_bodies("default", seqs)
        assert await moved.agents("default") == await file.agents("default")
        mail = [await s.inbox("default", "code_agent", after=0, limit=9) for s in (file, moved)]
        assert mail[0] == mail[1] != []


class Watched:
    """A connection that asks, before each table, how long the server would wait."""

    def __init__(self, connection: Any) -> None:
        self.bounds: list[str] = []
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def copy_records_to_table(self, *args: Any, **options: Any) -> str:
        for bound in ("statement_timeout", "idle_in_transaction_session_timeout"):
            self.bounds.append(await self._connection.fetchval(f"show {bound}"))
        return await self._connection.copy_records_to_table(*args, **options)


async def test_however_large_the_file_the_server_waits_for_it(home: Path, database: str) -> None:
    async with await PostgresStore.open(database):
        pass  # makes the tables
    connection = await connect(database, answer_seconds_max=None)
    watched = Watched(connection)
    with SQLiteTables(home / app.DATABASE) as tables:
        await take_in(cast("Any", watched), tables)
    assert await connection.fetchval("show statement_timeout") == "10s", "and for nothing else"
    connection.terminate()
    assert set(watched.bounds) == {"0"}


async def test_what_was_asked_before_the_move_is_recognised_after_it(
    home: Path, database: str
) -> None:
    await app.migrate(home, database)
    async with app.open_relay(database, home=home) as relay:
        again = await relay.call(SENDER, "offer", OFFER)
        assert again.replayed
        caller = await relay.authenticate("nd_secret")
        taken = (await relay.call(caller, "take", requests.Take())).answer
        assert isinstance(taken, views.DeliveriesAnswer)
        assert len(taken.deliveries) == 1


async def test_a_log_that_does_not_hold_is_not_taken_in(home: Path, database: str) -> None:
    forged = """
        update journal set entries =
            cast(replace(cast(entries as text), '"actor":"', '"actor":"not_') as blob)
        where first_seq <= 2 and last_seq >= 2
    """
    tamper(home, forged)
    with pytest.raises(RelayFaultError, match="is not what its hash says"):
        await app.migrate(home, database)
    async with await PostgresStore.open(database) as untouched:
        assert await untouched.teams() == []


async def test_a_log_without_its_end_is_not_taken_in(home: Path, database: str) -> None:
    tamper(home, "delete from journal where last_seq = (select max(last_seq) from journal)")
    with pytest.raises(StoreUnavailableError, match="the end of the log is missing"):
        await app.migrate(home, database)


async def test_nothing_is_moved_over_what_is_there(home: Path, database: str) -> None:
    await app.migrate(home, database)
    with pytest.raises(StoreUnavailableError, match="not empty"):
        await app.migrate(home, database)


async def test_a_relay_that_serves_is_not_moved_under_its_feet(home: Path, database: str) -> None:
    async with app.open_relay(home / app.DATABASE, home=home):
        with pytest.raises(StoreInUseError):
            await app.migrate(home, database)
