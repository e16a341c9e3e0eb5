"""Pruning a large past while others work: nobody waits for a lock, and no step is large.

Not by the clock: each step of the pruning is held open, with whatever it has locked, while another
node does a whole cycle on connections that do not wait for locks at all.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import pytest

from nodrop.log.port import Changes, ConflictError, Horizon, KeyUse, LogPage, Team, Wanted
from nodrop.log.postgres import PostgresStore, connection, pruning
from nodrop.log.postgres.connection import connect
from nodrop.log.postgres.driver import Connection
from nodrop.model import events
from nodrop.model.handoff import Handoff
from nodrop.model.limits import DAY
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, SENDER, TEAM, handoff_id, offered, story
from nodrop.testing.store_contract.housekeeping import DELIVERED, SETTLED
from nodrop.testing.store_contract.setting import commit

PAST: Final = 120
STEP_ENTRIES: Final = 50
STEP_HANDOFFS: Final = 20
STEP_BATCHES: Final = 10
STEP_ROWS_MAX: Final = STEP_ENTRIES * 2
"""An entry goes with at most one body; a handoff with its key, two parties and no more."""
OPEN: Final = 1_000
"""The number of the handoff that is open before the cut and goes on after it."""


@pytest.fixture
async def store(database: str) -> AsyncIterator[PostgresStore]:
    async with await PostgresStore.open(database) as store:
        await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
        yield store


@pytest.fixture
async def impatient(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresStore]:
    """Another node on the same database, which waits a millisecond for a lock and no longer."""
    del store  # made first
    monkeypatch.setitem(connection.SETTINGS, "lock_timeout", "1ms")
    async with await PostgresStore.open(database) as another:
        yield another


@pytest.fixture
async def holder(database: str) -> AsyncIterator[Connection]:
    made = await connect(database)
    yield made
    made.terminate()


@pytest.fixture
async def past(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Horizon:
    """What is to go, and where it ends: many handoffs that are over, and one that is not."""
    monkeypatch.setattr(pruning, "STEP_ENTRIES", STEP_ENTRIES)
    monkeypatch.setattr(pruning, "STEP_BATCHES", STEP_BATCHES)
    monkeypatch.setattr(pruning, "STEP_HANDOFFS", STEP_HANDOFFS)
    going_on = story(offered(), number=OPEN, bodies={1: b"open"})
    over = [
        story(offered(), *SETTLED, number=number, bodies={1: b"offer", 4: b"result"})
        for number in range(PAST)
    ]
    await commit(store, going_on)
    for number, told in enumerate(over):
        await commit(store, told, Changes(keys=[key(number)]))
    noted = await commit(store, story(events.Noted(), after=going_on.handoff))
    await store.flush(TEAM)
    [last] = await store.log(LogPage(team=TEAM, after=noted[0] - 2, limit=1))
    return Horizon(
        team=TEAM,
        seq=last.seq,
        hash=last.hash,
        at=T0,
        snapshots=[going_on.handoff],
        public_key="key",
        signature="signature",
    )


def key(number: int) -> KeyUse:
    return KeyUse(
        team=TEAM, sender=SENDER, key=f"k{number}", handoff_id=handoff_id(number), digest="d"
    )


async def cycle(store: PostgresStore, number: int) -> None:
    """Offer, deliver and finish, with everything that a relay locks on the way."""
    await store.head(TEAM)  # by now it knows what the other node wrote
    await commit(store, story(offered(), number=number, bodies={1: b"offer"}))
    async with store.transaction() as tx:
        [taken] = await tx.claimable(TEAM, RECIPIENT, limit=1)
        await tx.append(story(DELIVERED, after=taken).changes)
    async with store.transaction() as tx:
        loaded = await tx.load(
            Wanted(
                handoffs=frozenset({(TEAM, taken.id)}),
                keys=frozenset({(TEAM, SENDER, "another")}),
                commands=frozenset({(TEAM, SENDER, "another")}),
            )
        )
        await tx.append(story(*SETTLED[1:], after=loaded.handoffs[TEAM, taken.id]).changes)
    async with store.transaction() as tx:
        await tx.due(now=T0, limit=10)


class Held:
    """Runs each step of a pruning, and has somebody do a cycle before it is committed."""

    def __init__(
        self, holder: Connection, writer: PostgresStore, *, spoil: str | None = None
    ) -> None:
        self.rows: list[int] = []
        """How many rows each step wrote or deleted."""
        self._holder = holder
        self._writer = writer
        self._spoil = spoil

    async def step(self, do: Callable[[Connection], Awaitable[int]]) -> int:
        async with self._holder.transaction():
            before = await self._holder.fetchval(_TOUCHED)
            done = await do(self._holder)
            if self._spoil is not None:
                await self._holder.execute(self._spoil)
            await cycle(self._writer, OPEN + 1 + len(self.rows))
            self.rows.append(await self._holder.fetchval(_TOUCHED) - before)
        return done


_TOUCHED: Final = """
    select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint
    from pg_stat_xact_user_tables
"""


async def test_whoever_works_while_a_large_past_is_pruned_waits_for_no_lock(
    store: PostgresStore, impatient: PostgresStore, holder: Connection, past: Horizon
) -> None:
    held = Held(holder, impatient)
    gone = await pruning.prune(held.step, past, forget_before=T0 + DAY)
    assert gone == past.seq
    assert len(held.rows) > past.seq / STEP_ENTRIES + PAST / STEP_HANDOFFS, "and each was held"
    assert max(held.rows) <= STEP_ROWS_MAX, "so little is locked at a time"
    [left] = await store.handoffs([(TEAM, handoff_id(n)) for n in (0, PAST - 1, OPEN)])
    assert left.id == handoff_id(OPEN)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param("select 1 from team for no key update", id="the end of the log"),
        pytest.param("lock table journal in share mode", id="a whole table"),
    ],
)
async def test_a_pruning_that_locked_more_would_be_noticed(
    impatient: PostgresStore, holder: Connection, past: Horizon, spoil: str
) -> None:
    """The control."""
    held = Held(holder, impatient, spoil=spoil)
    with pytest.raises(ConflictError):
        await pruning.prune(held.step, past, forget_before=T0 + DAY)


async def test_of_two_nodes_that_prune_at_once_both_come_to_the_same(
    store: PostgresStore, past: Horizon
) -> None:
    first, second = await asyncio.gather(
        store.prune(past, forget_before=T0 + DAY), store.prune(past, forget_before=T0 + DAY)
    )
    assert first + second == past.seq
    assert await _kept(store) == {handoff_id(OPEN)}


async def _kept(store: PostgresStore) -> set[str]:
    ids = [(TEAM, handoff_id(number)) for number in (*range(PAST), OPEN)]
    found: list[Handoff] = list(await store.handoffs(ids))
    return {handoff.id for handoff in found}
