"""A past that was written in bulk is the past that a relay would have left."""

from pathlib import Path

import pytest

from nodrop.log.port import LogPage, Page
from nodrop.log.sqlite import SQLiteStore
from nodrop.model.handoff import State
from nodrop.protocol.entries import GENESIS, hash_of
from nodrop.testing.clock import T0
from nodrop_proof.bench import past

TYPES = ["offered", "delivered", "accepted", "completed", "outcome_delivered", "settled"]
NOW = T0 + 1_000_000


@pytest.fixture(params=[True, False], ids=["finished", "open"])
async def template(request: pytest.FixtureRequest) -> past.Template:
    return await past.record(finished=request.param)


async def test_what_is_recorded_is_a_handoff_from_its_offer_on(template: past.Template) -> None:
    finished = not template.row.open
    types = [f"handoff.{name}.v1" for name in (TYPES if finished else TYPES[:1])]
    assert [draft.type for draft in template.entries] == types
    assert template.row.handoff.state is (State.COMPLETED if finished else State.OFFERED)
    assert template.use.handoff_id == template.id


async def test_the_past_has_an_unbroken_log_and_a_row_for_each(
    tmp_path: Path, template: past.Template
) -> None:
    folders = {0: tmp_path / "none", 7: tmp_path / "some", 12: tmp_path / "more"}
    heard: list[int] = []
    past.filled(folders, template, now_ms=NOW, progress=heard.append)
    assert heard == [7, 12]
    for count, folder in folders.items():
        store = await SQLiteStore.open(folder / "home" / past.DATABASE)
        entries = await store.log(LogPage(team=past.TEAM, limit=1_000))
        rows = await store.list_handoffs(Page(team=past.TEAM, limit=1_000))
        await store.close()
        assert len(entries) == count * len(template.entries)
        before = GENESIS
        for seq, entry in enumerate(entries, start=1):
            assert (entry.seq, entry.prev_hash) == (seq, before)
            assert entry.hash == hash_of(entry)
            before = entry.hash
        assert len({row.id for row in rows}) == count
        assert {row.state for row in rows} <= {template.row.handoff.state}
        assert [row.id for row in rows] == sorted((row.id for row in rows), reverse=True)
        assert len({row.key for row in rows}) == count
        assert all(T0 < row.stored_at < NOW for row in rows)


async def test_a_key_of_the_past_finds_its_handoff(tmp_path: Path, template: past.Template) -> None:
    past.filled({3: tmp_path}, template, now_ms=NOW)
    store = await SQLiteStore.open(tmp_path / "home" / past.DATABASE)
    rows = await store.list_handoffs(Page(team=past.TEAM, limit=10))
    found = [await store.resolve(past.TEAM, f"{row.sender}/{row.key}") for row in rows]
    bodies = await store.bodies(past.TEAM, [(row.id, 1) for row in rows])
    await store.close()
    assert found == [[row.id] for row in rows]
    assert all(str(row.key).encode() in bodies[row.id, 1] for row in rows)


async def test_a_folder_that_was_filled_before_is_left_alone(
    tmp_path: Path, template: past.Template
) -> None:
    past.filled({2: tmp_path}, template, now_ms=NOW)
    size = (tmp_path / "home" / past.DATABASE).stat().st_size
    heard: list[int] = []
    past.filled({2: tmp_path}, template, now_ms=NOW, progress=heard.append)
    assert heard == []
    assert (tmp_path / "home" / past.DATABASE).stat().st_size == size
