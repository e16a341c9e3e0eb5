"""How agents stand at the moment: who is there, how long their queues are, what they have proven.

Fed by commits, asked by routing and discovery. Decides nothing by itself: `model.standing` has the
arithmetic.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from heapq import nsmallest
from typing import Final

from nodrop.log.port import Key, Store, Wanted
from nodrop.model.errors import NodropError
from nodrop.model.handoff import Handoff
from nodrop.model.limits import Limits
from nodrop.model.standing import TrackRecord, cost, seconds
from nodrop.relay.batch import Happened
from nodrop.relay.directory.attendance import Attendance
from nodrop.relay.directory.observations import KIND, OUTCOMES, Observations
from nodrop.relay.directory.register import Offering
from nodrop.relay.engine import Engine
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import NEVER, Clock
from nodrop.relay.room import Room

Place = tuple[int, float, float, str]

LEARNT_TOGETHER: Final = 64


class Standings:
    """What is known about the agents of every team besides what they say themselves."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        room: Room,
        offering: Callable[[str, str, str], Offering | None],
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._store = store
        self._room = room
        self._offering = offering
        self._clock = clock
        self._limits = limits
        self.attendance = Attendance(engine.takers, room, limits)
        self._observations = Observations(limits)
        self._shortlists: dict[Key, tuple[int, list[Offering]]] = {}
        self._ended: list[tuple[Handoff, int]] = []
        """Work that is yet to be learnt from, and when it ended."""
        self.write_at = NEVER
        """When what was learnt should be written down."""

    # --- learning ---

    async def load(self) -> None:
        """Begin with what the store remembers."""
        self.attendance.open(self._clock.now())
        self._observations.restore(await self._store.records(KIND))

    def queued(self, team: str, agent: str) -> int:
        """Return how many unfinished handoffs an agent is the recipient of."""
        return self._room.queued(team, agent)

    def observe(self, handoff: Handoff, types: set[str]) -> None:
        """Learn from what another engine wrote about a handoff: entries of these types."""
        if types & OUTCOMES:
            self._ended.append((handoff, self._clock.now()))
            self.learn()

    def committed(self, happened: Iterable[Happened], at: int) -> None:
        """Take in the outcomes of a commit. They are learnt from together, or when a figure is asked for."""
        for each in happened:
            if each.type in OUTCOMES:
                self._ended.append((each.handoff, at))
        self.write_at = min(self.write_at, at + self._limits.observations_kept_ms)
        if len(self._ended) >= LEARNT_TOGETHER:
            self.learn()

    def learn(self) -> None:
        """Learn from what was taken in, by what agents offer now: before that changes."""
        ended, self._ended = self._ended, []
        of, is_offered = None, False
        for handoff, at in ended:
            team, capability, recipient = handoff.team, handoff.capability, handoff.recipient
            if of != (team, capability, recipient):
                # Names that the recipient does not offer are not worth remembering.
                of = (team, capability, recipient)
                is_offered = bool(capability and self._offering(team, capability, recipient))
            if is_offered:
                self._observations.observe(handoff, at)

    def _to_write(self, *, everything: bool) -> Sequence[tuple[str, str, str]]:
        self.learn()
        return self._observations.to_write(None if everything else self._clock.now())

    async def write(self, *, everything: bool = False) -> None:
        """Write down what was learnt. What cannot be written now will be later."""
        self.write_at = NEVER
        try:
            while places := self._to_write(everything=everything):
                self._observations.writing(places)
                try:
                    write = partial(self._observations.write, places)
                    await self._engine.submit(FunctionJob(Wanted(), write))
                except NodropError:
                    self._observations.unwritten(places, self._clock.now())
                    return
        finally:
            self.write_at = min(self.write_at, self._observations.write_at())

    # --- telling ---

    def record(self, offering: Offering) -> TrackRecord:
        """Return what an agent has proven in a capability."""
        if self._ended:
            self.learn()
        agent = offering.agent
        return self._observations.of(agent.team, agent.id, offering.capability.name)

    def order(
        self, team: str, capability: str, offered: Mapping[str, Offering], asked: Collection[str]
    ) -> Iterable[Offering]:
        """Return whom to ask, in this order: the awake first, spread by queue and success.

        A few candidates are all looked at. Of many, those that came first when all were last
        looked at, which is not long ago; all of them again once each of these was asked.
        """
        now, most = self._clock.now(), self._limits.candidates_fresh_max
        if len(offered) <= most:
            chosen = [o for o in offered.values() if o.agent.id not in asked]
        else:
            lately = self._shortlist((team, capability), offered, now)
            chosen = [o for o in lately if o.agent.id not in asked]
            if not chosen:
                others = (o for o in offered.values() if o.agent.id not in asked)
                chosen = nsmallest(most, others, key=lambda o: self.place(o, now))
        return sorted(chosen, key=lambda o: self.place(o, now))

    def _shortlist(self, key: Key, offered: Mapping[str, Offering], now: int) -> list[Offering]:
        made_at, best = self._shortlists.get(key, (now - self._limits.candidates_kept_ms, []))
        if now - made_at >= self._limits.candidates_kept_ms:
            most = self._limits.candidates_fresh_max // 4
            best = nsmallest(most, offered.values(), key=lambda o: self.place(o, now))
            self._shortlists[key] = (now, best)
        return [o for o in best if offered.get(o.agent.id) is o]

    def place(self, offering: Offering, now: int) -> Place:
        """Return how early an agent is asked: the smallest first.

        Offers on their way to a commit count as queued, so that a burst is spread.
        """
        agent = offering.agent
        record = self.record(offering)
        queued = self._room.queued(agent.team, agent.id) + self._engine.placed(agent.team, agent.id)
        return (
            self.attendance.state(agent, now).place,
            cost(max(queued, 0), record.score(self._limits)),
            seconds(record.duration_ms),
            agent.id,
        )
