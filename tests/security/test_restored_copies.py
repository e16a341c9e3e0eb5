"""An older copy of the database, put back: what readers see of it, with and without the check of cursors."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from nodrop import app
from nodrop.model.errors import CursorUnknownError
from nodrop.relay.handoffs.reading import Reading
from nodrop.servers.inprocess import InProcessTransport


@asynccontextmanager
async def relay_on(home: Path) -> AsyncGenerator[InProcessTransport]:
    async with app.open_relay(home / "nodrop.db", home=home) as relay:
        await relay.ensure_token("default", agent="me", role="operator", secret="nd_me")
        yield InProcessTransport(relay, await relay.authenticate("nd_me"))


async def rolled_back(home: Path) -> tuple[dict[str, Any], int]:
    """Put an older copy back and let its log grow past where a reader was; return where, and its end."""
    async with relay_on(home) as me:
        await me.call("note_team", {"text": "kept"})
    shutil.copy(home / "nodrop.db", home / "older.db")
    async with relay_on(home) as me:
        for _ in range(3):
            await me.call("note_team", {"text": "lost"})
        page = await me.call("log", {})
    (home / "older.db").replace(home / "nodrop.db")
    async with relay_on(home) as me:
        made = [await me.call("note_team", {"text": f"new {n}"}) for n in range(5)]
    return {"after": page["after"], "after_hash": page["after_hash"]}, made[-1]["seq"]


@pytest.mark.parametrize("beyond", [False, True], ids=["passed again", "beyond the end"])
async def test_a_reader_of_a_log_that_is_gone_is_told(tmp_path: Path, *, beyond: bool) -> None:
    seen, end = await rolled_back(tmp_path)
    cursor = {"after": end + 1} if beyond else seen
    async with relay_on(tmp_path) as me:
        with pytest.raises(CursorUnknownError):
            await me.call("log", cursor)


async def test_without_the_check_new_entries_are_skipped_in_silence(tmp_path: Path) -> None:
    seen, end = await rolled_back(tmp_path)
    with mock.patch.object(Reading, "require_cursor"):
        async with relay_on(tmp_path) as me:
            page = await me.call("log", seen)
            shown = [entry["body"]["text"] for entry in page["entries"]]
            assert shown == ["new 3", "new 4"], "new 0 to 2 are never seen"
            assert (await me.call("log", {"after": end + 1}))["entries"] == []
