"""Recovery: a file that nobody closed holds what was committed, and rows equal a replay of the log."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kit.inline import InlineSQLiteStore
from nodrop.log import state
from nodrop.log.port import Changes, Key, KeyUse, LogPage, Page, Team, Wanted
from nodrop.log.sqlite import SQLiteStore
from nodrop.log.sqlite import store as sqlite_store
from nodrop.log.state import Slice, State
from nodrop.model import events
from nodrop.model.errors import RelayFaultError
from nodrop.model.handoff import Handoff
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import SENDER, TEAM, Story, handoff_id, offered, story

DELIVERED = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
ACKNOWLEDGED = events.Acknowledged(attempt=1, next_update_at=T0 + 1)
DONE = (DELIVERED, ACKNOWLEDGED, events.Completed(attempt=1), events.Settled())


async def opened(path: Path) -> InlineSQLiteStore:
    made = InlineSQLiteStore(path)
    await made.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
    return made


async def commit(into: SQLiteStore, *stories: Story) -> None:
    changes = Changes(
        entries=[draft for told in stories for draft in told.entries],
        rows=[row for told in stories for row in told.changes.rows],
    )
    async with into.transaction() as tx:
        await tx.append(changes)
    await asyncio.sleep(0)  # rows of earlier commits are written in the turn after


async def work(into: SQLiteStore, seed: int, commits: int, *, first: int = 1) -> None:
    """Commit offers, and bring some of what is open a step further, up to its end."""
    chance = Random(seed)
    under_way: dict[str, tuple[Handoff, list[Any]]] = {}
    for number in range(first, first + commits):
        told: list[Story] = []
        if chance.random() < 0.6:
            made = story(offered(), number=number, bodies={1: b'{"n":1}'})
            told.append(made)
            under_way[made.handoff.id] = (made.handoff, list(DONE))
        for name in chance.sample(sorted(under_way), min(2, len(under_way))):
            if any(each.handoff.id == name for each in told):
                continue
            handoff, left = under_way[name]
            further = story(left.pop(0), after=handoff)
            told.append(further)
            under_way[name] = (further.handoff, left)
            if not left:
                del under_way[name]
        if told:
            await commit(into, *told)


async def unlike_the_log(of: SQLiteStore) -> list[str]:
    """Return the handoffs whose rows are not the fold of their entries."""
    folded: dict[str, Handoff] = {}
    for entry in await of.log(LogPage(team=TEAM, limit=100_000)):
        if entry.handoff_id is not None and entry.version is not None:
            folded[entry.handoff_id] = evolve(
                folded.get(entry.handoff_id),
                wire_events.decode(entry.type, bytes(entry.data)),
                team=TEAM,
                handoff_id=entry.handoff_id,
                by=entry.actor,
                at=entry.at,
            )
    rows = {h.id: h for h in await of.list_handoffs(Page(team=TEAM, limit=100_000))}
    return sorted(name for name in {*folded, *rows} if folded.get(name) != rows.get(name))


async def crashed(path: Path, seed: int, commits: int = 400) -> InlineSQLiteStore:
    """Return what is there after a crash."""
    before = await opened(path)
    await work(before, seed, commits)
    before.crash()
    return await opened(path)


@pytest.fixture(autouse=True)
def slices_of_a_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have much to replay, and rows of all ages."""
    monkeypatch.setattr(state, "SLICE_ROWS_MIN", 1)
    monkeypatch.setattr(state, "BEHIND_ENTRIES_MAX", 100)


@pytest.mark.parametrize("seed", range(5))
async def test_rows_equal_a_replay_of_the_log_after_a_crash(tmp_path: Path, seed: int) -> None:
    again = await crashed(tmp_path / "nodrop.db", seed)
    assert await unlike_the_log(again) == []
    await work(again, seed + 100, 1, first=1_000)
    await again.close()
    closed = sqlite3.connect(tmp_path / "nodrop.db")
    [(written, last)] = closed.execute(
        "select (select seq from watermark), (select max(last_seq) from journal)"
    ).fetchall()
    closed.close()
    assert written == last, "closing writes everything"


async def test_queues_inboxes_and_chains_are_the_same_before_and_after_a_crash(
    tmp_path: Path,
) -> None:
    before = await opened(tmp_path / "nodrop.db")
    await work(before, 7, 300)

    async def found(of: SQLiteStore) -> list[Any]:
        async with of.transaction() as tx:
            return [
                await tx.claimable(TEAM, "code_agent", limit=1_000),
                await tx.held(TEAM, "p1"),
                await tx.due(now=T0 * 2, limit=1_000),
                await tx.unfinished(TEAM, "chain"),
                await of.inbox(TEAM, "code_agent", after=0, limit=10_000),
                await of.inbox(TEAM, SENDER, after=0, limit=10_000),
                sorted(await of.unfinished()),
                await of.next_due(),
            ]

    expected = await found(before)
    before.crash()
    assert await found(await opened(tmp_path / "nodrop.db")) == expected
    assert all(expected[:6])


async def test_keys_and_command_ids_are_there_after_a_crash(tmp_path: Path) -> None:
    before = await opened(tmp_path / "nodrop.db")
    told = story(offered(), command_id="c1")
    use = KeyUse(team=TEAM, sender=SENDER, key="k", handoff_id=handoff_id(1), digest="d")
    async with before.transaction() as tx:
        await tx.append(Changes(entries=told.entries, rows=told.changes.rows, keys=[use]))
    before.crash()
    again = await opened(tmp_path / "nodrop.db")
    async with again.transaction() as tx:
        wanted = Wanted(
            keys=frozenset({(TEAM, SENDER, "k")}), commands=frozenset({(TEAM, SENDER, "c1")})
        )
        loaded = await tx.load(wanted)
    assert loaded.keys[TEAM, SENDER, "k"] == use
    assert [place.seq for place in loaded.commands[TEAM, SENDER, "c1"]] == [1]


# --- controls: what these tests would notice ---


def without_its_rows(made: Callable[..., Slice]) -> Callable[..., Slice]:
    def slice_(self: State, teams: Iterable[str]) -> Slice:
        chosen = made(self, list(teams))
        return Slice(rows=chosen.rows[1:], mail=chosen.mail, watermarks=chosen.watermarks)

    return slice_


async def test_a_write_behind_that_skips_a_row_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(State, "slice", without_its_rows(State.slice))
    monkeypatch.setattr(state, "SLICE_ROWS_MIN", 8)

    def wrote(self: State, slice_: Slice) -> None:
        for name, seq in slice_.watermarks:
            self.teams[name].watermark = seq

    monkeypatch.setattr(State, "wrote", wrote)
    again = await crashed(tmp_path / "nodrop.db", 0)
    assert await unlike_the_log(again) != []


async def test_a_replay_that_folds_twice_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(self: Any, keys: Sequence[Key]) -> list[Any]:
        rows = as_it_is(self, keys)
        for row in rows:
            row.applied = 0
        return rows

    database = sqlite_store.Database
    as_it_is = database.kept
    monkeypatch.setattr(database, "kept", load)
    with pytest.raises((KeyError, AssertionError)):
        assert await unlike_the_log(await crashed(tmp_path / "nodrop.db", 0)) == []


async def test_a_row_ahead_of_its_batch_is_noticed(tmp_path: Path) -> None:
    """What is written before its entry is durable stays when the entry does not."""
    path = tmp_path / "nodrop.db"
    before = await opened(path)
    await work(before, 0, 50)
    ahead = story(offered(), number=1_000)
    [row] = ahead.changes.rows
    state_of = before.state
    state_of.follow(state_of.teams[TEAM], row, [10_000], since=10_000)
    before.database.write_behind(state_of.all_of(TEAM))
    before.crash()
    assert await unlike_the_log(await opened(path)) == [handoff_id(1_000)]


async def test_a_second_history_is_refused_whatever_memory_says(tmp_path: Path) -> None:
    made = await opened(tmp_path / "nodrop.db")
    await commit(made, story(offered(), number=1))
    await commit(made, story(offered(), number=2))
    team = made.state.teams[TEAM]
    team.head = type(team.head)(seq=1, hash=team.head.hash)
    with pytest.raises(RelayFaultError, match="ends at 2, and 2 was to follow"):
        await commit(made, story(offered(), number=3))
