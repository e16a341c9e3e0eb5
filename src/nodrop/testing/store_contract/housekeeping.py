"""The contract of erasing and pruning: what goes, what stays, and that the chain holds."""

from typing import Final

import pytest

from nodrop.log.port import Changes, Horizon, KeyUse, LogPage, Page, Store, Wanted
from nodrop.model import events
from nodrop.model.events import Event
from nodrop.model.handoff import Handoff
from nodrop.model.limits import DAY
from nodrop.protocol.entries import hash_of
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, SENDER, TEAM, Story, handoff_id, offered, story
from nodrop.testing.store_contract.setting import (
    OTHER_TEAM,
    Setting,
    commit,
    entry_bodies,
    load,
    noted,
    read_log,
)

DELIVERED: Final = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
SETTLED: Final[tuple[Event, ...]] = (
    DELIVERED,
    events.Acknowledged(attempt=1, next_update_at=T0 + 1),
    events.Completed(attempt=1),
    events.Settled(),
)
DEAD: Final[tuple[Event, ...]] = (events.Expired(), events.Settled())
"""Settled, and still waiting for a decision."""

LATER: Final = T0 + DAY
"""Every handoff that was settled before this may be forgotten."""


class HousekeepingContract(Setting):
    """Erasing and pruning."""

    # --- erasing ---

    async def test_erasing_deletes_the_bodies_of_one_handoff(self, store: Store) -> None:
        """All of them, of no other, and the log keeps its digests and its chain."""
        bodies = {1: b"secret", 2: b"more"}
        await commit(
            store,
            story(offered(), events.Noted(), number=1, bodies=bodies),
            story(offered(), number=2, bodies={1: b"kept"}),
            story(offered(), number=1, team=OTHER_TEAM, bodies={1: b"kept too"}),
            Changes(entries=[noted(body=b"team's")]),
        )
        before = await read_log(store)
        assert await store.erase(TEAM, handoff_id(1)) == 2
        assert await store.erase(TEAM, handoff_id(1)) == 0
        assert await store.erase(TEAM, "unknown") == 0
        assert await entry_bodies(store, [1, 2, 3, 4]) == {3: b"kept", 4: b"team's"}
        assert await entry_bodies(store, [1], OTHER_TEAM) == {1: b"kept too"}
        assert await read_log(store) == before
        assert len(await store.handoffs([(TEAM, handoff_id(1))])) == 1

    # --- pruning the log ---

    async def test_a_pruned_log_begins_at_its_horizon(self, store: Store) -> None:
        """The chain goes on from the hash that the horizon holds."""
        await commit(store, Changes(entries=[noted()] * 5))
        assert await store.horizon(TEAM) is None
        horizon = await _horizon(store, 3)
        assert await store.prune(horizon, forget_before=T0) == 3
        assert await store.horizon(TEAM) == horizon
        assert await store.horizon(OTHER_TEAM) is None
        assert await commit(store, Changes(entries=[noted()])) == [6]
        left = await read_log(store)
        assert [entry.seq for entry in left] == [4, 5, 6]
        assert [entry.prev_hash for entry in left] == [
            horizon.hash,
            left[0].hash,
            left[1].hash,
        ]
        assert all(entry.hash == hash_of(entry) for entry in left)
        page = LogPage(team=TEAM, after=4, limit=1)
        assert [entry.seq for entry in await store.log(page)] == [5]

    async def test_a_log_that_was_pruned_to_its_end_goes_on(self, store: Store) -> None:
        """Its head stays where it was."""
        await commit(store, Changes(entries=[noted()] * 2))
        head = await store.head(TEAM)
        await store.prune(await _horizon(store, 2), forget_before=T0)
        assert await read_log(store) == []
        assert await store.head(TEAM) == head
        assert await commit(store, Changes(entries=[noted()])) == [3]
        assert [entry.prev_hash for entry in await read_log(store)] == [head.hash]

    async def test_pruning_twice_at_one_horizon_changes_nothing_more(self, store: Store) -> None:
        """A repeat after a lost answer is harmless."""
        await commit(store, Changes(entries=[noted()] * 3))
        horizon = await _horizon(store, 2)
        assert await store.prune(horizon, forget_before=T0) == 2
        assert await store.prune(horizon, forget_before=T0) == 0
        assert [entry.seq for entry in await read_log(store)] == [3]

    async def test_a_horizon_that_does_not_fit_the_log_cuts_nothing(self, store: Store) -> None:
        """What is cut cannot be checked afterwards, so it is checked before."""
        await commit(store, Changes(entries=[noted()] * 3))
        [first, second, _] = await read_log(store)
        wrong = Horizon(
            team=TEAM,
            seq=second.seq,
            hash=first.hash,
            at=T0,
            snapshots=(),
            public_key="",
            signature="",
        )
        with pytest.raises(AssertionError):
            await store.prune(wrong, forget_before=T0)
        assert len(await read_log(store)) == 3
        assert await store.horizon(TEAM) is None

    async def test_pruning_one_team_leaves_the_others_alone(self, store: Store) -> None:
        """Their logs, bodies, rows and keys."""
        theirs = story(offered(key="k"), *SETTLED, team=OTHER_TEAM, bodies={1: b"theirs"})
        await commit(store, story(offered(), *SETTLED), theirs, _key(1, OTHER_TEAM))
        await store.prune(await _horizon(store, 5), forget_before=LATER)
        assert len(await read_log(store, OTHER_TEAM)) == 5
        assert await entry_bodies(store, [1], OTHER_TEAM) == {1: b"theirs"}
        assert await store.handoffs([(OTHER_TEAM, handoff_id(1))]) == [theirs.handoff]
        assert await store.resolve(OTHER_TEAM, f"{SENDER}/k1") == [handoff_id(1)]
        assert len(await store.inbox(OTHER_TEAM, RECIPIENT, after=0, limit=10)) == 1

    # --- what goes with it ---

    async def test_what_was_cut_is_found_no_longer(self, store: Store) -> None:
        """Places, commands, entries by `seq`, and the bodies of entries about the team."""
        told = story(offered(), *SETTLED, command_id="c1", bodies={1: b"offer"})
        await commit(store, told, Changes(entries=[noted(body=b"note"), noted(body=b"last")]))
        await store.prune(await _horizon(store, 6), forget_before=T0)
        commands = frozenset({(TEAM, SENDER, "c1")})
        entries = frozenset({(TEAM, 1), (TEAM, 7)})
        loaded = await load(store, Wanted(commands=commands, entries=entries))
        assert dict(loaded.commands) == {}
        assert list(loaded.entries) == [(TEAM, 7)]
        assert await store.places(TEAM, [(handoff_id(1), 1)]) == {}
        assert await store.bodies(TEAM, [(handoff_id(1), 1)]) == {}
        assert await entry_bodies(store, [1, 6, 7]) == {7: b"last"}

    async def test_the_bodies_of_what_is_in_the_snapshots_stay(self, store: Store) -> None:
        """Until a later horizon no longer has it."""
        told = story(offered(), bodies={1: b"offer"})
        await commit(store, told, Changes(entries=[noted()]))
        await store.prune(await _horizon(store, 1, told.handoff), forget_before=LATER)
        assert await store.bodies(TEAM, [(handoff_id(1), 1)]) == {(handoff_id(1), 1): b"offer"}
        await commit(store, story(*SETTLED, after=told.handoff, bodies={4: b"result"}))
        await store.prune(await _horizon(store, 5), forget_before=T0)
        left = await store.bodies(TEAM, [(handoff_id(1), 1), (handoff_id(1), 4)])
        assert left == {}

    async def test_a_body_stays_while_its_entry_does(self, store: Store) -> None:
        """Of one handoff, those before the cut go and those after it stay."""
        told = story(offered(), *SETTLED, bodies={1: b"offer", 4: b"result"})
        await commit(store, told)
        await store.prune(await _horizon(store, 2), forget_before=T0)
        left = await store.bodies(TEAM, [(handoff_id(1), 1), (handoff_id(1), 4)])
        assert left == {(handoff_id(1), 4): b"result"}

    # --- what is forgotten ---

    async def test_a_handoff_that_is_over_is_forgotten(self, store: Store) -> None:
        """Row, key, inbox items; nobody will ask for it again."""
        await commit(store, story(offered(), *SETTLED), _key(1), Changes(entries=[noted()]))
        await store.prune(await _horizon(store, 5), forget_before=LATER)
        assert await _remembered(store, 1) == set()
        page = Page(team=TEAM, party=SENDER, limit=10)
        assert await store.list_handoffs(page) == []

    @pytest.mark.parametrize(
        ("told", "cut", "forget_before"),
        [
            pytest.param(story(offered(), DELIVERED), 2, LATER, id="unfinished"),
            pytest.param(story(offered(), *SETTLED[:-1]), 4, LATER, id="unsettled"),
            pytest.param(story(offered(), *DEAD), 3, LATER, id="undecided"),
            pytest.param(story(offered(), *SETTLED), 5, T0, id="settled too lately"),
            pytest.param(story(offered(), *SETTLED), 4, LATER, id="still in the log"),
        ],
    )
    async def test_what_may_still_be_asked_for_is_not_forgotten(
        self, store: Store, told: Story, cut: int, forget_before: int
    ) -> None:
        """The row, its key and its inbox items stay, though the entries went."""
        await commit(store, told, _key(1), Changes(entries=[noted()]))
        await store.prune(await _horizon(store, cut, told.handoff), forget_before=forget_before)
        assert await _remembered(store, 1) == {"row", "key", "inbox"}
        [item] = await store.inbox(TEAM, RECIPIENT, after=0, limit=10)
        assert (item.seq, item.kind, item.actor, item.at) == (1, "handoff", SENDER, T0)

    async def test_inbox_items_about_no_handoff_go_with_their_entries(self, store: Store) -> None:
        """Those of entries that stay, stay."""
        await commit(store, Changes(entries=[noted(mail=(("me", "message"),))] * 2))
        await store.prune(await _horizon(store, 1), forget_before=T0)
        assert [item.seq for item in await store.inbox(TEAM, "me", after=0, limit=10)] == [2]

    async def test_the_key_of_a_successor_is_not_forgotten(self, store: Store) -> None:
        """Though the one it succeeds used it first."""
        over, successor = story(offered(), *SETTLED, number=1), story(offered(), number=2)
        await commit(store, over, successor, _key(1))
        use = KeyUse(team=TEAM, sender=SENDER, key="k1", handoff_id=handoff_id(2), digest="d")
        await commit(store, Changes(keys=[use]))
        await store.prune(await _horizon(store, 6, successor.handoff), forget_before=LATER)
        assert await store.resolve(TEAM, f"{SENDER}/k1") == [handoff_id(2)]


def _key(number: int, team: str = TEAM) -> Changes:
    use = KeyUse(
        team=team, sender=SENDER, key=f"k{number}", handoff_id=handoff_id(number), digest="d"
    )
    return Changes(keys=[use])


async def _horizon(store: Store, seq: int, *snapshots: Handoff) -> Horizon:
    [entry] = await store.log(LogPage(team=TEAM, after=seq - 1, limit=1))
    return Horizon(
        team=TEAM,
        seq=seq,
        hash=entry.hash,
        at=T0,
        snapshots=list(snapshots),
        public_key="key",
        signature="signature",
    )


async def _remembered(store: Store, number: int) -> set[str]:
    """Return which traces there are of a handoff besides the log."""
    inbox = await store.inbox(TEAM, RECIPIENT, after=0, limit=10)
    found = {
        "row": await store.handoffs([(TEAM, handoff_id(number))]),
        "key": await store.resolve(TEAM, f"{SENDER}/k{number}"),
        "inbox": [item for item in inbox if item.handoff_id == handoff_id(number)],
    }
    return {name for name, trace in found.items() if trace}
