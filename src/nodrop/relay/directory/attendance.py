"""Who is there: connections, work in hand, signs of life against what an agent said of itself.

Signs of life are not kept: after a start everybody counts as just heard of, because the relay's own
downtime is nobody's silence.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from nodrop.log.port import Attending, Key
from nodrop.model.contract import Agent, Availability
from nodrop.model.handoff import Value
from nodrop.model.limits import Limits
from nodrop.model.standing import Expectation, Presence
from nodrop.relay.delivery.waiters import Takers
from nodrop.relay.directory.manifests import expectation
from nodrop.relay.room import Room

_WORKING: Final = Presence.WORKING
_IDLE: Final = Presence.IDLE
_ASLEEP: Final = Presence.ASLEEP
_GHOST: Final = Presence.GHOST
"""Named once: a member of an enumeration is looked up slowly."""


class Present(Value, frozen=True, kw_only=True):
    """How an agent is found at a moment."""

    state: Presence
    until: int | None = None
    """When a sleeper said it would be back."""
    seen_at: int | None = None
    """Its last sign of life since the relay started."""


class Attendance:
    """Tells who is there."""

    def __init__(self, takers: Takers, room: Room, limits: Limits) -> None:
        self._takers = takers
        self._room = room
        self._limits = limits
        self._up_since = 0
        self.seen: dict[Key, int] = {}
        """When each agent last gave a sign of life to this engine."""
        self._elsewhere: Mapping[Key, Attending] = {}
        self._expected: dict[Key, tuple[Availability | None, Expectation]] = {}

    def open(self, at: int) -> None:
        """Begin to look: nobody was silent before this."""
        self._up_since = at

    def heard_here(self, connected: Iterable[Key]) -> dict[Key, int]:
        """Return when each agent last gave a sign of life to this engine, `connected` ones too."""
        return {**dict.fromkeys(connected, self._up_since), **self.seen}

    def learn(self, elsewhere: Mapping[Key, Attending]) -> None:
        """Know whom other engines on the same store hear of."""
        self._elsewhere = elsewhere

    def heard_at(self, team: str, agent: str) -> int:
        """Return when an agent last gave a sign of life, here or at another engine."""
        there = self._elsewhere.get((team, agent))
        elsewhere = there.seen_at if there is not None else 0
        return max(self.seen.get((team, agent), 0), elsewhere, self._up_since)

    def connected(self, agent: Agent) -> bool:
        """Whether an agent has a connection that takes work."""
        if self._takers.connected(agent.team, agent.id):
            return True
        there = self._elsewhere.get((agent.team, agent.id))
        return there is not None and there.connected

    def _last_seen(self, agent: Agent) -> int | None:
        here = self.seen.get((agent.team, agent.id), 0)
        there = self._elsewhere.get((agent.team, agent.id))
        return (here if there is None else max(here, there.seen_at)) or None

    def state(self, agent: Agent, now: int) -> Presence:
        """Return whether an agent is there."""
        holds = self._room.holds(agent.team, agent.id)
        if self.connected(agent):
            return _WORKING if holds else _IDLE
        last = max(self._last_seen(agent) or 0, self._up_since, agent.registered_at)
        if now > self._expectation(agent).overdue_at(last, self._limits):
            return _GHOST
        return _WORKING if holds else _ASLEEP

    def present(self, agent: Agent, now: int) -> Present:
        """Return how an agent is found, for those who want to know more."""
        state, back = self.state(agent, now), None
        if state is _ASLEEP:
            back = self._expectation(agent).next_active_at
        until = back if back is not None and back > now else None
        return Present(state=state, until=until, seen_at=self._last_seen(agent))

    def _expectation(self, agent: Agent) -> Expectation:
        key, said = (agent.team, agent.id), agent.manifest.availability
        known = self._expected.get(key)
        if known is None or known[0] is not said:
            known = self._expected[key] = (said, expectation(said))
        return known[1]
