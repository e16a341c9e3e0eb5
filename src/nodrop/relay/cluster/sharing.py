"""State in memory besides the store, kept up to date while other nodes write to it.

Everything that is held in memory has its line in `take_in`, or is counted anew in `recount`. A part of
the relay that comes to keep more in memory adds its line here.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from nodrop.log.port import Attending, Changes, Key, Mail, News, Roll, Store
from nodrop.model import events
from nodrop.model.handoff import Handoff
from nodrop.model.limits import SECOND
from nodrop.protocol.events import NAMES
from nodrop.relay.bodies import Bodies
from nodrop.relay.coordination.webhooks import REMOVED, SET, Webhooks
from nodrop.relay.delivery.queues import Queues
from nodrop.relay.delivery.waiting import Waiting
from nodrop.relay.directory.register import Register
from nodrop.relay.directory.standings import Standings
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.following import Following
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.identity.identity import Identity
from nodrop.relay.room import Room
from nodrop.relay.shows import Shows, body_keys

_ERASED: Final = NAMES[events.Erased]
SEEN_EVERY_MS: Final = 10 * SECOND
"""How exactly the others learn when an agent was last heard of here."""


class Sharing:
    """Applies what other nodes wrote, and tells them which agents are connected here. A `nodes.Here`."""

    def __init__(
        self,
        store: Store,
        engine: Engine,
        *,
        identity: Identity,
        register: Register,
        reading: Reading,
        shows: Shows,
        bodies: Bodies,
        queues: Queues,
        waiting: Waiting,
        room: Room,
        standings: Standings,
        following: Following,
        webhooks: Webhooks,
        also: Mapping[str, Callable[[str], Awaitable[None]]],
        tell: Callable[[Key, Sequence[Mail]], Coroutine[Any, Any, None]],
        bereft: Callable[[], object],
    ) -> None:
        self._store = store
        self._engine = engine
        self._identity = identity
        self._register = register
        self._reading = reading
        self._shows = shows
        self._bodies = bodies
        self._queues = queues
        self._waiting = waiting
        self._room = room
        self._standings = standings
        self._following = following
        self._webhooks = webhooks
        self._also = also
        self._tell = tell
        self._bereft = bereft
        self._others = 0

    # --- who is there ---

    def attending(self) -> dict[Key, Attending]:
        """Return the agents that are connected here, or were lately heard of."""
        attendance = self._standings.attendance
        connected = set(self._engine.takers.agents())
        return {
            (team, agent): Attending(
                team=team,
                agent=agent,
                connected=(team, agent) in connected,
                seen_at=seen_at - seen_at % SEEN_EVERY_MS,
            )
            for (team, agent), seen_at in attendance.heard_here(connected).items()
        }

    def attended(self, roll: Roll) -> None:
        """Know whom the others hear of."""
        self._standings.attendance.learn(roll.elsewhere)
        if roll.others < self._others:
            self._bereft()
        self._others = roll.others

    # --- what happened ---

    async def take_in(self, news: News) -> None:
        """Act on what another engine wrote."""
        if news.changes is not None:
            await self._learn(news.team, news.changes)
        elif news.known is not None:
            await self._know(news.team)
        for entry in news.entries:
            if entry.type == _ERASED and entry.handoff_id is not None:
                self._bodies.forget_handoff(news.team, entry.handoff_id)
                self._shows.forget_handoff(news.team, entry.handoff_id)
            if entry.type in {SET, REMOVED} and entry.handoff_id is not None:
                self._webhooks.changed((news.team, entry.handoff_id))
        # Read together: whoever is shown one of them would read it alone.
        await self._bodies.fetch(
            key
            for handoff in news.handoffs
            if self._concerns(handoff)
            for key in body_keys(handoff)
        )
        types = defaultdict[str | None, set[str]](set)
        for entry in news.entries:
            types[entry.handoff_id].add(entry.type)
        for handoff in news.handoffs:
            self._queues.note(handoff)
            self._waiting.note(handoff)
            self._standings.observe(handoff, types[handoff.id])
            self._following.committed([handoff])
            self._reading.handoffs.wake((handoff.team, handoff.id))
        if news.entries:
            self._reading.logs.wake(news.team)
        for reader, mails in news.mails.items():
            self._reading.inboxes.wake((news.team, reader))
            await self._tell((news.team, reader), mails)

    def _concerns(self, handoff: Handoff) -> bool:
        """Whether somebody here waits for it: to see it, or to be given it."""
        if self._following.is_followed(handoff):
            return True
        return not handoff.live and self._engine.takers.connected(handoff.team, handoff.recipient)

    # Commits wait for these two: nothing here may wait for one.

    async def _learn(self, team: str, changes: Changes) -> None:
        """Know what has changed of what decisions rest on."""
        if changes.agents:
            self._standings.learn()
        for agent, manifest in changes.agents:
            self._register.put(agent, manifest)
        self._identity.learn(changes)
        kinds = {record.kind for record in changes.records}
        kinds |= {kind for _, kind, _ in changes.records_gone}
        for kind in kinds & self._also.keys():
            await self._also[kind](team)

    async def _know(self, team: str) -> None:
        """Read everything again that decisions rest on."""
        for agent, manifest in await self._store.agents(team):
            if self._register.last_known(team, agent.id) != agent:
                self._register.put(agent, manifest)
        await self._identity.reload(team)
        for load in self._also.values():
            await load(team)

    async def make_sure(self) -> None:
        """Leave nothing open that the batch which came to nothing had left open."""
        await self._identity.make_sure()

    async def recount(self) -> None:
        """Count anew what is only counted."""
        await self._room.load(self._store)
