"""Several nodes on one journal: one history, rows that are its fold, and a watermark that is true."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from random import Random
from typing import Any, Final

import pytest
from msgspec.structs import replace

from nodrop.log import recovery
from nodrop.log.port import ConflictError, LogPage, Page, Team, Wanted
from nodrop.log.postgres import PostgresFleet, PostgresStore, migrations
from nodrop.log.postgres import store as module
from nodrop.log.state import State
from nodrop.model import events
from nodrop.model.handoff import Handoff
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events
from nodrop.protocol.entries import GENESIS, Entry, Head, hash_of
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, TEAM, handoff_id, offered, story
from nodrop.testing.store_contract.housekeeping import SETTLED
from nodrop.testing.store_contract.setting import commit, read_log
from nodrop_proof.kit.postgres_server import PostgresServer

FIRST: Final = (TEAM, handoff_id(1))
SECONDS_MAX: Final = 60.0
COMPARISON: Final = "head_seq = log.seq and head_hash = log.hash"


@pytest.fixture
async def nodes(database: str) -> AsyncIterator[list[PostgresStore]]:
    """Three nodes on one database with a team; what each has folded stays its own until it is told."""
    async with AsyncExitStack() as stack:
        opened: list[PostgresStore] = []
        for _ in range(3):
            store = await PostgresStore.open(database)
            stack.callback(store.crash)  # nothing is written behind at the end
            opened.append(store)
        await opened[0].create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        yield opened


def holds(log: list[Entry]) -> bool:
    """Whether a log is one chain, without gaps."""
    head = Head(seq=0, hash=GENESIS)
    for entry in log:
        if (entry.seq, entry.prev_hash) != (head.seq + 1, head.hash) or hash_of(
            entry
        ) != entry.hash:
            return False
        head = Head(seq=entry.seq, hash=entry.hash)
    return True


def folded(log: list[Entry]) -> dict[str, Handoff]:
    """Return the handoffs that a log tells of, by folding it from its beginning."""
    found: dict[str, Handoff] = {}
    for entry in log:
        name = entry.handoff_id
        if name is not None and entry.version is not None:
            found[name] = evolve(
                found.get(name),
                wire_events.decode(entry.type, bytes(entry.data)),
                team=entry.team,
                handoff_id=name,
                by=entry.actor,
                at=entry.at,
            )
    return found


async def rows(postgres: PostgresServer) -> dict[str, int]:
    """Return how far each row is, as the table has it."""
    told = await asyncio.to_thread(postgres.run, "select id, applied_seq from handoff")
    pairs = (line.split("|") for line in told.split())
    return {name: int(seq) for name, seq in pairs}


async def watermark(postgres: PostgresServer) -> int:
    return int(await asyncio.to_thread(postgres.run, "select watermark from team"))


async def again(store: PostgresStore, key: tuple[str, str], *happened: events.Event) -> None:
    """Bring a handoff a step further, as often as another node comes first."""
    done = False
    while not done:
        try:
            async with store.transaction() as tx:
                loaded = await tx.load(Wanted(handoffs=frozenset({key})))
                with suppress(KeyError):  # as it is known here, that cannot happen to it
                    await tx.append(story(*happened, after=loaded.handoffs[key]).changes)
                    done = True
        except ConflictError:
            done = False


# --- compare and append ---------------------------------------------------------------------------


async def write_at_once(nodes: list[PostgresStore]) -> list[Entry]:
    """Have all nodes write to one handoff, and then to handoffs of their own, at the same time."""
    await commit(nodes[0], story(offered()))

    async def write(node: int) -> None:
        for number in range(6):
            await again(nodes[node], FIRST, events.Noted())
            made = story(offered(), number=100 * node + number + 2)
            while True:
                try:
                    await commit(nodes[node], made)
                except ConflictError:
                    continue
                break

    async with asyncio.timeout(SECONDS_MAX):
        ended = await asyncio.gather(
            *(write(node) for node in range(len(nodes))), return_exceptions=True
        )
    failed = [error for error in ended if error is not None]
    assert not failed, failed
    return await read_log(nodes[0])


async def test_nodes_that_write_at_once_write_one_history(nodes: list[PostgresStore]) -> None:
    log = await write_at_once(nodes)
    assert holds(log)
    assert len(log) == 1 + 3 * 6 * 2
    assert folded(log)[handoff_id(1)].version == 1 + 3 * 6
    for node in nodes:
        assert await node.head(TEAM) == Head(seq=log[-1].seq, hash=log[-1].hash)
        found = await node.list_handoffs(Page(team=TEAM, limit=100))
        assert {handoff.id: handoff for handoff in found} == folded(log)


@pytest.fixture
def comparing(postgres: PostgresServer) -> Iterator[str]:
    """The function that appends, which is put back afterwards."""
    step = migrations.STEPS[-1]
    function = step[step.index("create function append(") :].replace(
        "create function", "create or replace function"
    )
    yield function
    postgres.run(function)


async def test_an_append_that_compares_nothing_is_noticed(
    nodes: list[PostgresStore], comparing: str, postgres: PostgresServer
) -> None:
    """CONTROL: a lost comparison."""
    assert COMPARISON in comparing
    await asyncio.to_thread(postgres.run, comparing.replace(COMPARISON, "true"))
    with pytest.raises((AssertionError, TimeoutError)):
        await test_nodes_that_write_at_once_write_one_history(nodes)


# --- folding what others wrote --------------------------------------------------------------------


async def test_a_node_folds_what_another_wrote_once(nodes: list[PostgresStore]) -> None:
    here, there, _ = nodes
    await commit(here, story(offered()))
    await again(there, FIRST, events.Noted())
    await again(here, FIRST, *SETTLED[:1])
    for node in nodes:
        [handoff] = await node.handoffs([FIRST])
        assert handoff == folded(await read_log(node))[FIRST[1]]
        assert await node.places(TEAM, [(FIRST[1], n) for n in (1, 2, 3)]) == {
            (FIRST[1], n): n for n in (1, 2, 3)
        }
        assert len(await node.inbox(TEAM, RECIPIENT, after=0, limit=10)) == 1


async def test_a_replay_that_folds_twice_is_noticed(
    nodes: list[PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTROL."""
    fold = recovery.Replay.fold

    def twice(replay: recovery.Replay, state: State, kept: Any) -> None:
        fold(replay, state, kept)
        for handoff in list(state.unwritten_of(TEAM)):
            known = state.get((TEAM, handoff))
            assert known is not None, "it is unwritten"
            known.applied = 0
        fold(replay, state, ())

    monkeypatch.setattr(module.Replay, "fold", twice)
    with pytest.raises(Exception):  # noqa: B017, PT011  # whatever comes of it, it is noticed
        await test_a_node_folds_what_another_wrote_once(nodes)


async def test_what_another_node_took_is_not_there_to_be_taken(nodes: list[PostgresStore]) -> None:
    here, there, _ = nodes
    await commit(here, story(offered()))
    assert await there.head(TEAM) == await here.head(TEAM)
    assert there.waiting(TEAM, RECIPIENT)
    await again(here, FIRST, *SETTLED[:1])
    await there.flush(TEAM)
    assert not there.waiting(TEAM, RECIPIENT)
    async with there.transaction() as tx:
        assert await tx.claimable(TEAM, RECIPIENT, limit=10) == []


async def test_a_row_that_is_ahead_of_a_node_does_not_lead_it_astray(
    nodes: list[PostgresStore], database: str
) -> None:
    """A node that reads a row which another wrote later finds it where that row says."""
    here, there, _ = nodes
    await commit(here, story(offered()))
    await here.flush(TEAM)
    late = await PostgresStore.open(database)  # knows that it is offered, and has not read it
    await again(here, FIRST, *SETTLED)
    await here.flush(TEAM)

    async def read() -> None:
        async with late.transaction() as tx:
            loaded = await tx.load(Wanted(handoffs=frozenset({FIRST})))
            assert loaded.handoffs[FIRST].settled_at is not None, "as its row has it"

    with pytest.raises(ConflictError):
        await read()
    assert await late.handoffs([FIRST]) == await here.handoffs([FIRST])
    assert not late.waiting(TEAM, RECIPIENT)
    assert await late.next_due() is None
    late.crash()
    del there


# --- rows written behind, and the watermark --------------------------------------------------------


async def work(nodes: list[PostgresStore], seed: int, steps: int) -> None:
    """Have nodes chosen by chance offer, go on, write behind, or stop for good and start again."""
    chance = Random(seed)
    under_way: dict[str, list[events.Event]] = {}
    for number in range(1, steps + 1):
        node = chance.choice(nodes)
        if chance.random() < 0.5 or not under_way:
            made = story(offered(), number=number, bodies={1: b'{"n":1}'})
            while True:
                try:
                    await commit(node, made)
                except ConflictError:
                    continue
                break
            under_way[made.handoff.id] = list(SETTLED)
        else:
            name = chance.choice(sorted(under_way))
            await again(node, (TEAM, name), under_way[name].pop(0))
            if not under_way[name]:
                del under_way[name]
        if chance.random() < 0.1:
            await chance.choice(nodes).flush(TEAM)


async def require_true_rows(nodes: list[PostgresStore], postgres: PostgresServer) -> None:
    """Hold the tables to the log: up to the watermark nothing is missing, and nothing is ahead."""
    log = list(await nodes[0].log(LogPage(team=TEAM, limit=10_000)))
    assert holds(log)
    mark, found = await watermark(postgres), await rows(postgres)
    last: dict[str, int] = {}
    for entry in log:
        if entry.handoff_id is not None and entry.version is not None:
            assert found.get(entry.handoff_id, 0) >= entry.seq or entry.seq > mark, entry.seq
            last[entry.handoff_id] = entry.seq
    assert all(seq <= last[name] for name, seq in found.items())
    assert mark <= log[-1].seq
    items = await asyncio.to_thread(postgres.run, "select count(distinct seq) from inbox")
    offers = [e for e in log if e.type == "handoff.offered.v1" and e.seq <= mark]
    assert int(items) >= len(offers), "each is in its recipient's inbox"


@pytest.mark.parametrize("seed", range(3))
async def test_the_watermark_is_true_whichever_node_writes_rows(
    nodes: list[PostgresStore], postgres: PostgresServer, database: str, seed: int
) -> None:
    await work(nodes, seed, 60)
    await require_true_rows(nodes, postgres)
    expected = folded(list(await nodes[0].log(LogPage(team=TEAM, limit=10_000))))
    for node in nodes:
        await node.flush(TEAM)
    await require_true_rows(nodes, postgres)
    started = await PostgresStore.open(database)
    try:
        for node in (*nodes, started):
            found = await node.list_handoffs(Page(team=TEAM, limit=1_000))
            assert {handoff.id: handoff for handoff in found} == expected
    finally:
        started.crash()


async def test_a_watermark_that_passes_over_a_row_is_noticed(
    nodes: list[PostgresStore], postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTROL."""
    taken = State.piece_of

    def hasty(state: State, name: str, most: int) -> Any:
        piece = taken(state, name, most)
        return replace(piece, rows=piece.rows[1:])

    monkeypatch.setattr(State, "piece_of", hasty)
    with pytest.raises(AssertionError):
        await test_the_watermark_is_true_whichever_node_writes_rows(nodes, postgres, "", 0)


# --- a log that lost its end ------------------------------------------------------------------------


async def test_a_node_that_knows_more_than_a_promoted_standby_reads_its_log_again(
    nodes: list[PostgresStore],
) -> None:
    """After an asynchronous failover the end of the log may be gone, though it was acknowledged."""
    here, there, _ = nodes
    fleet = PostgresFleet(there, node="there")
    await fleet.join()
    await commit(here, story(offered()))
    kept = await here.head(TEAM)
    await commit(here, story(offered(), number=2))
    assert len(await there.handoffs([FIRST, (TEAM, handoff_id(2))])) == 2
    await here.ask("delete from journal where last_seq > $1", kept.seq)
    await here.ask(
        "update team set head_seq = $1, head_hash = $2, watermark = 0", kept.seq, kept.hash
    )
    await here.ask("delete from handoff")
    await here.ask("delete from inbox")
    for node in (here, there):
        assert [h.id for h in await node.handoffs([FIRST, (TEAM, handoff_id(2))])] == [FIRST[1]]
        assert await node.head(TEAM) == kept
    assert await commit(here, story(offered(), number=3)) == [kept.seq + 1]
    assert holds(await read_log(there))
    news = await fleet.news()
    assert [each.changes for each in news if each.team == TEAM] == [None], (
        "everything is read again"
    )
