"""Units of work: what one asks its tables before it is written."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kit.inline import InlineSQLiteStore
from nodrop.log.port import Key, Team
from nodrop.log.state import Kept
from nodrop.model import events
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
