"""Backups under load: each one restored, its log counted, and held to what was answered before it.

Requesters hand off as fast as they are answered. What a relay answered before a backup began must be
in the backup. The control copies the database file instead, as one does with files.
"""

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop.app import DATABASE, open_embedded, restoring
from nodrop.app.machine import SystemClock
from nodrop.audit import ledger
from nodrop.audit.verify.chain import Checkpoint
from nodrop.client.transports.transport import Transport
from nodrop.model.errors import NodropError
from nodrop.protocol.times import format_time

PAGE: Final = 500
BETWEEN: Final = 50
"""Handoffs answered between two backups."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One backup and its restored copy."""

    answered: int
    """Handoffs that were answered before it began."""
    before: int
    """Entries of the log when it began."""
    entries: int
    """Entries of the restored copy."""
    missing: int
    """Answered before, and not in the copy."""
    refused: str | None
    """Why the copy could not be restored."""

    @property
    def holds(self) -> bool:
        """Whether everything is there."""
        return self.refused is None and not self.missing and self.entries >= self.before


async def rounds(
    folder: Path, *, count: int, requesters: int = 8, copy_file: bool = False
) -> list[Round]:
    """Return what became of `count` backups. `copy_file` is the control."""
    home = folder / "home"
    database = home / DATABASE
    answered: list[str] = []
    made: list[Round] = []
    async with AsyncExitStack() as stack:
        me = await open_embedded(database, home=home)
        stack.push_async_callback(me.close)
        async with asyncio.TaskGroup() as group:
            load = [group.create_task(_request(me, answered)) for _ in range(requesters)]
            for number in range(count):
                enough = len(answered) + BETWEEN
                while len(answered) < enough:  # noqa: ASYNC110  # the load is what we wait for
                    await asyncio.sleep(0)
                made.append(
                    await _round(me, database, folder / str(number), answered, copy_file=copy_file)
                )
            for task in load:
                task.cancel()
    return made


async def _request(me: Transport, answered: list[str]) -> None:
    while True:
        offer = {"to": "worker", "title": "work", "payload": {"filler": "x" * 2_000}}
        answer = await me.call("offer", offer)
        answered.append(answer["handoff"]["id"])
        await asyncio.sleep(0)


async def _round(
    me: Transport, database: Path, home: Path, answered: list[str], *, copy_file: bool
) -> Round:
    known = list(answered)
    before = (await me.call("checkpoints", {}))["size"]
    checkpoints: list[Checkpoint] = []
    if copy_file:
        copy = database.with_name("copy.db")
        shutil.copyfile(database, copy)
    else:
        answer = await me.call("backup", {})
        copy = Path(answer["path"])
        checkpoints = [msgspec.convert(answer["checkpoint"], Checkpoint)]
    entries: list[dict[str, Any]] = []
    refused = None
    try:
        at = format_time(SystemClock().now())
        restoring.restore(home, copy, checkpoints=checkpoints, aside="replaced", at=at)
        entries = await _log_of(home)
    except NodropError as error:
        refused = error.detail
    books = ledger.count(entries, answered=known)
    if books.broken or books.duplicated:
        refused = "the log of the copy does not hold"
    return Round(
        answered=len(known),
        before=before,
        entries=len(entries),
        missing=len(books.dropped),
        refused=refused,
    )


async def _log_of(home: Path) -> list[dict[str, Any]]:
    """Return the log of the relay in `home`, served anew."""
    entries: list[dict[str, Any]] = []
    me = await open_embedded(home / DATABASE, home=home)
    try:
        while True:
            after = entries[-1]["seq"] if entries else 0
            page = (await me.call("log", {"after": after, "limit": PAGE}))["entries"]
            if not page:
                return entries
            entries += page
    finally:
        await me.close()
