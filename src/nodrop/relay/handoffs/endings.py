"""Endings: which handoffs have ended or were settled since a cursor, and everything about each.

For whoever makes something of finished work. Reads the log after the fact, so that it costs the
commands nothing; what is made of it, and where that goes, is a door's business.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from nodrop.log.port import LogPage, Record, Store, Wanted
from nodrop.model.handoff import Handoff
from nodrop.protocol import requests
from nodrop.protocol.entries import Entry
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.shows import Caller

KIND: Final = "endings"
ENDINGS: Final = frozenset(
    f"handoff.{state}.v1" for state in ("completed", "failed", "rejected", "expired", "cancelled")
)
SETTLED: Final = "handoff.settled.v1"
_ENTRIES_MAX: Final = 500
"""Of one handoff: enough to tell how it went."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A handoff that has an outcome, and what the log says about it."""

    handoff: Handoff
    entries: Sequence[Entry]


class _Cursor(msgspec.Struct, frozen=True, kw_only=True):
    after: int


class Endings:
    """Reads what has ended, for followers with a name."""

    def __init__(self, engine: Engine, store: Store, *, reading: Reading) -> None:
        self._engine = engine
        self._store = store
        self._reading = reading

    async def cursor(self, team: str, follower: str) -> int:
        """Return how far a follower has come; one that is new begins at the end."""
        end = (await self._store.head(team)).seq
        for record in await self._store.records(KIND):
            if (record.team, record.id) == (team, follower):
                return min(msgspec.json.decode(record.json, type=_Cursor).after, end)
        return end

    async def keep(self, team: str, follower: str, after: int) -> None:
        """Remember how far a follower has come."""
        json = msgspec.json.encode(_Cursor(after=after))

        def run(batch: Batch) -> None:
            batch.keep_record(Record(team=team, kind=KIND, id=follower, json=json))

        await self._engine.submit(FunctionJob(Wanted(), run))

    async def after(self, team: str, after: int, *, wait: str) -> Sequence[Entry]:
        """Return the log behind a cursor, at most a page; wait if there is nothing.

        Raises:
            CursorUnknownError: the log ends before it.
        """
        await self._reading.require_cursor(team, after)
        caller = Caller(team=team, agent="relay", operator=True)
        return await self._reading.log(caller, requests.GetLog(after=after, limit=500, wait=wait))

    async def of(self, team: str, ids: Sequence[str]) -> list[Ended]:
        """Return everything about handoffs that have ended; not what was pruned meanwhile."""
        found = {h.id: h for h in await self._store.handoffs([(team, id_) for id_ in ids])}
        return [
            Ended(
                handoff=found[id_],
                entries=await self._store.log(
                    LogPage(team=team, handoff_id=id_, limit=_ENTRIES_MAX)
                ),
            )
            for id_ in ids
            if id_ in found and found[id_].final
        ]
