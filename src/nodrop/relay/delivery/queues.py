"""Positions: the line of each agent, which is what it works on and what waits for it, in order.

Counted from commits. A line begins with the store's index of ids, so that however much waits, few
handoffs are read. A count and no promise: it may be a moment old.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from nodrop.log.port import Key, Store, takeable
from nodrop.model import clocks
from nodrop.model.handoff import Handoff, State
from nodrop.model.limits import DEFAULT

_ACCEPTED: Final = State.ACCEPTED
WORKLOADS_MIN: Final = 1_000
"""Agents whose workloads are kept before those that have nothing are dropped."""


class Line:
    """One agent's deliveries, and what waits behind them in the order in which it is taken."""

    def __init__(self, ranks: Mapping[str, int]) -> None:
        """Begin with what waits, by id."""
        self._held: dict[str, bool] = {}
        """Deliveries, and whether each is accepted."""
        self._working = 0
        """How many of them are."""
        self._ranks = dict(ranks)
        self._order = sorted((rank, waiting) for waiting, rank in ranks.items())
        """Everything in `_ranks`."""
        self._queued: set[str] = set()

    @property
    def held(self) -> int:
        """How many deliveries its processes have."""
        return len(self._held)

    @property
    def length(self) -> int:
        """How many it has and waits for."""
        return len(self._held) + len(self._order)

    @property
    def queued(self) -> int:
        """How many of those that wait are acknowledged as queued.

        After a start, those are counted that are among the first which may be, or were updated since.
        """
        return len(self._queued)

    def first(self, most: int) -> list[str]:
        """Return what is taken first."""
        return [waiting for _, waiting in self._order[:most]]

    def unacknowledged(self, most: int) -> list[str]:
        """Return what is taken first of what is not acknowledged as queued."""
        names = (waiting for _, waiting in self._order if waiting not in self._queued)
        return list(islice(names, most))

    def position(self, handoff: Handoff) -> int:
        """Return the place that `handoff` has, or would have, in the work in progress."""
        return self._working + (not self._held.get(handoff.id, False))

    def place(self, handoff: Handoff) -> int:
        """Return the place of something that waits: after what is held and what is taken first."""
        return len(self._held) + bisect_left(self._order, (clocks.rank(handoff), handoff.id)) + 1

    def note(self, handoff: Handoff, rank: int | None, *, mine: bool = True) -> None:
        """Count a handoff as it is now; `mine`: its recipient is this agent, at `rank` if it can be taken."""
        name, held, after = handoff.id, self._held, rank if mine else None
        was_accepted = held.get(name)
        if handoff.live and mine:
            accepted = handoff.state is _ACCEPTED
            if accepted is was_accepted:
                return
            held[name] = accepted
            self._working += accepted - (was_accepted or False)
        elif was_accepted is not None:
            self._working -= held.pop(name)
        # What is held waits for nothing.
        before = None if was_accepted is not None else self._ranks.get(name)
        if before is None and after is None:
            return
        if after is not None and handoff.queued is not None:
            self._queued.add(name)
        else:
            self._queued.discard(name)
        if before == after:
            return
        if before is not None:
            del self._order[bisect_left(self._order, (before, name))]
            del self._ranks[name]
        if after is not None:
            insort(self._order, (after, name))
            self._ranks[name] = after


class Workload:
    """What one agent has asked for, and what it is asked for, of all that is unfinished."""

    __slots__ = ("asked", "held", "inbox", "line", "noted")

    def __init__(self) -> None:
        self.asked = 0
        """With offers on their way to a commit; so is `inbox`."""
        self.inbox = 0
        self.held = 0
        """How many of its inbox are with a process of it."""
        self.line: Line | None = None
        """None: nobody has asked about it."""
        self.noted: dict[str, Handoff] | None = None
        """What changed of the line while it is being read."""


class Workloads(dict[Key, Workload]):
    """The workload of every agent that has one."""

    _most = WORKLOADS_MIN

    def __missing__(self, key: Key) -> Workload:
        """Make one. Those of agents that have nothing any more are dropped together."""
        if len(self) >= self._most:
            for idle in [key for key, each in self.items() if _is_idle(each)]:
                del self[idle]
            self._most = max(WORKLOADS_MIN, 2 * len(self))
        made = self[key] = Workload()
        return made

    def note(self, handoff: Handoff) -> None:
        """Count a handoff that changed, in the line of everybody who was asked."""
        rank = _rank(handoff)
        for agent in handoff.asked:
            asked = self.get((handoff.team, agent))
            if asked is None:
                continue
            if asked.line is not None:
                asked.line.note(handoff, rank, mine=agent == handoff.recipient)
            elif asked.noted is not None:
                asked.noted[handoff.id] = handoff


def _is_idle(load: Workload) -> bool:
    return not (load.asked or load.inbox or load.held or load.line) and load.noted is None


class Queues:
    """The lines of every agent that was asked about."""

    def __init__(
        self, store: Store, workloads: Workloads, *, queued_max: int = DEFAULT.queued_acks_max
    ) -> None:
        """Count from `store`; `queued_max` is how many of a line may be acknowledged as queued."""
        self._store = store
        self._workloads = workloads
        self._queued_max = queued_max
        self._reading: dict[Key, asyncio.Task[Line]] = {}
        self.note = workloads.note

    def line(self, team: str, agent: str) -> Line | None:
        """Return an agent's line, if it is known."""
        known = self._workloads.get((team, agent))
        return None if known is None else known.line

    async def know(self, team: str, agent: str) -> Line:
        """Return an agent's line. It is read once, however many ask for it meanwhile."""
        known = self.line(team, agent)
        if known is not None:
            return known
        key = (team, agent)
        reading = self._reading.get(key)
        if reading is None:
            reading = self._reading[key] = asyncio.create_task(self._read(key))
            reading.add_done_callback(lambda done: self._have_read(key, done))
        return await asyncio.shield(reading)  # a cancelled caller must not cancel it for the others

    async def _read(self, key: Key) -> Line:
        team, agent = key
        load = self._workloads[key]
        noted = load.noted = {}
        ranks = await self._store.queue(team, agent)
        line = Line({waiting: rank for waiting, rank in ranks.items() if rank is not None})
        others = [handoff_id for handoff_id, rank in ranks.items() if rank is None]
        # What is held must be read, and what may be acknowledged as queued; of the rest, ids will do.
        wanted = [(team, name) for name in (*others, *line.first(self._queued_max))]
        self._count(line, agent, await self._store.handoffs(wanted))
        self._count(line, agent, noted.values())
        load.line = line
        return line

    @staticmethod
    def _count(line: Line, agent: str, handoffs: Iterable[Handoff]) -> None:
        for handoff in handoffs:
            line.note(handoff, _rank(handoff), mine=handoff.recipient == agent)

    def _have_read(self, key: Key, reading: "asyncio.Task[Line]") -> None:
        del self._reading[key]
        self._workloads[key].noted = None
        if not reading.cancelled():
            reading.exception()  # raised to the callers, if there still are any


def _rank(handoff: Handoff) -> int | None:
    """Return the place of what can be taken now; None: it cannot."""
    return clocks.rank(handoff) if takeable(handoff) else None
