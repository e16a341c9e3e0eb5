"""Follows the log and exports a span for every handoff that has ended.

At least once, and with the same ids each time: how far it came is kept in the store, so that a
relay that was killed goes on where it was. What a collector does not take is tried again, and what
happens meanwhile waits in the log.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from nodrop.model.errors import CursorUnknownError, NodropError
from nodrop.model.limits import MINUTE, SECOND
from nodrop.outbound.telemetry.spans import Spans
from nodrop.protocol.entries import Entry
from nodrop.relay.handoffs.endings import ENDINGS, SETTLED, Endings
from nodrop.relay.ports import Clock

log = logging.getLogger("nodrop.telemetry")

NAME: Final = "spans"
SETTLES_WITHIN_MS: Final = MINUTE
"""A span waits this long for the last rung of its handoff."""
_WAIT: Final = "60s"
_BATCH: Final = 512
_STRIDE: Final = 5_000
"""Entries without an ending after which the cursor is kept all the same."""
_AGAIN_MS: Final = (SECOND, MINUTE)


class _Ending(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    at: int


class Follower:
    """Makes spans of one team's handoffs."""

    def __init__(
        self,
        endings: Endings,
        team: str,
        *,
        spans: Spans,
        exporter: SpanExporter,
        clock: Clock,
        gather_ms: int,
    ) -> None:
        self._endings = endings
        self._team = team
        self._spans = spans
        self._exporter = exporter
        self._clock = clock
        self._gather_ms = gather_ms
        self._read = self._kept = 0
        self._begun = False
        self._unsettled: dict[str, _Ending] = {}
        self._working = asyncio.Lock()

    async def begin(self) -> None:
        """Take up where the last one was, or begin here."""
        self._unsettled.clear()
        self._read = self._kept = await self._endings.cursor(self._team, NAME)
        await self._endings.keep(self._team, NAME, self._kept)
        self._begun = True

    async def run(self) -> None:
        """Follow, until cancelled. A store that takes nothing now may do so later."""
        try:
            while True:
                try:
                    if not self._begun:
                        await self.begin()
                    await self._round(wait="0s" if self._unsettled else _WAIT)
                except CursorUnknownError as error:
                    log.warning("spans begin again where the store says: %s", error)
                    self._begun = False
                except NodropError as error:
                    log.warning("no spans for now: %s", error)
                await self._clock.sleep_until(self._clock.now() + self._gather_ms)
        finally:
            self._begun = False  # by the time it goes on, another may have been further

    async def flush(self) -> None:
        """Export whatever has ended, settled or not."""
        if self._begun:
            await self._round(wait="0s", everything=True)

    async def _round(self, *, wait: str, everything: bool = False) -> None:
        page = await self._endings.after(self._team, self._read, wait=wait)
        async with self._working:
            while True:
                settled = list(self._noted(page))
                late = self._clock.now() - SETTLES_WITHIN_MS
                ready = [
                    *settled,
                    *(id_ for id_, end in self._unsettled.items() if everything or end.at <= late),
                ]
                await self._export(ready)
                for handoff_id in ready:
                    self._unsettled.pop(handoff_id, None)
                await self._keep(moved=bool(ready))
                page = await self._endings.after(self._team, self._read, wait="0s")
                if not page:
                    return

    def _noted(self, page: Sequence[Entry]) -> Iterable[str]:
        """Read on; yield whatever has come to its last rung."""
        for entry in page:
            if entry.seq <= self._read:
                continue
            self._read = entry.seq
            if entry.handoff_id is None:
                continue
            if entry.type in ENDINGS:
                self._unsettled[entry.handoff_id] = _Ending(seq=entry.seq, at=entry.at)
            elif entry.type == SETTLED and self._unsettled.pop(entry.handoff_id, None):
                yield entry.handoff_id

    async def _export(self, ids: Sequence[str]) -> None:
        for start in range(0, len(ids), _BATCH):
            ended = await self._endings.of(self._team, ids[start : start + _BATCH])
            made = [span for each in ended for span in self._spans.made(each)]
            wait, longest = _AGAIN_MS
            while made:
                result = await asyncio.to_thread(self._exporter.export, made)
                if result is SpanExportResult.SUCCESS:
                    break
                log.warning("%d spans wait: the collector did not take them", len(made))
                await self._clock.sleep_until(self._clock.now() + wait)
                wait = min(wait * 2, longest)

    async def _keep(self, *, moved: bool) -> None:
        first = min((end.seq for end in self._unsettled.values()), default=self._read + 1)
        if first - 1 > self._kept and (moved or first - self._kept > _STRIDE):
            self._kept = first - 1
            await self._endings.keep(self._team, NAME, self._kept)
