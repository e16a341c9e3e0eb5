"""Units of work: what one asks its tables before it is written."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kit.inline import InlineSQLiteStore
from nodrop.log.port import Key, Page, Team
from nodrop.log.state import Kept
from nodrop.model import events
from nodrop.model.errors import RelayFaultError
from nodrop.testing.clock import T0
from nodrop.testing.handoffs import TEAM, handoff_id, offered, story


async def test_a_handoff_that_begins_in_a_commit_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = InlineSQLiteStore(tmp_path / "nodrop.db")
    await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
    looked_for: list[Key] = []

    def kept_of(keys: Sequence[Key]) -> list[Kept]:
        looked_for.extend(keys)
        return []

    monkeypatch.setattr(store.database, "kept", kept_of)
    delivered = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
    told = story(offered(), delivered, number=1)
    async with store.transaction() as tx:
        assert list(await tx.append(told.changes)) == [1, 2]
    assert looked_for == []
    kept = store.cached((TEAM, handoff_id(1)))
    assert kept is not None
    assert kept.version == 2


async def test_what_an_event_follows_is_looked_up_where_it_is_not_in_memory(
    tmp_path: Path,
) -> None:
    store = InlineSQLiteStore(tmp_path / "nodrop.db")
    await store.create_team(Team(id=TEAM, digest_key=b"k" * 32, created_at=T0))
    began = story(offered(), number=1)
    async with store.transaction() as tx:
        await tx.append(began.changes)
    await store.list_handoffs(Page(team=TEAM, limit=1))  # its row is written
    await store.shed()
    assert store.cached((TEAM, handoff_id(1))) is None
    delivered = events.Delivered(attempt=1, process="p1", heartbeat_ms=10_000)
    first = story(delivered, after=began.handoff)
    second = story(events.Noted(), after=first.handoff)
    with pytest.raises(RelayFaultError, match="version 3 after 1"):
        async with store.transaction() as tx:
            await tx.append(second.changes)
    await store.shed()
    async with store.transaction() as tx:
        assert list(await tx.append(first.changes)) == [2]
    kept = store.state.get((TEAM, handoff_id(1)))
    assert kept is not None
    assert kept.trail == [1, 2]
    unheard_of = story(delivered, after=story(offered(), number=2).handoff)
    with pytest.raises(RelayFaultError, match="version 2 after 0"):
        async with store.transaction() as tx:
            await tx.append(unheard_of.changes)
