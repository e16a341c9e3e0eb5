"""The contract of a unit of work: all or nothing, one after the other, only what is committed."""

import asyncio

import pytest

from nodrop.log.port import Changes, KeyUse, LogPage, Process, Store, Token, Wanted
from nodrop.model import events
from nodrop.model.errors import RelayFaultError
from nodrop.protocol.entries import Entry, Head
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, SENDER, TEAM, handoff_id, offered, story
from nodrop.testing.store_contract.setting import (
    OTHER_TEAM,
    WAIT_SECONDS_MAX,
    Setting,
    commit,
    load,
    noted,
    read_log,
)

FIRST = (TEAM, handoff_id(1))


class TransactionContract(Setting):
    """Units of work."""

    async def test_what_was_committed_is_there_in_the_next_transaction(self, store: Store) -> None:
        """The row, the log and the body agree after the commit."""
        told = story(
            offered(),
            events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000),
            bodies={1: b'{"title":"Login button"}'},
        )
        await commit(store, told)
        loaded = await load(store, Wanted(handoffs=frozenset({FIRST})))
        assert loaded.handoffs == {FIRST: told.handoff}
        assert [(e.handoff_id, e.version, e.type) for e in await read_log(store)] == [
            (told.handoff.id, 1, "handoff.offered.v1"),
            (told.handoff.id, 2, "handoff.delivered.v1"),
        ]
        assert await store.bodies(TEAM, [(told.handoff.id, 1)]) == {
            (told.handoff.id, 1): b'{"title":"Login button"}'
        }

    async def test_what_is_not_there_is_missing_and_no_error(self, store: Store) -> None:
        """Absence is an answer."""
        wanted = Wanted(
            handoffs=frozenset({FIRST}),
            keys=frozenset({(TEAM, SENDER, "k")}),
            commands=frozenset({(TEAM, SENDER, "c")}),
            entries=frozenset({(TEAM, 1)}),
        )
        loaded = await load(store, wanted)
        assert (loaded.handoffs, loaded.keys, loaded.commands, loaded.entries) == ({}, {}, {}, {})

    async def test_a_transaction_that_raises_writes_nothing(self, store: Store) -> None:
        """All or nothing, whatever the block raised."""
        told = story(offered(), bodies={1: b"{}"}, command_id="c1")
        everything = Changes(
            entries=told.entries,
            rows=told.changes.rows,
            keys=[KeyUse(team=TEAM, sender=SENDER, key="k", handoff_id=FIRST[1], digest="d")],
            processes=[Process(team=TEAM, id="p", agent="a", heartbeat_ms=1, seen_at=T0)],
            tokens=[
                Token(
                    team=TEAM,
                    id="t",
                    secret_sha256="0" * 64,
                    agent="a",
                    role="agent",
                    created_at=T0,
                )
            ],
        )
        with pytest.raises(ZeroDivisionError):
            async with store.transaction() as tx:
                await tx.append(everything)
                raise ZeroDivisionError
        wanted = Wanted(
            handoffs=frozenset({FIRST}),
            keys=frozenset({(TEAM, SENDER, "k")}),
            commands=frozenset({(TEAM, SENDER, "c1")}),
        )
        loaded = await load(store, wanted)
        assert (loaded.handoffs, loaded.keys, loaded.commands) == ({}, {}, {})
        assert (await store.processes(), await store.tokens()) == ([], [])
        assert await store.bodies(TEAM, [(FIRST[1], 1)]) == {}
        assert await store.inbox(TEAM, RECIPIENT, after=0, limit=10) == []
        assert await store.head(TEAM) == Head()

    async def test_what_follows_a_transaction_that_raised_takes_its_place(
        self, store: Store
    ) -> None:
        """A `seq` that was not committed is given to the next one."""
        with pytest.raises(ZeroDivisionError):
            async with store.transaction() as tx:
                await tx.append(story(offered()).changes)
                raise ZeroDivisionError
        assert await commit(store, story(offered(), number=2)) == [1]

    async def test_a_transaction_may_append_more_than_once(self, store: Store) -> None:
        """The entries of the second follow those of the first."""
        first, second = story(offered(), number=1), story(offered(), number=2)
        assert await commit(store, first, second) == [1, 2]
        assert [e.handoff_id for e in await read_log(store)] == [
            first.handoff.id,
            second.handoff.id,
        ]

    async def test_append_returns_each_entrys_own_place(self, store: Store) -> None:
        """In the order given, whichever teams they are of."""
        await commit(store, Changes(entries=[noted(OTHER_TEAM)]))
        mixed = [noted(TEAM), noted(OTHER_TEAM), noted(TEAM), noted(OTHER_TEAM)]
        assert await commit(store, Changes(entries=mixed)) == [1, 2, 2, 3]

    async def test_a_second_event_of_one_version_is_refused(self, store: Store) -> None:
        """Two writers cannot both have appended version n; the loser leaves no trace."""
        told = story(offered())
        await commit(store, told)
        again = story(events.Noted(), after=told.handoff)
        await commit(store, again)
        with pytest.raises(RelayFaultError):
            await commit(store, story(offered(), number=2), again)
        assert await store.head(TEAM) == Head(seq=2, hash=(await read_log(store))[-1].hash)
        assert await store.handoffs([(TEAM, handoff_id(2))]) == []
        assert await commit(store, story(offered(), number=3)) == [3]

    async def test_a_reader_sees_only_what_is_committed(self, store: Store) -> None:
        """Whether it waits for the end of the block or not."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            async with store.transaction() as tx:
                await tx.append(story(offered()).changes)
                rows = asyncio.create_task(_rows(store))
                log = asyncio.create_task(_log(store))
                early, _ = await asyncio.wait([rows, log], timeout=0.2)
                assert [task.result() for task in early if task.result()] == []
            await asyncio.wait([rows, log])
            assert len(await _rows(store)) == len(await _log(store)) == 1

    async def test_no_update_is_lost_between_concurrent_transactions(self, store: Store) -> None:
        """What a transaction loaded is not changed by another before it ends."""
        await commit(store, story(offered()))

        async def note() -> None:
            async with store.transaction() as tx:
                loaded = await tx.load(Wanted(handoffs=frozenset({FIRST})))
                await asyncio.sleep(0)  # the moment in which another could slip in
                told = story(events.Noted(), after=loaded.handoffs[FIRST])
                await tx.append(told.changes)

        async with asyncio.timeout(WAIT_SECONDS_MAX), asyncio.TaskGroup() as tasks:
            for _ in range(10):
                tasks.create_task(note())
        [handoff] = await store.handoffs([FIRST])
        assert handoff.version == 11
        assert [entry.version for entry in await read_log(store)] == list(range(1, 12))

    async def test_a_reader_never_skips_a_slow_writer(self, store: Store) -> None:
        """`seq` order is commit order: following the log by `seq` is complete.

        Steps: a slow writer appends and stalls before its commit; a fast writer tries to overtake
        it; a reader reads and remembers where it was; the slow writer commits; the reader goes on.
        """
        appended, overtaken, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slow_writer() -> None:
            async with store.transaction() as tx:
                await tx.append(story(offered(), number=1).changes)
                appended.set()
                await go_on.wait()

        async def fast_writer() -> None:
            await commit(store, story(offered(), number=2))
            overtaken.set()

        seen: list[Entry] = []
        async with asyncio.timeout(WAIT_SECONDS_MAX), asyncio.TaskGroup() as tasks:
            tasks.create_task(slow_writer())
            await appended.wait()
            tasks.create_task(fast_writer())
            try:
                async with asyncio.timeout(0.2):  # a store may make the fast writer wait
                    await overtaken.wait()
            except TimeoutError:
                pass
            seen.extend(await store.log(LogPage(team=TEAM, limit=10)))
            go_on.set()
        after = seen[-1].seq if seen else 0
        seen.extend(await store.log(LogPage(team=TEAM, after=after, limit=10)))
        assert sorted(str(e.handoff_id) for e in seen) == [handoff_id(1), handoff_id(2)]

    @pytest.mark.parametrize("moment", ["block", "commit"])
    async def test_a_cancelled_transaction_is_kept_whole_or_not_at_all(
        self, store: Store, moment: str
    ) -> None:
        """Wherever the cancellation falls, the store goes on and nothing is half written."""
        await commit(store, story(offered(), number=100))
        kept = 1
        for number in range(1, 21):
            told = story(offered(), number=number, bodies={1: b"{}"})
            block_is_over = asyncio.Event()
            task = asyncio.create_task(_load_and_commit(store, told.changes, block_is_over))
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                if moment == "commit":
                    await block_is_over.wait()
                for _ in range(number - 1):  # a little later each time
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            row = await store.handoffs([(TEAM, told.handoff.id)])
            place = await store.places(TEAM, [(told.handoff.id, 1)])
            body = await store.bodies(TEAM, [(told.handoff.id, 1)])
            assert len(row) == len(place) == len(body)
            assert task.cancelled() or len(row) == 1
            kept += len(row)
        assert [entry.seq for entry in await read_log(store)] == list(range(1, kept + 1))
        assert await commit(store, story(offered(), number=21)) == [kept + 1]

    async def test_the_next_in_line_gets_its_turn_when_one_is_cancelled(self, store: Store) -> None:
        """Waiting for a turn can be given up."""
        first_is_in, go_on = asyncio.Event(), asyncio.Event()

        async def first() -> None:
            async with store.transaction():
                first_is_in.set()
                await go_on.wait()

        async with asyncio.timeout(WAIT_SECONDS_MAX), asyncio.TaskGroup() as tasks:
            tasks.create_task(first())
            await first_is_in.wait()
            impatient = asyncio.create_task(commit(store, story(offered(), number=1)))
            patient = tasks.create_task(commit(store, story(offered(), number=2)))
            await asyncio.sleep(0)
            impatient.cancel()
            go_on.set()
        assert patient.result() == [1]
        assert [entry.handoff_id for entry in await read_log(store)] == [handoff_id(2)]


async def _load_and_commit(store: Store, changes: Changes, block_is_over: asyncio.Event) -> None:
    async with store.transaction() as tx:
        await tx.load(Wanted(handoffs=frozenset({FIRST})))
        await tx.append(changes)
        block_is_over.set()


async def _rows(store: Store) -> list[object]:
    return list(await store.handoffs([FIRST]))


async def _log(store: Store) -> list[object]:
    return list(await read_log(store))
