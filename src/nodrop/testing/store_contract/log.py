"""The contract of the log and what lives beside it: chain, bodies, commands, inboxes."""

import hashlib
import json
from typing import Any

import msgspec
import pytest
import rfc8785
from msgspec.structs import replace

from nodrop.log.port import LARGE_BODY_BYTES, Body, Changes, LogPage, Place, Store, Wanted
from nodrop.model import events
from nodrop.model.handoff import QuestionKind
from nodrop.protocol.entries import GENESIS, Draft, Entry, Head, hash_of
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import RECIPIENT, SENDER, TEAM, handoff_id, offered, story
from nodrop.testing.store_contract.setting import (
    OTHER_TEAM,
    Setting,
    commit,
    entry_bodies,
    load,
    noted,
    read_log,
)

DELIVERED = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
ACKNOWLEDGED = events.Acknowledged(attempt=1, next_update_at=T0 + 1)


class LogContract(Setting):
    """The log, bodies and inboxes."""

    # --- order and chain ---

    async def test_seq_has_no_gaps_and_each_team_counts_its_own(self, store: Store) -> None:
        """Teams are independent: one's entries do not show in the other's numbers."""
        await commit(store, Changes(entries=[noted(TEAM), noted(OTHER_TEAM), noted(TEAM)]))
        await commit(store, Changes(entries=[noted(OTHER_TEAM)]))
        await commit(store, Changes(entries=[noted(TEAM)]))
        assert [entry.seq for entry in await read_log(store, TEAM)] == [1, 2, 3]
        assert [entry.seq for entry in await read_log(store, OTHER_TEAM)] == [1, 2]

    async def test_each_entry_hashes_the_one_before(self, store: Store) -> None:
        """Across commits, from the beginning, and recomputed without our own encoder."""
        words = {1: b'{"title":"\xc3\xa4"}'}
        await commit(store, story(offered(), DELIVERED, bodies=words, command_id="c1"))
        await commit(store, Changes(entries=[noted(body=b"{}")]), story(offered(), number=2))
        entries = await read_log(store)
        assert [entry.prev_hash for entry in entries] == [GENESIS, *(e.hash for e in entries[:-1])]
        assert [entry.hash for entry in entries] == [hash_of(entry) for entry in entries]
        assert [entry.hash for entry in entries] == [_hash_by_the_book(e) for e in entries]

    async def test_the_head_is_the_last_entry(self, store: Store) -> None:
        """And the beginning, where there is none."""
        assert await store.head(TEAM) == Head(seq=0, hash=GENESIS)
        await commit(store, story(offered(), DELIVERED))
        last = (await read_log(store))[-1]
        assert await store.head(TEAM) == Head(seq=2, hash=last.hash)
        assert await store.head(OTHER_TEAM) == Head(seq=0, hash=GENESIS)

    async def test_a_body_leaves_a_digest_that_nobody_can_guess_it_from(self, store: Store) -> None:
        """Equal bodies have different digests; with its salt, each can be checked."""
        same = b'{"note":"same"}'
        salts = [bytes([number]) * 16 for number in (1, 2)]
        salted = [msgspec.structs.replace(noted(body=same), salt=salt) for salt in salts]
        await commit(store, Changes(entries=[salted[0], noted(), salted[1]]))
        first, without, third = await read_log(store, TEAM)
        assert without.body_digest is None
        for entry, salt in ((first, salts[0]), (third, salts[1])):
            assert entry.body_digest == hashlib.sha256(salt + same).hexdigest()
        kept = await store.entry_bodies(TEAM, [1, 3])
        assert kept == {
            1: Body(salt=salts[0], body=same),
            3: Body(salt=salts[1], body=same),
        }

    async def test_an_entry_is_kept_as_it_was_written(self, store: Store) -> None:
        """Every field, and the data byte for byte."""
        data = '{"emoji":"\N{ROCKET}","quote":"\\"","spaced" : [1, 2]}'.encode()
        draft = Draft(
            team=TEAM,
            at=T0 + 17,
            type="handoff.noted.v1",
            actor="code_agent",
            handoff_id=handoff_id(9),
            version=3,
            correlation_id="chain",
            command_id="c1",
            data=msgspec.Raw(data),
        )
        await commit(store, Changes(entries=[draft]))
        [entry] = await read_log(store)
        kept = {name: getattr(entry, name) for name in draft.__struct_fields__[:8]}
        assert kept == {name: getattr(draft, name) for name in draft.__struct_fields__[:8]}
        assert bytes(entry.data) == data

    # --- reading it ---

    async def test_the_log_is_read_on_from_a_seq(self, store: Store) -> None:
        """A reader that remembers the last `seq` misses nothing and repeats nothing."""
        await commit(store, Changes(entries=[noted()] * 5))
        first = await store.log(LogPage(team=TEAM, limit=2))
        rest = await store.log(LogPage(team=TEAM, after=first[-1].seq, limit=10))
        assert [entry.seq for entry in [*first, *rest]] == [1, 2, 3, 4, 5]
        assert await store.log(LogPage(team=TEAM, after=5, limit=10)) == []

    @pytest.mark.parametrize(
        ("wanted", "seqs"),
        [
            ({}, [1, 2, 3, 4, 5, 6]),
            ({"handoff_id": handoff_id(1)}, [1, 2]),
            ({"handoff_id": handoff_id(7)}, []),
            ({"correlation_id": "left"}, [1, 2, 4]),
            ({"correlation_id": "right"}, [3]),
            ({"actor": "code_agent"}, [2, 6]),
            ({"type": "handoff.offered.v1"}, [1, 3]),
            ({"type": "handoff.*"}, [1, 2, 3]),
            ({"type": "handoff.offered"}, []),
            ({"type": "*"}, [1, 2, 3, 4, 5, 6]),
            ({"type": "h%"}, []),
            ({"type": "%*"}, []),
            ({"handoff_id": handoff_id(1), "type": "handoff.delivered.v1"}, [2]),
            ({"handoff_id": handoff_id(1), "correlation_id": "right"}, []),
            ({"correlation_id": "left", "actor": "me"}, [4]),
            ({"correlation_id": "left", "after": 1, "limit": 1}, [2]),
            ({"actor": "code_agent", "after": 2}, [6]),
            ({"type": "handoff.*", "limit": 2}, [1, 2]),
            ({"handoff_id": handoff_id(1), "after": 1}, [2]),
            ({"after": -(2**63)}, [1, 2, 3, 4, 5, 6]),
            ({"after": 2**63 - 1}, []),
            ({"actor": "code_agent", "after": -(2**63)}, [2, 6]),
            ({"type": "handoff.*", "after": 2**63 - 1}, []),
        ],
    )
    async def test_the_log_is_filtered(
        self, store: Store, wanted: dict[str, Any], seqs: list[int]
    ) -> None:
        """By handoff, chain, actor and type; all that are given must fit."""
        left = story(offered(correlation_id="left"), number=1)
        taken = story(DELIVERED, after=left.handoff, by="code_agent")
        right = story(offered(correlation_id="right"), number=2)
        about_left = msgspec.structs.replace(noted(), correlation_id="left")
        await commit(store, left, taken, right)
        await commit(store, Changes(entries=[about_left, noted(), noted(actor="code_agent")]))
        await commit(store, Changes(entries=[noted(OTHER_TEAM, actor="code_agent")]))
        page: dict[str, Any] = {"team": TEAM, "limit": 10, **wanted}
        assert [entry.seq for entry in await store.log(LogPage(**page))] == seqs

    # --- bodies and places ---

    async def test_bodies_are_found_by_handoff_and_version(self, store: Store) -> None:
        """Byte for byte; what brought none, or does not exist, is missing."""
        payload = b'{"payload":"\x00\xff not even text"}'
        told = story(offered(), DELIVERED, ACKNOWLEDGED, bodies={1: payload, 3: b""})
        await commit(store, told)
        one = told.handoff.id
        wanted = [(one, 1), (one, 2), (one, 3), (one, 4), (handoff_id(2), 1)]
        assert await store.bodies(TEAM, wanted) == {(one, 1): payload, (one, 3): b""}
        assert await store.bodies(OTHER_TEAM, wanted) == {}

    async def test_the_sizes_of_large_bodies_are_found_by_handoff_and_version(
        self, store: Store
    ) -> None:
        """Small ones, and what brought none, are left out."""
        large = b"x" * (LARGE_BODY_BYTES + 1)
        told = story(offered(), DELIVERED, ACKNOWLEDGED, bodies={1: large, 3: b"small"})
        await commit(store, told)
        one = told.handoff.id
        wanted = [(one, 1), (one, 2), (one, 3), (one, 4), (handoff_id(2), 1)]
        assert await store.body_sizes(TEAM, wanted) == {(one, 1): len(large)}
        assert await store.body_sizes(OTHER_TEAM, wanted) == {}

    async def test_bodies_are_found_by_entry(self, store: Store) -> None:
        """Whether or not the entry is an event of a handoff."""
        await commit(store, Changes(entries=[noted(body=b"team"), noted()]))
        await commit(store, story(offered(), DELIVERED, bodies={1: b"offer"}))
        assert await entry_bodies(store, [1, 2, 3, 4, 5]) == {1: b"team", 3: b"offer"}
        assert await entry_bodies(store, [1, 3], OTHER_TEAM) == {}

    async def test_the_place_of_an_event_is_found_by_handoff_and_version(
        self, store: Store
    ) -> None:
        """And the other way round, in a transaction."""
        await commit(store, Changes(entries=[noted()]), story(offered(), DELIVERED))
        one = handoff_id(1)
        assert await store.places(TEAM, [(one, 1), (one, 2), (one, 3)]) == {
            (one, 1): 2,
            (one, 2): 3,
        }
        assert await store.places(OTHER_TEAM, [(one, 1)]) == {}
        loaded = await load(store, Wanted(entries=frozenset({(TEAM, 1), (TEAM, 3), (TEAM, 4)})))
        assert loaded.entries == {
            (TEAM, 1): Place(seq=1, handoff_id=None, version=None, type="team.noted.v1"),
            (TEAM, 3): Place(seq=3, handoff_id=one, version=2, type="handoff.delivered.v1"),
        }

    async def test_a_command_is_found_with_all_its_entries(self, store: Store) -> None:
        """In log order, and only for the actor who sent it."""
        one = story(offered(), DELIVERED, number=1, command_id="c1", by="a")
        two = story(offered(), number=2, command_id="c1", by="b")
        more = story(offered(), number=3, command_id="c1", by="a")
        await commit(store, one, two, more)
        commands = frozenset({(TEAM, "a", "c1"), (TEAM, "b", "c2"), (OTHER_TEAM, "a", "c1")})
        loaded = await load(store, Wanted(commands=commands))
        found = {key: [(p.seq, p.version) for p in ps] for key, ps in loaded.commands.items()}
        assert found == {(TEAM, "a", "c1"): [(1, 1), (2, 2), (4, 1)]}

    async def test_a_command_is_found_with_the_digest_of_its_request(self, store: Store) -> None:
        """Whether it is about a handoff or the team; what has none has none."""
        about = story(offered(), DELIVERED, number=1, command_id="c1", by="a")
        about = replace(about, entries=[replace(e, request=b"one") for e in about.entries])
        note = replace(noted(), actor="a", command_id="c2", request=b"two")
        older = replace(noted(), actor="a", command_id="c3")
        await commit(store, about, Changes(entries=[note, older]))
        commands = frozenset((TEAM, "a", name) for name in ("c1", "c2", "c3"))
        loaded = await load(store, Wanted(commands=commands))
        found = {name: [p.request for p in ps] for (_, _, name), ps in loaded.commands.items()}
        assert found == {"c1": [b"one", b"one"], "c2": [b"two"], "c3": [None]}

    # --- inboxes ---

    async def test_an_inbox_shows_what_concerns_its_reader(self, store: Store) -> None:
        """With what the entry says, and only to whom it was sent."""
        await commit(store, story(offered(), DELIVERED, at=T0 + 5))
        [item] = await store.inbox(TEAM, RECIPIENT, after=0, limit=10)
        assert msgspec.structs.asdict(item) == {
            "seq": 1,
            "kind": "handoff",
            "at": T0 + 5,
            "actor": SENDER,
            "type": "handoff.offered.v1",
            "handoff_id": handoff_id(1),
            "version": 1,
        }
        assert await store.inbox(TEAM, SENDER, after=0, limit=10) == []
        assert await store.inbox(OTHER_TEAM, RECIPIENT, after=0, limit=10) == []

    async def test_an_inbox_is_read_on_from_a_seq_and_reading_consumes_nothing(
        self, store: Store
    ) -> None:
        """The last `seq` is the cursor."""
        await commit(store, *(story(offered(), number=number) for number in range(1, 6)))
        first = await store.inbox(TEAM, RECIPIENT, after=0, limit=2)
        rest = await store.inbox(TEAM, RECIPIENT, after=first[-1].seq, limit=10)
        assert [item.seq for item in [*first, *rest]] == [1, 2, 3, 4, 5]
        assert list(await store.inbox(TEAM, RECIPIENT, after=0, limit=2)) == list(first)

    async def test_the_items_of_one_entry_are_never_on_two_pages(self, store: Store) -> None:
        """The cursor is a `seq`: what a page cut off would never be read."""
        several = noted(mail=(("me", "outcome"), ("me", "notice"), ("x", "notice")))
        await commit(store, Changes(entries=[several] * 3))
        seen: list[tuple[int, str]] = []
        while items := await store.inbox(TEAM, "me", after=seen[-1][0] if seen else 0, limit=1):
            seen.extend((item.seq, item.kind) for item in items)
        assert sorted(seen) == [(seq, kind) for seq in (1, 2, 3) for kind in ("notice", "outcome")]
        assert len(await store.inbox(TEAM, "me", after=0, limit=3)) == 4

    async def test_one_reader_is_told_once_of_one_entry(self, store: Store) -> None:
        """Though it be both the one who was asked and a watcher."""
        told = story(
            offered(watchers=("me",)),
            DELIVERED,
            ACKNOWLEDGED,
            events.Blocked(attempt=1, kind=QuestionKind.QUESTION, asked="me"),
            events.Cancelled(),
        )
        assert told.entries[-1].mail.count(("me", "notice")) == 2
        await commit(store, told)
        items = await store.inbox(TEAM, "me", after=4, limit=10)
        assert [(item.seq, item.kind) for item in items] == [(5, "notice")]


def _hash_by_the_book(entry: Entry) -> str:
    """Return the hash of everything else in the entry, by RFC 8785 and SHA-256."""
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__ if name != "hash"}
    fields["data"] = json.loads(bytes(entry.data))
    return hashlib.sha256(rfc8785.dumps(fields)).hexdigest()
