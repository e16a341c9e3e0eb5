"""The operations that read. None of them changes anything, and none polls.

A read with a wait watches first and looks then, so that nothing slips between the two.
"""

import asyncio
import re
from typing import Final

from nodrop.log.port import Key, LogPage, Mail, Page, Place, Store
from nodrop.model.errors import (
    AmbiguousReferenceError,
    CursorUnknownError,
    InvalidRequestError,
    NotFoundError,
    Problem,
)
from nodrop.model.handoff import Handoff
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events
from nodrop.protocol import requests
from nodrop.protocol.entries import Entry
from nodrop.relay.alarms import Alarms
from nodrop.relay.delivery.waiters import Watchers
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock
from nodrop.relay.shows import Caller, require_sight

TRACE_HANDOFFS_MAX: Final = 500
"""Handoffs that one trace shows."""
ID_CHARS: Final = 36
"""A whole id; anything shorter is a prefix or a reference."""
_HASH: Final = re.compile("[0-9a-f]{8,64}")


is_id: Final = re.compile(f"[^/]{{{ID_CHARS}}}").fullmatch
"""Whether a reference is the whole id of a handoff: nothing must be looked up."""


class Reading:
    """Looks things up, and waits for them to change."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        alarms: Alarms,
        intake: Intake,
    ) -> None:
        self.inboxes: Watchers[Key] = Watchers()
        self.logs: Watchers[str] = Watchers()
        self.handoffs: Watchers[Key] = Watchers()
        """Those who follow the log of one handoff."""
        self._store = store
        self._clock = clock
        self._alarms = alarms
        self._intake = intake

    # --- handoffs ---

    async def resolve(self, caller: Caller, reference: str) -> str:
        """Return the id that a reference means: an id, its beginning, or `sender/key`."""
        if is_id(reference):
            return reference
        found = await self._store.resolve(caller.team, reference) if reference else ()
        if len(found) > 1:
            # A caller learns of a second handoff only if it may see both.
            keys = [(caller.team, handoff_id) for handoff_id in found]
            for handoff in await self._store.handoffs(keys):
                require_sight(caller, handoff)
            raise AmbiguousReferenceError(f"{reference} fits more than one handoff")
        if not found:
            raise NotFoundError("no such handoff")
        return found[0]

    async def find(self, caller: Caller, handoff_id: str) -> Handoff:
        """Return a handoff that the caller may see."""
        found = await self._store.handoffs([(caller.team, handoff_id)])
        return require_sight(caller, found[0] if found else None)

    async def list_handoffs(self, caller: Caller, request: requests.ListHandoffs) -> list[Handoff]:
        """Return a page of the caller's handoffs, newest first."""
        page = Page(
            team=caller.team,
            party=None if caller.sees_team else caller.agent,
            state=self._intake.state(request.state),
            sender=request.from_,
            recipient=request.to,
            correlation_id=request.correlation_id,
            marks=self._intake.marks(request),
            before=request.before,
            limit=self._intake.limit(request.limit),
        )
        return list(await self._store.list_handoffs(page))

    async def dead_letters(
        self, caller: Caller, request: requests.ListDeadLetters
    ) -> list[Handoff]:
        """Return a page of dead letters that wait for a decision."""
        page = Page(
            team=caller.team,
            party=None if caller.sees_team else caller.agent,
            dead=True,
            before=request.before,
            limit=self._intake.limit(request.limit),
        )
        return list(await self._store.list_handoffs(page))

    async def trace(self, caller: Caller, correlation_id: str) -> tuple[list[Handoff], bool]:
        """Return the handoffs of a chain that the caller may see, oldest first, and if all fit."""
        most = self._intake.limit(TRACE_HANDOFFS_MAX)
        page = Page(
            team=caller.team,
            party=None if caller.sees_team else caller.agent,
            correlation_id=correlation_id,
            limit=most + 1,
        )
        found = list(await self._store.list_handoffs(page))
        if not found:
            raise NotFoundError("no such chain")
        return found[:most][::-1], len(found) > most

    async def at_work(self, caller: Caller, handoff_id: str) -> Handoff:
        """Return the leg that a chain has come to from this handoff on, unless it is detached.

        For who asked for the chain: to others, the handoff itself is all there is to act upon.
        """
        handoff = await self.find(caller, handoff_id)
        if not caller.operator and caller.agent != handoff.origin:
            return handoff
        for _ in range(self._intake.legs_max):
            onwards = handoff.successor or handoff.next_leg
            if onwards is None:
                break
            further = await self.find(caller, onwards)
            if further.detached and not handoff.detached:
                break
            handoff = further
        return handoff

    async def as_of(self, team: str, places: tuple[Place, ...]) -> list[Handoff]:
        """Return the handoffs of an earlier command as they were right after it."""
        versions: dict[str, int] = {}
        for place in places:
            if place.handoff_id is not None and place.version is not None:
                versions[place.handoff_id] = place.version
        return [await self._fold(team, handoff_id, v) for handoff_id, v in versions.items()]

    async def _fold(self, team: str, handoff_id: str, version: int) -> Handoff:
        page = LogPage(team=team, handoff_id=handoff_id, limit=version + 2)
        now: Handoff | None = None
        then: Handoff | None = None
        for e in await self._store.log(page):
            if e.version is None or (now is None and e.version > 1):
                break  # the beginning was pruned; the handoff as it is has to do
            event = wire_events.decode(e.type, bytes(e.data))
            now = evolve(now, event, team=team, handoff_id=handoff_id, by=e.actor, at=e.at)
            opened = then is not None and then.next_leg is None and now.next_leg is not None
            if now.version <= version or (opened and now.version == version + 2):
                then = now  # opening the next leg is part of the result that opened it
        if then is not None and then.version >= version:
            return then
        return (await self._store.handoffs([(team, handoff_id)]))[0]

    # --- cursors ---

    async def require_cursor(self, team: str, after: int, after_hash: str | None = None) -> None:
        """Refuse a cursor that is no place in this log.

        Numbers are used again once an older copy of the database was restored. A hash covers every
        entry up to its own, so the log that has it there is the one that the cursor was made from.
        """
        if after_hash is not None and not _HASH.fullmatch(after_hash):
            problem = Problem(path="after_hash", message="expected 8 to 64 hexadecimal digits")
            raise InvalidRequestError(f"{problem.path}: {problem.message}", errors=(problem,))
        if after <= 0:
            return
        head = await self._store.head(team)
        if after > head.seq:
            raise CursorUnknownError(f"there is no entry {after}: the log ends at {head.seq}")
        if after_hash is not None:
            there = await self.hash_at(team, after)
            if there is not None and not there.startswith(after_hash):
                raise CursorUnknownError(f"another entry is at {after} now")

    async def hash_at(self, team: str, seq: int) -> str | None:
        """Return the hash of an entry; None: it was pruned, or there is none of that number."""
        head = await self._store.head(team)
        if seq == head.seq or seq <= 0:
            return head.hash if seq > 0 else None
        for entry in await self._store.log(LogPage(team=team, after=seq - 1, limit=1)):
            if entry.seq == seq:
                return entry.hash
            if entry.seq == seq + 1:
                return entry.prev_hash
        return None

    # --- inbox and log ---

    async def inbox(self, caller: Caller, request: requests.GetInbox) -> list[Mail]:
        """Return what concerns the caller after a cursor; wait if there is nothing."""
        until = self._intake.wait(request.wait, now=self._clock.now())
        limit = self._intake.limit(request.limit)
        await self.require_cursor(caller.team, request.after, request.after_hash)
        while True:
            with self.inboxes.watch((caller.team, caller.agent)) as changed:
                mails = await self._store.inbox(
                    caller.team, caller.agent, after=request.after, limit=limit
                )
                if mails or self._clock.now() >= until:
                    return list(mails)
                await self._first(changed, until)

    async def log(self, caller: Caller, request: requests.GetLog) -> list[Entry]:
        """Return what the log holds after a known cursor; wait if there is nothing."""
        until = self._intake.wait(request.wait, now=self._clock.now())
        handoff_id = request.handoff_id and await self.resolve(caller, request.handoff_id)
        page = LogPage(
            team=caller.team,
            after=request.after,
            limit=self._intake.limit(request.limit),
            handoff_id=handoff_id,
            correlation_id=request.correlation_id,
            actor=request.actor,
            type=request.type,
        )
        while True:
            # Whoever follows one handoff is woken by that one alone, however busy the team is.
            following = (
                self.handoffs.watch((caller.team, handoff_id))
                if handoff_id
                else self.logs.watch(caller.team)
            )
            with following as changed:
                entries = await self._store.log(page)
                if entries or self._clock.now() >= until:
                    return list(entries)
                await self._first(changed, until)

    # --- waiting ---

    async def _first(self, changed: asyncio.Future[None], until: int) -> None:
        """Return when something changed or the time is up, whichever is first."""
        await self._alarms.until(changed, until)
