"""The engine: the queue into the loop, the agenda, and the consumers, leases and retries that are shared.

`relay.loop` takes jobs from here and commits them. A handler submits a job and waits for the answer,
or posts one that says whom to tell.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, zip_longest
from typing import Any, Final, TypeVar

from nodrop.log.port import Key, Process, Store, takeable
from nodrop.model.clocks import due_at
from nodrop.model.errors import NodropError, QueueFullError, UnavailableError
from nodrop.model.handoff import Handoff
from nodrop.model.limits import SECOND, Limits
from nodrop.model.surroundings import Surroundings
from nodrop.relay.batch import Batch
from nodrop.relay.delivery.leases import Leases
from nodrop.relay.delivery.retries import Retries
from nodrop.relay.delivery.waiters import Taker, Takers
from nodrop.relay.jobs import Job
from nodrop.relay.ports import NEVER, Clock

T = TypeVar("T")


class JobQueue:
    """The jobs for the next commits, fair between agents: it takes from each in turn.

    An agent with thousands of commands on their way delays its own, and one command of others goes into the
    next batch. The jobs of one agent stay in order. The relay's own jobs count as one agent's.
    """

    def __init__(self) -> None:
        self.lines: defaultdict[Key | None, deque[Job[Any]]] = defaultdict(deque)
        """By agent, the one whose turn it is first."""
        self.count = 0
        """How many jobs wait."""

    def __iter__(self) -> Iterator[Job[Any]]:
        return chain.from_iterable(self.lines.values())

    def of(self, agent: Key | None) -> int:
        """Return how many jobs of an agent wait."""
        return len(self.lines.get(agent, ()))

    def append(self, job: Job[Any]) -> None:
        """Have `job` wait behind the others of its agent."""
        self.lines[job.by].append(job)
        self.count += 1

    def take(self, most: int) -> list[Job[Any]]:
        """Return the next jobs, one of each agent in turn, at most so many."""
        if self.count <= most:
            turns = zip_longest(*self.lines.values())
            taken = list(filter(None, chain.from_iterable(turns)))
            self.lines.clear()
            self.count = 0
            return taken
        taken: list[Job[Any]] = []
        while self.lines and len(taken) < most:
            agent = next(iter(self.lines))
            line = self.lines.pop(agent)
            alone = not self.lines
            count = min(most - len(taken), len(line)) if alone else 1
            taken += [line.popleft() for _ in range(count)]
            if line:
                self.lines[agent] = line
        self.count -= len(taken)
        return taken

    def clear(self) -> None:
        """Forget all of them."""
        self.lines.clear()
        self.count = 0


class Wake:
    """A flag that one task waits for, and that is seldom waited for when it is set."""

    __slots__ = ("is_set", "waiting")

    def __init__(self) -> None:
        self.is_set = False
        self.waiting: asyncio.Future[None] | None = None
        """What the task awaits."""

    def set(self) -> None:
        """Wake the task, now or as soon as it waits."""
        if not self.is_set:
            self.is_set = True
            if self.waiting is not None and not self.waiting.done():
                self.waiting.set_result(None)


class Agenda:
    """The earliest time at which the loop must act without being asked.

    It is the earliest due time of a handoff, or the time of the next lease check. One task sleeps until
    then and wakes `relay.loop`, which knows what each clock means and handles what came due.
    """

    def __init__(
        self, store: Store, leases: Leases, *, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self._store = store
        self._leases = leases
        self._clock = clock
        self._wake = wake
        self.next_due = NEVER
        """No handoff must be looked after before this."""
        self.armed_at = NEVER
        """What the clock is watched for."""
        self._rearm = asyncio.Event()

    async def load(self) -> None:
        """Read the earliest due time of all."""
        self.expect(await self._store.next_due())

    def expect(self, due: int | None) -> None:
        """Know of a due time; the clock is watched for it after `rearm`."""
        if due is not None and due < self.next_due:
            self.next_due = due

    async def read_on(self, now: int, *, later_by: int) -> None:
        """Know what is left of what was due, and leave it alone for `later_by` at least."""
        try:
            next_due = await self._store.next_due()
        except NodropError:  # the commit stands all the same, and is to be told
            next_due = now + SECOND
        self.next_due = NEVER if next_due is None else max(next_due, now + later_by)

    def put_off(self, until: int) -> None:
        """Look after nothing before `until`: it cannot be done now."""
        self.next_due = until
        self._rearm.set()

    def rearm(self) -> None:
        """Watch the clock for what is the earliest now.

        What moved to a later time leaves the watch as it is: the loop is woken once for nothing,
        and comes back here.
        """
        if self._earliest() < self.armed_at:
            self._rearm.set()

    async def watch(self) -> None:
        """Wake the loop when something comes due. Sleeps for as long as nothing does."""
        while True:
            self._rearm.clear()
            self.armed_at = self._earliest()
            waits = {asyncio.create_task(self._rearm.wait())}
            alarm: asyncio.Task[Any] | None = None
            if self.armed_at < NEVER:
                alarm = asyncio.create_task(self._clock.sleep_until(self.armed_at))
            try:
                tasks = waits | ({alarm} if alarm else set[asyncio.Task[Any]]())
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*waits, *([alarm] if alarm else [])):
                    task.cancel()
            if alarm is not None and alarm.done():
                # The loop rearms the clock once it has looked after what came due.
                self._rearm.clear()
                self.armed_at = NEVER
                self._wake()
                await self._rearm.wait()

    def _earliest(self) -> int:
        return min(self.next_due, self._leases.next_check())


class Engine:
    """The way into the loop, and the volatile state that decisions rest on."""

    def __init__(self, store: Store, *, clock: Clock, limits: Limits) -> None:
        self.limits = limits
        self.wake = Wake()
        """Set when the loop has something to do."""
        self.takers = Takers(limits, wake=self.wake.set)
        self.leases = Leases(limits)
        self.retries = Retries(limits)
        self.queue = JobQueue()
        self.agenda = Agenda(store, self.leases, clock=clock, wake=self.wake.set)
        self.batch: Batch | None = None
        """What is being decided and committed right now."""
        self.stopping = False
        self.up_since = 0
        """Since when a relay has served the store without a break, this one or another node."""
        self.usual = Surroundings(up_since=0, limits=limits)
        """What a decision depends on besides the handoff, where that is nothing in particular."""
        self.now: Final = clock.now
        """Returns the current time."""
        self._shared_jobs_max: Final = min(
            limits.queue_commands_max, limits.queue_commands_per_agent_max
        )
        """With fewer jobs in the queue there is room for one more of any agent."""

    def surroundings(self, **known: Any) -> Surroundings:
        """Return what a decision may depend on besides the handoff."""
        if known:
            return Surroundings(up_since=self.up_since, limits=self.limits, **known)
        return self.usual

    def placed(self, team: str, agent: str) -> int:
        """Return how many more unfinished handoffs an agent has by the commit under way."""
        return 0 if self.batch is None else self.batch.placed(team, agent)

    def retrying(self, handoff: Handoff, now: int, **known: Any) -> Surroundings:
        """Return the same for what may give `handoff` another try: how long that must wait."""
        wait = self.retries.wait_ms(handoff.team, handoff.origin, now=now)
        return self.surroundings(retry_wait_ms=wait, **known)

    # --- what callers do ---

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Have `job` decided in the next batch; the future holds the answer once committed."""
        job.future = asyncio.get_running_loop().create_future()
        self.post(job)
        return job.future

    def post(self, job: Job[Any]) -> None:
        """Have `job` decided in the next batch, after those before it; it says whom to tell."""
        queue = self.queue
        before = queue.count
        if before >= self._shared_jobs_max or self.stopping:
            self._require_room(job.by)
        queue.lines[job.by].append(job)
        queue.count = before + 1
        if not before:  # with others in the queue, the loop was woken for them
            self.wake.set()

    def _require_room(self, by: Key | None) -> None:
        if self.stopping:
            raise UnavailableError("the relay is stopping")
        queue, limits = self.queue, self.limits
        if queue.count >= limits.queue_commands_max:
            raise QueueFullError(f"{queue.count} commands wait for a commit")
        if by is not None and (waiting := queue.of(by)) >= limits.queue_commands_per_agent_max:
            raise QueueFullError(f"{waiting} commands of {by[1]} wait for a commit")

    def join(self, taker: Taker, *, free: int) -> None:
        """Let a connection wait for work."""
        self.takers.join(taker, free=free, now=self.now())
        self.wake.set()

    def expect_life(self, batch: Batch, team: str, agent: str) -> None:
        """Look after an agent that has acknowledged something as queued.

        Kept as a process with the agent's own name: it is there for as long as any of them is, and
        known after a start and to other nodes.
        """
        beat = self.queued_lease_ms // self.limits.lease_heartbeats
        if not batch.sees(team, agent, heartbeat_ms=beat):
            process = Process(
                team=team, id=agent, agent=agent, heartbeat_ms=beat, seen_at=batch.now
            )
            batch.see(self.leases.see(process))

    @property
    def queued_lease_ms(self) -> int:
        """How long an agent may be silent before what it has queued is asked for elsewhere."""
        beat = round(self.limits.heartbeat_seconds * SECOND)
        return self.limits.lease_heartbeats_unacknowledged * beat

    # --- what other nodes did ---

    def served_since(self, at: int) -> None:
        """Learn of a break in service that ended at `at`: silence before it counts against no process."""
        if at > self.up_since:
            self.up_since = at
            self.usual = Surroundings(up_since=at, limits=self.limits)
            self.leases.ignore_before(at)

    def apply_changes(self, handoffs: Iterable[Handoff], processes: Iterable[Process]) -> None:
        """Act on changes by other nodes: wake local consumers, and watch the new due times."""
        for process in processes:
            self.leases.learn([process], up_since=self.up_since)
            self.takers.learn(process.team, process.id, process.seen_at)
        for handoff in handoffs:
            self.note_lapsed(handoff)
            self.agenda.expect(due_at(handoff))
            if takeable(handoff):
                self.feed([(handoff.team, handoff.recipient)])
        self.agenda.rearm()

    def feed(self, agents: Iterable[Key]) -> None:
        """Look through the inboxes of these agents."""
        self.takers.recheck(agents)
        self.wake.set()

    def note_lapsed(self, handoff: Handoff) -> None:
        """Deliver nothing to a process whose lease a timer or another node took back, until it is heard of."""
        if handoff.revivable:
            self.takers.lapsed(handoff.team, handoff.process or "", handoff.offered_at)
