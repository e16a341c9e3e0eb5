"""The contract of finding handoffs: by id, by reference, by list."""

from typing import Any

import pytest

from nodrop.log.port import Changes, KeyUse, Page, Store
from nodrop.model import events
from nodrop.testing.handoffs import RECIPIENT, SENDER, TEAM, handoff_id, offered, story, terms
from nodrop.testing.store_contract.setting import OTHER_TEAM, Setting, commit

DELIVERED = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)


class ListContract(Setting):
    """Ids, references and pages."""

    async def test_handoffs_are_found_by_key(self, store: Store) -> None:
        """Those that there are, as they were committed; a foreign team has none."""
        one, two = story(offered(), number=1), story(offered(), DELIVERED, number=2)
        await commit(store, one, two)
        keys = [(TEAM, handoff_id(n)) for n in (2, 3, 1)]
        found = await store.handoffs(keys)
        assert sorted(found, key=lambda h: h.id) == [one.handoff, two.handoff]
        assert await store.handoffs([(OTHER_TEAM, handoff_id(1))]) == []
        assert await store.handoffs([]) == []

    async def test_what_is_at_hand_is_as_it_was_committed(self, store: Store) -> None:
        """A store may have nothing at hand; what it has is no older than the last commit."""
        told = story(offered())
        await commit(store, told)
        assert store.cached((TEAM, handoff_id(1))) in (told.handoff, None)
        later = story(DELIVERED, after=told.handoff)
        await commit(store, later)
        assert store.cached((TEAM, handoff_id(1))) in (later.handoff, None)
        assert store.cached((TEAM, handoff_id(2))) is None
        assert store.cached((OTHER_TEAM, handoff_id(1))) is None

    async def test_a_row_replaces_the_one_before_it(self, store: Store) -> None:
        """Every field of the handoff is the later one's."""
        told = story(offered())
        await commit(store, told)
        later = story(DELIVERED, events.Cancelled(), after=told.handoff)
        await commit(store, later)
        assert await store.handoffs([(TEAM, handoff_id(1))]) == [later.handoff]
        assert await _listed(store, state="offered") == []
        assert await _listed(store, state="cancelled") == [1]

    # --- references ---

    async def test_a_reference_is_a_sender_and_its_key(self, store: Store) -> None:
        """Of the same team; the key may have slashes of its own."""
        await commit(
            store,
            story(offered(), number=1),
            Changes(keys=[_use("msg_123", 1), _use("a/b", 2), _use("%", 3)]),
        )
        assert await store.resolve(TEAM, f"{SENDER}/msg_123") == [handoff_id(1)]
        assert await store.resolve(TEAM, f"{SENDER}/a/b") == [handoff_id(2)]
        assert await store.resolve(TEAM, f"{SENDER}/msg") == []
        assert await store.resolve(TEAM, "nobody/msg_123") == []
        assert await store.resolve(OTHER_TEAM, f"{SENDER}/msg_123") == []

    async def test_a_prefix_finds_the_ids_it_fits_and_at_most_two(self, store: Store) -> None:
        """Two are enough to know that it is ambiguous."""
        stories = [story(offered(), number=number) for number in (1, 2, 3)]
        await commit(store, *stories, story(offered(), number=4, team=OTHER_TEAM))
        everything = handoff_id(1)[:8]
        assert all(handoff_id(n).startswith(everything) for n in (1, 2, 3, 4))
        assert len(await store.resolve(TEAM, everything)) == 2
        assert await store.resolve(OTHER_TEAM, everything) == [handoff_id(4)]
        assert await store.resolve(TEAM, handoff_id(2)) == [handoff_id(2)]
        assert await store.resolve(TEAM, handoff_id(2)[:13]) == [handoff_id(2)]
        assert await store.resolve(TEAM, handoff_id(4)) == []

    @pytest.mark.parametrize("reference", ["%", "_%", "0%", "01*", "0_", "?", "[0-9]", "'", "\\"])
    async def test_no_character_of_a_reference_is_a_wildcard(
        self, store: Store, reference: str
    ) -> None:
        """Neither SQL's nor a shell's."""
        await commit(store, story(offered()), Changes(keys=[_use("k", 1)]))
        assert handoff_id(1).startswith("01")
        assert await store.resolve(TEAM, reference) == []
        assert await store.resolve(TEAM, f"{SENDER}/{reference}") == []

    # --- lists ---

    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            ({}, [7, 6, 5, 4, 3, 2, 1]),
            ({"party": "alice"}, [7, 4, 3, 2, 1]),
            ({"party": "bob"}, [6, 1]),
            ({"party": "nobody"}, []),
            ({"sender": "alice"}, [1]),
            ({"recipient": "alice"}, [2]),
            ({"recipient": "bob"}, [6, 1]),
            ({"recipient": "former"}, []),
            ({"party": "former"}, []),
            ({"state": "offered"}, [6, 4, 3, 2, 1]),
            ({"state": "delivered"}, [5]),
            ({"state": "expired"}, [7]),
            ({"state": "failed"}, []),
            ({"dead": True}, [7]),
            ({"dead": False}, [6, 5, 4, 3, 2, 1]),
            ({"dead": True, "party": "bob"}, []),
            ({"correlation_id": "chain-x"}, [5, 2]),
            ({"correlation_id": "chain-x", "state": "delivered"}, [5]),
            ({"correlation_id": "chain-x", "party": "alice"}, [2]),
            ({"party": "alice", "sender": "alice"}, [1]),
            ({"party": "alice", "state": "expired"}, [7]),
            ({"sender": SENDER, "recipient": "bob"}, [6]),
            ({"party": "alice", "sender": SENDER, "recipient": RECIPIENT}, [7, 4, 3]),
            ({"party": "bob", "recipient": "bob", "state": "offered"}, [6, 1]),
            ({"marks": ("a=x",)}, [6, 3, 2]),
            ({"marks": ("b=y",)}, [3]),
            ({"marks": ("a=x", "b=y")}, [3]),
            ({"marks": ("a=x", "b=z")}, []),
            ({"marks": ("a=x",), "party": "alice"}, [3, 2]),
            ({"marks": ("a=x", "b=y"), "party": "alice"}, [3]),
            ({"marks": ("a=x",), "party": "bob"}, [6]),
            ({"marks": ("a=x",), "sender": SENDER}, [6, 3, 2]),
            ({"marks": ("a=x",), "recipient": "bob", "state": "offered"}, [6]),
            ({"marks": ("b=y",), "recipient": "bob", "state": "offered"}, []),
            ({"marks": ("a=x",), "party": "bob", "recipient": "bob", "state": "offered"}, [6]),
            ({"marks": ("a=x",), "state": "offered"}, [6, 3, 2]),
            ({"marks": ("a=x",), "state": "expired"}, []),
            ({"marks": ("a=x",), "correlation_id": "chain-x"}, [2]),
            ({"marks": ("a=x",), "before": handoff_id(6), "limit": 1}, [3]),
            ({"party": "a=x"}, []),
            ({"before": handoff_id(3)}, [2, 1]),
            ({"party": "alice", "before": handoff_id(4), "limit": 2}, [3, 2]),
            ({"limit": 3}, [7, 6, 5]),
        ],
    )
    async def test_handoffs_are_listed_newest_first(
        self, store: Store, wanted: dict[str, Any], expected: list[int]
    ) -> None:
        """All that is given must fit; a party sends, asked for it first, receives or watches."""
        one, two = terms(marks=("a=x",)), terms(marks=("a=x", "b=y"))
        moved = events.Reassigned(recipient="bob", reason="reassigned")
        await commit(
            store,
            story(offered(sender="alice", recipient="bob"), number=1),
            story(offered(recipient="alice", correlation_id="chain-x", terms=one), number=2),
            story(offered(origin="alice", terms=two), number=3),
            story(offered(watchers=("me", "alice")), number=4),
            story(offered(correlation_id="chain-x"), DELIVERED, number=5),
            story(offered(recipient="former", terms=one), moved, number=6),
            story(offered(watchers=("alice",)), events.Expired(), number=7),
            story(offered(sender="alice", recipient="bob", terms=one), number=8, team=OTHER_TEAM),
        )
        assert await _listed(store, **wanted) == expected

    async def test_a_list_is_read_page_by_page(self, store: Store) -> None:
        """The last id of a page is where the next one begins."""
        await commit(store, *(story(offered(), number=number) for number in range(1, 8)))
        seen: list[int] = []
        before = None
        while page := await _listed(store, party=SENDER, before=before, limit=3):
            seen.extend(page)
            before = handoff_id(page[-1])
        assert seen == [7, 6, 5, 4, 3, 2, 1]

    async def test_a_handoff_is_listed_for_the_recipient_it_comes_to(self, store: Store) -> None:
        """And no longer for the one it left."""
        told = story(offered())
        await commit(store, told)
        moved = events.Reassigned(recipient="other", reason="reassigned")
        await commit(store, story(moved, after=told.handoff))
        assert await _listed(store, party="other") == [1]
        assert await _listed(store, party=RECIPIENT) == []


def _use(key: str, number: int) -> KeyUse:
    return KeyUse(team=TEAM, sender=SENDER, key=key, handoff_id=handoff_id(number), digest="d")


async def _listed(store: Store, **wanted: Any) -> list[int]:
    page: dict[str, Any] = {"team": TEAM, "limit": 100, **wanted}
    found = await store.list_handoffs(Page(**page))
    return [int(handoff.id[-12:], 16) for handoff in found]
