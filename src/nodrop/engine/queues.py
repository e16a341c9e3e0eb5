"""How much each agent has on its hands: the position an ack tells where the agent does not.

Counted from commits, read from the store once per agent. A count and no promise: it may be a
moment old.
"""

import asyncio
from typing import Final

from nodrop.core.model import Handoff, State
from nodrop.store import Key, Page, Store

COUNTED_MAX: Final = 1_000
"""A queue longer than this is told as this long."""


class Queues:
    """The work in progress of every agent that was lately asked about."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._working: dict[Key, set[str]] = {}
        self._reading: dict[Key, asyncio.Task[None]] = {}

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
            reading.add_done_callback(lambda done: self._have_read(key, done))
        await asyncio.shield(reading)  # who gives up must not take it from the others

    def position(self, handoff: Handoff) -> int:
        """Return the place `handoff` would have: 1 is the one being worked on."""
        working = self._working.get((handoff.team, handoff.recipient))
        if not working:
            return 1
        return len(working) + (handoff.id not in working)

    def note(self, handoff: Handoff) -> None:
        """Count a handoff that changed."""
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

    async def _read(self, key: Key) -> None:
        team, agent = key
        page = Page(team=team, recipient=agent, state=State.ACCEPTED.value, limit=COUNTED_MAX)
        rows = await self._store.list_handoffs(page)
        self._working.setdefault(key, set()).update(h.id for h in rows)

    def _have_read(self, key: Key, reading: asyncio.Task[None]) -> None:
        del self._reading[key]
        if not reading.cancelled():
            reading.exception()  # told to those who wait, if anybody still does
