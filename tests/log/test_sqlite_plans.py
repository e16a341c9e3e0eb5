"""That statements take the index they are meant to take, and long looks are cut in pieces."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from nodrop.log.port import Changes, LogPage, Page, Team, Wanted
from nodrop.log.sqlite import SQLiteStore
from nodrop.log.sqlite.connection import connect
from nodrop.log.sqlite.driver import Connection
from nodrop.log.sqlite.pages import handoffs_page
from nodrop.protocol.entries import Draft
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, handoff_id, offered, story


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Connection]:
    connection = connect(tmp_path / "nodrop.db", vfs=None, synchronous="FULL")
    yield connection
    connection.close()


def plan(database: Connection, sql: str, bound: tuple[Any, ...]) -> str:
    return "\n".join(row[-1] for row in database.execute(f"explain query plan {sql}", bound))


@pytest.mark.parametrize(
    ("wanted", "indexes"),
    [
        ({}, ["h USING INDEX sqlite_autoindex_handoff_1 (team=?)"]),
        ({"before": "x"}, ["h USING INDEX sqlite_autoindex_handoff_1 (team=? AND id<?)"]),
        ({"party": "a"}, ["p USING PRIMARY KEY (team=? AND agent=?)"]),
        ({"party": "a", "before": "x"}, ["(team=? AND agent=? AND handoff_id<?)"]),
        ({"sender": "a", "state": "failed"}, ["p USING PRIMARY KEY (team=? AND agent=?)"]),
        ({"recipient": "a"}, ["p USING PRIMARY KEY (team=? AND agent=?)"]),
        (
            {"recipient": "a", "state": "accepted"},
            ["handoff_unfinished (team=? AND recipient=?)"],
        ),
        ({"marks": ("a=x",)}, ["p USING PRIMARY KEY (team=? AND agent=?)"]),
        (
            {"marks": ("a=x", "b=y"), "party": "a", "before": "x"},
            [
                "SEARCH p USING PRIMARY KEY (team=? AND agent=? AND handoff_id<?)",
                "USING PRIMARY KEY (team=? AND agent=? AND handoff_id=?)",
            ],
        ),
        (
            {"marks": ("a=x",), "recipient": "a", "state": "accepted"},
            [
                "handoff_unfinished (team=? AND recipient=?)",
                "USING PRIMARY KEY (team=? AND agent=? AND handoff_id=?)",
            ],
        ),
        ({"correlation_id": "c"}, ["handoff_correlation (team=? AND correlation_id=?)"]),
        (
            {"correlation_id": "c", "state": "offered"},
            ["handoff_correlation (team=? AND correlation_id=?)"],
        ),
        ({"state": "failed"}, ["handoff_ended (team=? AND state=?)"]),
        ({"state": "offered"}, ["handoff_unfinished (team=?)"]),
        ({"dead": True}, ["handoff_dead (team=?)"]),
    ],
)
def test_a_list_of_handoffs_is_led_by_its_narrowest_index(
    database: Connection, wanted: dict[str, Any], indexes: list[str]
) -> None:
    fields: dict[str, Any] = {"team": TEAM, "limit": 10, **wanted}
    steps = plan(database, *handoffs_page(Page(**fields)))
    assert [index for index in indexes if index not in steps] == [], steps
    assert "SCAN h" not in steps


async def test_looking_for_an_actor_goes_on_past_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodrop.log.sqlite.database.SCAN_ENTRIES_MAX", 3)
    actors = ["rare" if number in {5, 11, 12, 20} else "busy" for number in range(1, 21)]
    drafts = [Draft(team=TEAM, at=T0, type="team.noted.v1", actor=actor) for actor in actors]
    async with await SQLiteStore.open(tmp_path / "nodrop.db") as store:
        await store.create_team(Team(id=TEAM, digest_key=b"k", created_at=T0))
        for draft in drafts:
            async with store.transaction() as tx:
                await tx.append(Changes(entries=[draft]))

        async def seqs(**wanted: Any) -> list[int]:
            fields: dict[str, Any] = {"team": TEAM, "limit": 10, **wanted}
            return [entry.seq for entry in await store.log(LogPage(**fields))]

        assert await seqs(actor="rare") == [5, 11, 12, 20]
        assert await seqs(actor="rare", limit=3) == [5, 11, 12]
        assert await seqs(actor="rare", after=12, limit=1) == [20]
        assert await seqs(actor="nobody") == []
        assert await seqs(type="team.*", limit=7) == [1, 2, 3, 4, 5, 6, 7]


async def test_what_a_relay_does_all_day_never_looks_through_a_table(
    tmp_path: Path, database: Connection
) -> None:
    statements: set[str] = set()

    def remember(_cursor: Any, sql: str, _bound: Any) -> bool:
        statements.add(sql)
        return True

    def watch(connection: Any) -> None:
        connection.exec_trace = remember

    apsw.connection_hooks.append(watch)
    try:
        store = await SQLiteStore.open(tmp_path / "watched.db")
    finally:
        apsw.connection_hooks.remove(watch)
    async with store:
        await store.create_team(Team(id=TEAM, digest_key=b"k", created_at=T0))
        statements.clear()
        await work_a_day(store)
    plans = {sql: plan(database, sql, (None,) * sql.count("?")) for sql in statements}
    assert len(plans) > 15
    looks = {
        sql: steps
        for sql, steps in plans.items()
        if "SCAN" in steps or "(team=?)" in steps or "TEMP B-TREE" in steps
    }
    assert looks == {}


async def work_a_day(store: SQLiteStore) -> None:
    one = handoff_id(1)
    async with store.transaction() as tx:
        wanted = Wanted(
            handoffs=frozenset({(TEAM, one)}),
            keys=frozenset({(TEAM, "a", "k")}),
            commands=frozenset({(TEAM, "a", "c")}),
            entries=frozenset({(TEAM, 1)}),
        )
        await tx.load(wanted)
        await tx.claimable(TEAM, "a", limit=1)
        await tx.held(TEAM, "p")
        await tx.due(now=T0, limit=1)
        told = story(offered(), bodies={1: b"{}"})
        await tx.append(told.changes)
    await store.handoffs([(TEAM, one)])
    await store.resolve(TEAM, "a/k")
    await store.resolve(TEAM, "0199")
    await store.bodies(TEAM, [(one, 1)])
    await store.entry_bodies(TEAM, [1])
    await store.places(TEAM, [(one, 1)])
    await store.head(TEAM)
    await store.inbox(TEAM, "a", after=0, limit=1)
    await store.queue(TEAM, "a")
    await store.next_due()
    await store.manifest(TEAM, "a", 1)
    await store.erase(TEAM, one)
