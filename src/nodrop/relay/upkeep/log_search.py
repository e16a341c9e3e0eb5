"""Finding things in the log: by time, and by what was said, among what the caller may see.

Looks through so much and no more in one request: the cursor tells how far it came.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from nodrop.log.port import LogPage, Store
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol import requests, views
from nodrop.protocol.entries import Entry
from nodrop.protocol.times import EXPECTED_MOMENT, parse_duration, parse_time
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock
from nodrop.relay.shows import Caller, Shows

_PAGE: Final = 500
_LOOKED_AT_MAX: Final = 5_000
"""Entries that one request looks at for a word."""


class LogSearch:
    """Reads the log for a caller."""

    def __init__(
        self, store: Store, *, reading: Reading, intake: Intake, shows: Shows, clock: Clock
    ) -> None:
        self._store = store
        self._reading = reading
        self._intake = intake
        self._shows = shows
        self._clock = clock

    async def read(self, caller: Caller, request: requests.GetLog) -> views.LogAnswer:
        """Return what the log holds after a cursor, as far as it is asked for."""
        self._intake.text(request.text, "text")
        await self._reading.require_cursor(caller.team, request.after, request.after_hash)
        if request.since is not None:
            first = await self._first(caller.team, self._moment(request.since, "since"))
            request = replace(request, after=max(request.after, first - 1), since=None)
        until = None if request.until is None else self._moment(request.until, "until")
        if request.text is None:
            entries = await self._reading.log(caller, request)
            wanted = [e for e in entries if until is None or e.at <= until]
            shown = await self._shows.entries(caller, wanted)
            if len(shown) < len(wanted):
                return _answer(shown, wanted[len(shown) - 1])
            return _answer(shown, entries[-1] if entries else await self._place(caller, request))
        return await self._find(caller, request, request.text.casefold(), until)

    async def _find(
        self, caller: Caller, request: requests.GetLog, text: str, until: int | None
    ) -> views.LogAnswer:
        wanted = self._intake.limit(request.limit) if request.limit else _PAGE
        found: list[views.EntryView] = []
        after = await self._place(caller, request)
        for _ in range(_LOOKED_AT_MAX // _PAGE):
            wait = request.wait if not found else 0
            page = replace(request, after=after.seq, limit=_PAGE, wait=wait)
            entries = await self._reading.log(caller, page)
            if not entries:
                break
            shown = await self._shows.entries(caller, entries)
            for entry, view in zip(entries, shown, strict=False):  # as many as a page has room for
                if until is not None and entry.at > until:
                    return _answer(found, after)
                after = entry
                if view.body is not None:
                    await asyncio.sleep(0)  # a large one takes long to look through
                if _says(view, text):
                    found.append(view)
                if len(found) == wanted:
                    return _answer(found, after)
            if len(shown) < len(entries):
                break
        return _answer(found, after)

    async def _place(self, caller: Caller, request: requests.GetLog) -> "_Place":
        there = await self._reading.hash_at(caller.team, request.after)
        return _Place(seq=request.after, hash=there)

    async def _first(self, team: str, since: int) -> int:
        """Return the number of the first entry that was made at `since` or later."""
        low, high = 1, (await self._store.head(team)).seq + 1
        while low < high:
            middle = (low + high) // 2
            page = await self._store.log(LogPage(team=team, after=middle - 1, limit=1))
            if page and page[0].at < since:
                low = page[0].seq + 1
            else:
                high = middle
        return low

    def _moment(self, written: str | float, path: str) -> int:
        """Return a point in time: as written, or so long ago."""
        try:
            if isinstance(written, str) and written[:4].isdecimal() and "-" in written:
                return parse_time(written)
            return self._clock.now() - parse_duration(written)
        except (ValueError, OverflowError) as error:
            problem = Problem(path=path, message=EXPECTED_MOMENT)
            raise InvalidRequestError(f"{path}: {EXPECTED_MOMENT}", errors=(problem,)) from error


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a reader goes on."""

    seq: int
    hash: str | None


def _answer(entries: Sequence[views.EntryView], after: _Place | Entry) -> views.LogAnswer:
    return views.LogAnswer(entries=tuple(entries), after=after.seq, after_hash=after.hash)


def _says(entry: views.EntryView, text: str) -> bool:
    """Whether an entry holds a word, as far as the reader may see it."""
    said = [entry.type, entry.actor, entry.handoff_id or "", bytes(entry.data).decode()]
    if entry.body is not None:
        said.append(json.dumps(entry.body, ensure_ascii=False))
    return any(text in part.casefold() for part in said)
