"""PostgreSQL restarts, is cut off, or keeps an answer to itself: nothing false is said."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none
import pytest

from nodrop import app
from nodrop.log.port import Changes, ConflictError, Horizon, KeyUse, LogPage, Store, Team, Wanted
from nodrop.log.postgres import PostgresStore, connection, doubt
from nodrop.model import events
from nodrop.model.errors import StoreUnavailableError
from nodrop.model.limits import DAY
from nodrop.protocol import requests
from nodrop.relay.relay import Caller
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, TEAM, handoff_id, offered, story
from nodrop.testing.store_contract.housekeeping import SETTLED
from nodrop.testing.store_contract.setting import commit, read_log
from nodrop_proof.kit.postgres_server import PostgresServer
from nodrop_proof.kit.proxy import Proxy, Trouble

SECONDS_MAX: Final = 30.0
SENDER = Caller(team="default", agent="inbox_monitor")
FIRST, SECOND = (TEAM, handoff_id(1)), (TEAM, handoff_id(2))


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of the test's own, which it may stop."""
    with PostgresServer(settings={"fsync": "off"}) as server:
        yield server


@pytest.fixture
async def proxy(postgres: PostgresServer) -> AsyncIterator[Proxy]:
    async with Proxy.open("127.0.0.1", postgres.port) as proxy:
        yield proxy


@pytest.fixture
async def near(database: str) -> AsyncIterator[PostgresStore]:
    """The store as it is seen over a sound network."""
    async with await PostgresStore.open(database) as store:
        await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        yield store


@pytest.fixture
async def far(
    near: PostgresStore, postgres: PostgresServer, proxy: Proxy
) -> AsyncIterator[PostgresStore]:
    """The same behind a proxy."""
    del near  # made first
    async with await PostgresStore.open(postgres.address(port=proxy.port)) as store:
        yield store


async def committed(store: Store, number: int) -> None:
    """Return when a handoff is there."""
    async with asyncio.timeout(SECONDS_MAX):
        while not await store.handoffs([(TEAM, handoff_id(number))]):  # noqa: ASYNC110  # a server has no event
            await asyncio.sleep(0.01)


# --- commits in doubt ---------------------------------------------------------------------------


async def test_a_commit_whose_answer_was_lost_is_found(
    near: PostgresStore, far: PostgresStore, proxy: Proxy
) -> None:
    assert await commit(far, story(offered(), number=3)) == [1]  # what it takes to ask is known now

    async def reset_when_committed() -> None:
        links = proxy.links
        proxy.strike(Trouble.HALF_OPEN_DOWN, links)
        await committed(near, 1)
        proxy.strike(Trouble.RESET, links)

    async with asyncio.timeout(SECONDS_MAX), far.transaction() as tx:
        told = await tx.append(story(offered(), number=1).changes)
        resetting = asyncio.create_task(reset_when_committed())
    await resetting
    assert told == [2]
    assert [e.handoff_id for e in await read_log(near)] == [handoff_id(3), handoff_id(1)]
    assert await commit(far, story(offered(), number=2)) == [3]


async def test_a_commit_that_still_waits_in_the_server_is_waited_for(
    near: PostgresStore,
    far: PostgresStore,
    proxy: Proxy,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = await connection.connect(database)
    looks: asyncio.Queue[str] = asyncio.Queue()

    async def looking(dsn: str) -> Any:
        looks.put_nowait(dsn)
        return await connection.connect(dsn)

    monkeypatch.setattr(doubt, "connect", looking)

    async def let_go_when_looked_for() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while not await near.ask("select 1 from pg_stat_activity where wait_event_type='Lock'"):  # noqa: ASYNC110  # a server has no event
                await asyncio.sleep(0.01)
        proxy.strike(Trouble.RESET, proxy.links)
        async with asyncio.timeout(SECONDS_MAX):
            for _ in range(3):  # in vain
                await looks.get()
        assert await read_log(near) == []
        await other.execute("commit")

    await other.execute("begin; select from team for update")
    async with asyncio.timeout(SECONDS_MAX), far.transaction() as tx:
        told = await tx.append(story(offered(), number=1).changes)
        letting_go = asyncio.create_task(let_go_when_looked_for())
    await letting_go
    other.terminate()
    assert told == [1]
    assert await commit(far, story(offered(), number=2)) == [2]


async def test_a_commit_that_never_arrived_is_no_commit_once_the_server_gave_up_on_it(
    near: PostgresStore, far: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "DOUBT_SECONDS_MAX", 2 * SECONDS_MAX)

    async def commit_into_the_void() -> None:
        async with asyncio.timeout(SECONDS_MAX), far.transaction() as tx:
            await tx.append(story(offered(), number=1).changes)
            links = proxy.links
            proxy.strike(Trouble.HALF_OPEN_UP, links)
            asyncio.get_running_loop().call_later(0.2, proxy.strike, Trouble.RESET, links)

    with pytest.raises(StoreUnavailableError):
        await commit_into_the_void()
    assert await read_log(near) == []
    assert await commit(far, story(offered(), number=2)) == [1]


async def test_without_looking_for_it_the_answer_stays_lost(
    near: PostgresStore, far: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control of the one before the last."""
    monkeypatch.setattr(doubt, "DOUBT_SECONDS_MAX", 0.0)
    with pytest.raises(StoreUnavailableError):
        async with asyncio.timeout(SECONDS_MAX):
            await test_a_commit_whose_answer_was_lost_is_found(near, far, proxy)


# --- outages ------------------------------------------------------------------------------------


async def test_a_relay_gets_over_a_restart_of_its_database_by_itself(
    server: PostgresServer, tmp_path: Path
) -> None:
    offer = requests.Offer(to="code_agent")
    async with app.open_relay(server.address(), home=tmp_path) as relay:
        await relay.call(SENDER, "offer", offer)
        await asyncio.to_thread(server.kill)
        with pytest.raises(StoreUnavailableError) as refused:
            async with asyncio.timeout(SECONDS_MAX):
                await relay.call(SENDER, "offer", offer)
        assert refused.value.retryable
        with pytest.raises(StoreUnavailableError):
            await relay.require_store()  # what `/readyz` asks
        await asyncio.to_thread(server.start)
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                try:
                    await relay.call(SENDER, "offer", offer)
                except StoreUnavailableError:
                    await asyncio.sleep(0.05)
                else:
                    break
    async with await PostgresStore.open(server.address()) as store:
        entries = await read_log(store, "default")
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert sum(entry.type == "handoff.offered.v1" for entry in entries) == 2


async def test_a_database_that_is_not_there_is_said_to_be_unavailable() -> None:
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        await PostgresStore.open("postgresql://postgres@127.0.0.1:1/postgres")


async def test_of_several_hosts_the_one_that_takes_writes_is_served(
    database: str, postgres: PostgresServer
) -> None:
    hosts = database.replace("127.0.0.1:", f"127.0.0.1:1,127.0.0.1:{postgres.port},127.0.0.1:")
    async with await PostgresStore.open(hosts) as store:
        assert await store.teams() == []


async def test_behind_a_pooler_nothing_stays_on_a_connection(database: str) -> None:
    async with await PostgresStore.open(f"{database}?pooled=1") as store:
        await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        assert await commit(store, story(offered())) == [1]
        [[prepared]] = await store.ask("select count(*) from pg_prepared_statements")
    assert prepared <= 1, "this question itself"


def test_what_is_said_about_a_pooler_does_not_reach_the_driver() -> None:
    address = "postgresql://u:p%40ss@a:1,b:2/d?pooled=1&target_session_attrs=any"
    said = connection.address_of(address)
    assert said.dsn == "postgresql://u:p%40ss@a:1,b:2/d?target_session_attrs=any"
    assert said.pooled


def test_past_a_pooler_it_is_the_same_database_for_the_same_user() -> None:
    said = connection.address_of("postgresql://u:p%40ss@pooler:6432/d?direct=a:1,b:2&ssl=require")
    assert said.pooled
    assert said.own.dsn == "postgresql://u:p%40ss@a:1,b:2/d?ssl=require"
    assert not said.own.pooled


# --- locks --------------------------------------------------------------------------------------


@pytest.fixture
async def nodes(near: PostgresStore, database: str) -> AsyncIterator[list[PostgresStore]]:
    """Two nodes that know of nothing yet, and a database with two handoffs."""
    first = story(offered(), number=1, bodies={1: b"offer"})
    await commit(near, first, story(offered(), number=2))
    async with (
        await PostgresStore.open(database) as one,
        await PostgresStore.open(database) as other,
    ):
        yield [one, other]


async def test_nodes_that_want_the_same_rows_never_wait_in_a_circle(
    nodes: list[PostgresStore],
) -> None:
    both = Wanted(handoffs=frozenset({FIRST, SECOND}))

    async def note(store: PostgresStore, key: tuple[str, str]) -> None:
        try:
            async with store.transaction() as tx:
                loaded = await tx.load(both)
                await tx.append(story(events.Noted(), after=loaded.handoffs[key]).changes)
        except ConflictError as error:
            if isinstance(error.__cause__, asyncpg.DeadlockDetectedError):
                raise
            await note(store, key)

    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as tasks:
        for number in range(12):
            tasks.create_task(note(nodes[number // 2 % 2], (FIRST, SECOND)[number % 2]))
    handoffs = await nodes[0].handoffs([FIRST, SECOND])
    assert sum(handoff.version for handoff in handoffs) == 14


# --- what a node believes -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
async def test_a_node_that_believes_what_another_has_changed_is_refused_and_then_looks(
    near: PostgresStore, nodes: list[PostgresStore], count: int
) -> None:
    wanted = Wanted(handoffs=frozenset({FIRST}))
    [before] = await near.handoffs([FIRST])
    assert near.cached(FIRST) == before
    await commit(nodes[0], story(events.Noted(), after=before))

    async def note() -> None:
        async with near.transaction() as tx:
            loaded = await tx.load(wanted)
            noted = [events.Noted()] * count
            await tx.append(story(*noted, after=loaded.handoffs[FIRST]).changes)

    with pytest.raises(ConflictError):
        await note()
    assert len(await read_log(near)) == 3
    await note()
    versions = [e.version for e in await read_log(near) if e.handoff_id == FIRST[1]]
    assert versions == list(range(1, 3 + count))


async def test_what_another_node_has_forgotten_is_not_remembered(
    near: PostgresStore, nodes: list[PostgresStore]
) -> None:
    over = story(offered(), *SETTLED, number=3)
    seqs = await commit(near, over)
    third = [(TEAM, handoff_id(3))]
    assert await near.handoffs(third) == await nodes[1].handoffs(third) == [over.handoff]
    [last] = await near.log(LogPage(team=TEAM, after=seqs[-1] - 1, limit=1))
    open_ones = await near.handoffs([FIRST, SECOND])
    horizon = Horizon(
        team=TEAM,
        seq=last.seq,
        hash=last.hash,
        at=T0,
        snapshots=open_ones,
        public_key="key",
        signature="signature",
    )
    await nodes[0].prune(horizon, forget_before=T0 + DAY)
    await nodes[1].flush(TEAM)  # which still had it to write
    for node in (near, *nodes):
        assert await node.handoffs(third) == []
        assert len(await node.handoffs([FIRST, SECOND])) == 2
        assert await node.bodies(TEAM, [(handoff_id(1), 1)]) == {(handoff_id(1), 1): b"offer"}
        inbox = await node.inbox(TEAM, RECIPIENT, after=0, limit=10)
        assert {item.handoff_id for item in inbox} == {FIRST[1], SECOND[1]}


@pytest.mark.parametrize("name", ["command", "key"])
@pytest.mark.parametrize("others", [True, False])
async def test_what_uses_a_name_that_was_used_before_is_decided_again(
    near: PostgresStore, name: str, *, others: bool
) -> None:
    """That names are new is believed; the tables have them, and memory does not."""
    by = story(offered(), number=1, command_id="c").entries[0].actor

    def use(key: str, number: int) -> Changes:
        return Changes(
            keys=[KeyUse(team=TEAM, sender=by, key=key, handoff_id=handoff_id(number), digest="d")]
        )

    await commit(near, story(offered(), number=1, command_id="c"), use("k", 1))
    more = ["new"] if others else []
    wanted = {
        "command": Wanted(commands=frozenset((TEAM, by, each) for each in ("c", *more))),
        "key": Wanted(keys=frozenset((TEAM, by, each) for each in ("k", *more))),
    }[name]
    again = {"command": ("c", "other"), "key": ("d", "k")}[name]

    async def believing() -> None:
        async with near.transaction() as tx:
            loaded = await tx.load(wanted)
            assert not loaded.commands
            assert not loaded.keys
            await tx.append(story(offered(), number=2, command_id=again[0]).changes)
            await tx.append(use(again[1], 2))

    with pytest.raises(ConflictError):
        await believing()
    assert len(await read_log(near)) == 1, "nothing of it is kept"
    async with near.transaction() as tx:
        loaded = await tx.load(wanted)
    assert {*loaded.commands, *loaded.keys} == {(TEAM, by, "c" if name == "command" else "k")}


@pytest.mark.parametrize("name", ["command", "key"])
async def test_a_refusal_that_rests_on_a_name_which_another_node_used_is_no_answer(
    near: PostgresStore, nodes: list[PostgresStore], name: str
) -> None:
    told = story(offered(), number=3, command_id="c")
    use = KeyUse(team=TEAM, sender=SENDER.agent, key="k", handoff_id=handoff_id(3), digest="d")
    await commit(nodes[0], told, Changes(keys=[use]))
    actor = told.entries[0].actor
    wanted = {
        "command": Wanted(commands=frozenset({(TEAM, actor, "c")})),
        "key": Wanted(keys=frozenset({(TEAM, SENDER.agent, "k")})),
    }[name]
    with pytest.raises(ConflictError):
        async with near.transaction() as tx:
            await tx.load(wanted)
    async with near.transaction() as tx:
        loaded = await tx.load(wanted)
    assert loaded.commands or loaded.keys


@pytest.mark.parametrize("reference", ["\x00", "a\x00/b", "a/b\x00"])
async def test_no_reference_is_an_error_of_the_database(
    near: PostgresStore, reference: str
) -> None:
    assert await near.resolve(TEAM, reference) == []


# --- what a database is set to ------------------------------------------------------------------


async def test_nodes_read_what_is_committed_whatever_the_database_is_set_to(
    near: PostgresStore, database: str, postgres: PostgresServer
) -> None:
    postgres.run("alter database postgres set default_transaction_isolation = 'serializable'")
    try:
        async with await PostgresStore.open(database) as store:
            late = story(offered(), number=2)

            async def decide_late() -> None:
                async with store.transaction() as tx:
                    await tx.load(Wanted(handoffs=frozenset({SECOND})))
                    await commit(near, story(offered(), number=1))
                    await tx.append(late.changes)

            with pytest.raises(ConflictError):
                await decide_late()
            await commit(store, late)
            assert [entry.seq for entry in await read_log(store)] == [1, 2]
    finally:
        postgres.run("alter database postgres reset default_transaction_isolation")


async def test_an_outage_is_told_by_whoever_needed_the_database_and_by_nobody_else(
    server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with await PostgresStore.open(server.address()) as store:
        server.stop()
        with pytest.raises(StoreUnavailableError):
            await store.teams()
        server.start()
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                with suppress(StoreUnavailableError):
                    assert await store.teams() == []
                    break
    assert [record.message for record in caplog.records if "asyncpg" in record.name] == []


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("default_transaction_read_only = on", "takes writes"),
        ("allow_connections false", "not currently accepting connections"),
    ],
)
async def test_who_starts_a_node_is_told_what_is_wrong_with_its_database(
    postgres: PostgresServer, setting: str, told: str
) -> None:
    postgres.run("create database wrong")
    verb = "" if setting.startswith("allow") else "set"
    postgres.run(f"alter database wrong {verb} {setting}")
    try:
        with pytest.raises(StoreUnavailableError, match=told) as refused:
            await PostgresStore.open(postgres.address("wrong"))
    finally:
        postgres.run("drop database wrong with (force)")
    assert refused.value.next_step.startswith("Check the address")
