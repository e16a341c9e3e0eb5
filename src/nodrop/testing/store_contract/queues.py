"""The contract of what a relay acts on: queues, due times, what a process holds."""

from msgspec.structs import replace

from nodrop.log.port import Changes, Store, row_of
from nodrop.model import events
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, SENDER, TEAM, Story, handoff_id, offered, story
from nodrop.testing.store_contract.setting import OTHER_TEAM, Setting, commit

DELIVERED = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
ACKNOWLEDGED = events.Acknowledged(attempt=1, next_update_at=T0 + 1)
ENDED = (DELIVERED, ACKNOWLEDGED, events.Completed(attempt=1))


class QueueContract(Setting):
    """Queues, due times and holds."""

    # --- what can be taken ---

    async def test_a_queue_is_taken_in_the_order_of_rank(self, store: Store) -> None:
        """Smallest first; among equals the one that was offered first; `limit` bounds it."""
        ranks = {1: 300, 2: 100, 3: 200, 4: 100, 5: -7}
        for number, rank in ranks.items():
            await commit(store, _ranked(story(offered(), number=number), rank))
        assert await _claimable(store) == [handoff_id(n) for n in (5, 2, 4, 3, 1)]
        assert await _claimable(store, limit=2) == [handoff_id(5), handoff_id(2)]

    async def test_only_the_recipient_and_only_what_has_a_rank_is_claimable(
        self, store: Store
    ) -> None:
        """Nothing of another agent, of another team, or not to be taken now."""
        await commit(
            store,
            story(offered(), number=1),
            story(offered(recipient="someone_else"), number=2),
            story(offered(), number=3, team=OTHER_TEAM),
            story(offered(), DELIVERED, number=4),
            _ranked(story(offered(), number=5), None),
        )
        assert await _claimable(store) == [handoff_id(1)]
        assert await _claimable(store, agent="nobody") == []
        assert await _claimable(store, team=OTHER_TEAM) == [handoff_id(3)]

    async def test_the_unfinished_are_counted_by_requester_and_recipient(
        self, store: Store
    ) -> None:
        """Of every team; what has an outcome is not among them, settled or not."""
        assert list(await store.unfinished()) == []
        await commit(
            store,
            story(offered(), number=1),
            story(offered(), DELIVERED, number=2),
            story(offered(recipient="someone_else"), number=3),
            story(offered(), *ENDED, number=4),
            story(offered(sender="worker", origin="asker"), number=5),
            story(offered(), number=6, team=OTHER_TEAM),
        )
        assert sorted(await store.unfinished()) == sorted(
            [
                (TEAM, SENDER, RECIPIENT, 2),
                (TEAM, SENDER, "someone_else", 1),
                (TEAM, "asker", RECIPIENT, 1),
                (OTHER_TEAM, SENDER, RECIPIENT, 1),
            ]
        )

    async def test_what_is_claimable_comes_as_it_was_committed(self, store: Store) -> None:
        """The whole handoff, not only its id."""
        told = story(offered(watchers=("me",), key="k"))
        await commit(store, told)
        async with store.transaction() as tx:
            assert list(await tx.claimable(TEAM, RECIPIENT, limit=10)) == [told.handoff]

    async def test_a_handoff_moves_to_the_queue_of_its_new_recipient(self, store: Store) -> None:
        """A row replaces the one before it, wherever that was found."""
        told = story(offered())
        await commit(store, told)
        moved = story(events.Reassigned(recipient="other", reason="reassigned"), after=told.handoff)
        await commit(store, moved)
        assert await _claimable(store) == []
        assert await _claimable(store, agent="other") == [handoff_id(1)]
        assert await store.queue(TEAM, RECIPIENT) == {}
        assert list(await store.queue(TEAM, "other")) == [handoff_id(1)]

    async def test_a_queue_is_what_the_recipient_has_not_finished(self, store: Store) -> None:
        """Taken or not, with its rank while it can be; not the ended, though nobody settled them."""
        await commit(
            store,
            _ranked(story(offered(), number=1), 7),
            story(offered(), DELIVERED, number=2),
            story(offered(), DELIVERED, ACKNOWLEDGED, number=3),
            story(offered(), *ENDED, number=4),
            story(offered(recipient="other"), number=5),
            story(offered(), number=6, team=OTHER_TEAM),
        )
        unfinished = {handoff_id(1): 7, handoff_id(2): None, handoff_id(3): None}
        assert await store.queue(TEAM, RECIPIENT) == unfinished
        assert await store.queue(TEAM, "nobody") == {}

    # --- what is due ---

    async def test_what_is_due_comes_oldest_first(self, store: Store) -> None:
        """At `now` included, later ones not, of every team, bounded by `limit`."""
        due = {1: T0 + 30, 2: T0 + 10, 3: T0 + 20, 4: T0 + 40}
        for number, at in due.items():
            team = OTHER_TEAM if number == 2 else TEAM
            await commit(store, _due(story(offered(), number=number, team=team), at))
        assert await _due_ids(store, now=T0 + 9) == []
        assert await _due_ids(store, now=T0 + 30) == [handoff_id(n) for n in (2, 3, 1)]
        assert await _due_ids(store, now=T0 + 99, limit=1) == [handoff_id(2)]

    async def test_the_next_due_time_is_the_earliest_of_all(self, store: Store) -> None:
        """None, when nothing is owed."""
        assert await store.next_due() is None
        first, second = story(offered(), number=1), story(offered(), number=2, team=OTHER_TEAM)
        await commit(store, _due(first, T0 + 50), _due(second, T0 + 20))
        assert await store.next_due() == T0 + 20
        later = story(events.Noted(), after=second.handoff, team=OTHER_TEAM)
        await commit(store, _due(later, T0 + 80))
        assert await store.next_due() == T0 + 50

    async def test_what_is_settled_is_never_due(self, store: Store) -> None:
        """Its row has no due time any more."""
        told = story(offered(), *ENDED)
        await commit(store, told)
        assert await _due_ids(store, now=T0 * 2) == [handoff_id(1)]
        await commit(store, story(events.Settled(), after=told.handoff))
        assert await _due_ids(store, now=T0 * 2) == []
        assert await store.next_due() is None

    # --- what is held ---

    async def test_what_a_process_holds_is_found_by_it(self, store: Store) -> None:
        """Delivered, accepted, or lapsed and revivable; not what it gave up or finished."""
        lapsed = events.Returned(reason="lease_lapsed", attempt=1, tried=True, revivable=True)
        released = events.Returned(reason="released", attempt=1)
        elsewhere = events.Delivered(attempt=1, process="p2", heartbeat_ms=10_000)
        await commit(
            store,
            story(offered(), DELIVERED, number=1),
            story(offered(), DELIVERED, ACKNOWLEDGED, number=2),
            story(offered(), DELIVERED, lapsed, number=3),
            story(offered(), DELIVERED, released, number=4),
            story(offered(), *ENDED, number=5),
            story(offered(), elsewhere, number=6),
            story(offered(), DELIVERED, number=7, team=OTHER_TEAM),
        )
        async with store.transaction() as tx:
            held = await tx.held(TEAM, "p1")
            assert await tx.held(TEAM, "nobody") == []
        assert sorted(handoff.id for handoff in held) == [handoff_id(n) for n in (1, 2, 3)]

    async def test_a_hold_ends_with_the_row_that_says_so(self, store: Store) -> None:
        """And the sender of the handoff has no part in it."""
        told = story(offered(), DELIVERED)
        await commit(store, told)
        await commit(store, story(events.Returned(reason="x", attempt=1), after=told.handoff))
        async with store.transaction() as tx:
            assert await tx.held(TEAM, "p1") == []
            assert await tx.held(TEAM, SENDER) == []


def _ranked(told: Story, rank: int | None) -> Changes:
    return Changes(entries=told.entries, rows=[replace(row_of(told.handoff), rank=rank)])


def _due(told: Story, at: int) -> Changes:
    return Changes(entries=told.entries, rows=[replace(row_of(told.handoff), due_at=at)])


async def _claimable(
    store: Store, *, team: str = TEAM, agent: str = RECIPIENT, limit: int = 100
) -> list[str]:
    async with store.transaction() as tx:
        return [handoff.id for handoff in await tx.claimable(team, agent, limit=limit)]


async def _due_ids(store: Store, *, now: int, limit: int = 100) -> list[str]:
    async with store.transaction() as tx:
        return [handoff.id for handoff in await tx.due(now=now, limit=limit)]
