"""Positions: how much each agent works on, and what waits for it in which order.

Counted from commits, read from the store once per agent. A count and no promise: it may be a
moment old.
"""

import asyncio
from bisect import bisect_left, insort
from typing import Any, Final, TypeVar

from nodrop.log.port import Key, Page, Store, takeable
from nodrop.model.clocks import rank
from nodrop.model.handoff import Handoff, State
from nodrop.model.limits import DEFAULT

T = TypeVar("T")

COUNTED_MAX: Final = 1_000
"""A queue longer than this is told as this long."""


_HELD: Final = (State.DELIVERED, State.ACCEPTED, State.BLOCKED)


class Line:
    """One agent's deliveries, and what waits behind them in the order in which it is taken."""

    def __init__(self) -> None:
        self._held: set[str] = set()
        self._order: list[tuple[int, str]] = []
        self._ranks: dict[str, int] = {}
        """Of everything in `_order`."""
        self._queued: set[str] = set()

    @property
    def held(self) -> int:
        """How many deliveries its processes have."""
        return len(self._held)

    @property
    def queued(self) -> int:
        """How many of those that wait are acknowledged as queued."""
        return len(self._queued)

    @property
    def unacknowledged(self) -> list[str]:
        """What waits and is not acknowledged as queued, in order."""
        return [waiting for _, waiting in self._order if waiting not in self._queued]

    def place(self, handoff: Handoff) -> int:
        """Return the place of something that waits: after what is held and what is taken first."""
        return len(self._held) + bisect_left(self._order, (rank(handoff), handoff.id)) + 1

    def note(self, handoff: Handoff, *, mine: bool) -> None:
        """Count a handoff as it is now; `mine`: its recipient is this agent."""
        held = mine and handoff.live
        waits = mine and takeable(handoff)
        (self._held.add if held else self._held.discard)(handoff.id)
        queued = waits and handoff.queued is not None
        (self._queued.add if queued else self._queued.discard)(handoff.id)
        before, after = self._ranks.get(handoff.id), rank(handoff) if waits else None
        if before == after:
            return
        if before is not None:
            del self._order[bisect_left(self._order, (before, handoff.id))]
            del self._ranks[handoff.id]
        if after is not None:
            insort(self._order, (after, handoff.id))
            self._ranks[handoff.id] = after


class Queues:
    """The work of every agent that was lately asked about."""

    def __init__(self, store: Store, *, waiting_max: int = DEFAULT.inbox_handoffs_max) -> None:
        """Count from `store`; `waiting_max` is how much can wait for one agent."""
        self._store = store
        self._waiting_max = waiting_max
        self._working: dict[Key, set[str]] = {}
        self._reading: dict[Key, asyncio.Task[None]] = {}
        self._lines: dict[Key, Line] = {}
        self._lining_up: dict[Key, asyncio.Task[Line]] = {}
        self._noted: dict[Key, dict[str, Handoff]] = {}
        """What changed of an agent's line while it is being read."""

    def known(self, team: str, agent: str) -> bool:
        """Whether an agent's work in progress is known."""
        return (team, agent) in self._working

    async def know(self, team: str, agent: str) -> None:
        """Read an agent's work in progress, unless it is known. Whoever asks meanwhile waits."""
        key = (team, agent)
        if key in self._working:
            return
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._read(key))
            reading.add_done_callback(lambda done: _have_read(self._reading, key, done))
        await asyncio.shield(reading)  # who gives up must not take it from the others

    def position(self, handoff: Handoff) -> int:
        """Return the place `handoff` would have: 1 is the one being worked on."""
        working = self._working.get((handoff.team, handoff.recipient))
        if not working:
            return 1
        return len(working) + (handoff.id not in working)

    def note(self, handoff: Handoff) -> None:
        """Count a handoff that changed."""
        if self._lines or self._noted:
            self._note_lines(handoff)
        if handoff.version == 1:
            return  # nobody has it yet
        for agent in handoff.asked:
            working = self._working.get((handoff.team, agent))
            if working is None:
                continue
            if handoff.state is State.ACCEPTED and agent == handoff.recipient:
                working.add(handoff.id)
            else:
                working.discard(handoff.id)

    def forget(self) -> None:
        """Count anew: a commit failed and nobody knows what it would have changed."""
        self._working.clear()
        self._lines.clear()

    # --- what waits ---

    def line(self, team: str, agent: str) -> Line | None:
        """Return an agent's line, if it is known."""
        return self._lines.get((team, agent))

    async def know_line(self, team: str, agent: str) -> Line:
        """Read an agent's line, unless it is known. Whoever asks meanwhile waits."""
        key = (team, agent)
        known = self._lines.get(key)
        if known is not None:
            return known
        reading = self._lining_up.get(key)
        if reading is None:
            reading = self._lining_up[key] = asyncio.create_task(self._line_up(key))
            reading.add_done_callback(lambda done: _have_read(self._lining_up, key, done))
        return await asyncio.shield(reading)

    async def _line_up(self, key: Key) -> Line:
        team, agent = key
        self._noted[key] = {}
        try:
            line = Line()
            for state in (*_HELD, State.OFFERED):
                page = Page(team=team, recipient=agent, state=state.value, limit=self._waiting_max)
                for handoff in await self._store.list_handoffs(page):
                    line.note(handoff, mine=True)
            for handoff in self._noted[key].values():
                line.note(handoff, mine=handoff.recipient == agent)
        finally:
            del self._noted[key]
        self._lines[key] = line
        return line

    def _note_lines(self, handoff: Handoff) -> None:
        for agent in handoff.asked:
            key = (handoff.team, agent)
            line = self._lines.get(key)
            if line is not None:
                line.note(handoff, mine=agent == handoff.recipient)
            elif key in self._noted:
                self._noted[key][handoff.id] = handoff

    async def _read(self, key: Key) -> None:
        team, agent = key
        page = Page(team=team, recipient=agent, state=State.ACCEPTED.value, limit=COUNTED_MAX)
        rows = await self._store.list_handoffs(page)
        self._working.setdefault(key, set()).update(h.id for h in rows)


def _have_read(under_way: dict[Key, T], key: Key, reading: "asyncio.Task[Any]") -> None:
    del under_way[key]
    if not reading.cancelled():
        reading.exception()  # told to those who wait, if anybody still does
