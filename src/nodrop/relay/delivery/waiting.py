"""Offers that wait for a free slot: one connection of their agent is told of each, once.

What it is told of it can acknowledge as queued, so that nobody is reminded of work that is in good
hands. An offer that is delivered within a moment is not worth telling of, so each is told of a
moment after it came.
"""

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import islice
from typing import Any, Final

from nodrop.log.port import Key, Row, Store, takeable
from nodrop.model.handoff import Handoff
from nodrop.model.limits import Limits
from nodrop.protocol.showing import waiting_view
from nodrop.relay.alarms import Alarms
from nodrop.relay.delivery.queues import Queues
from nodrop.relay.delivery.waiters import Taker, Takers
from nodrop.relay.ports import Clock

TELL_AFTER_MS: Final = 200
"""How long an offer waits for a free slot before a connection is told of it."""


class Waiting:
    """Tells connections what waits for their agents."""

    def __init__(
        self,
        store: Store,
        takers: Takers,
        queues: Queues,
        *,
        clock: Clock,
        alarms: Alarms,
        limits: Limits,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._store = store
        self._takers = takers
        self._queues = queues
        self._clock = clock
        self._alarms = alarms
        self._most = limits.queued_acks_max
        self._spawn = spawn
        self._fresh: dict[Key, dict[str, None]] = {}
        """Offers that are yet to be told of, by agent."""
        self._joined: dict[Key, Taker] = {}
        """Connections that are yet to be told of everything that waits."""
        self.told: dict[Key, set[str]] = {}
        """Offers that a connection was told of, and that still wait unacknowledged."""

    def committed(self, rows: Iterable[Row]) -> None:
        """Take in what a commit changed."""
        for row in rows:
            handoff = row.handoff
            if (handoff.team, handoff.recipient) in self._takers.by_agent:
                self._note(handoff, waits=row.rank is not None and handoff.queued is None)

    def note(self, handoff: Handoff) -> None:
        """Take in a handoff that changed."""
        self._note(handoff, waits=handoff.queued is None and takeable(handoff))

    def _note(self, handoff: Handoff, *, waits: bool) -> None:
        key = (handoff.team, handoff.recipient)
        if key not in self._takers.by_agent:
            return
        told = self.told.get(key)
        if waits:
            if told is None or handoff.id not in told:
                self._fresh.setdefault(key, {})[handoff.id] = None
                self._expect(key)
        elif told is not None:
            told.discard(handoff.id)
            if not told:  # most commits find nobody here
                del self.told[key]

    def join(self, taker: Taker) -> None:
        """Tell a new connection everything that waits: an earlier one may be gone with what it knew."""
        if taker.offered is not None:
            key = (taker.team, taker.agent)
            self.told.pop(key, None)
            self._joined[key] = taker
            self._expect(key)

    def _expect(self, key: Key) -> None:
        is_first = len(self._fresh.get(key, ())) + (key in self._joined) == 1
        if is_first:  # an alarm is set already for the others
            self._alarms.set(self._clock.now() + TELL_AFTER_MS, partial(self._ring, key))

    def _ring(self, key: Key) -> None:
        self._spawn(self._tell(key))

    async def _tell(self, key: Key) -> None:
        team, agent = key
        joined, fresh = self._joined.pop(key, None), self._fresh.pop(key, {})
        taker = joined or self._takers.listening(team, agent)
        if taker is None or taker.offered is None:
            self.told.pop(key, None)
            return
        line = await self._queues.know(team, agent)
        room = max(self._most - line.queued, 0)
        names = line.unacknowledged(room) if joined else islice(fresh, room)
        keys = [(team, handoff_id) for handoff_id in names]
        found = [
            handoff
            for handoff in await self._store.handoffs(keys)
            if takeable(handoff) and handoff.queued is None and handoff.recipient == agent
        ]
        if not found:
            return
        found.sort(key=line.place)
        slots = line.held + self._takers.free(team, agent)
        self.told.setdefault(key, set()).update(handoff.id for handoff in found)
        taker.offered([waiting_view(h, place=line.place(h), slots=slots) for h in found])
