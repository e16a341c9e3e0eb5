"""Group commit: commands that arrive together become one transaction.

    load → decide → append → commit → answer

Whatever arrives while a commit is on its way forms the next batch, so there is no timer to tune:
a lone command commits at once, and a thousand share one sync. Answers, deliveries and wake-ups
leave only after the commit. The engine is the only writer; it knows nothing of doors or of
requests: a `Job` brings what it wants loaded and a function that decides.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from nodrop.log.port import (
    Changes,
    ConflictError,
    Key,
    LogPage,
    Process,
    Store,
    Transaction,
    Wanted,
    takeable,
)
from nodrop.model import commands
from nodrop.model.clocks import due_at, ran_out, rank
from nodrop.model.commands import RELAY, Actor, Binding
from nodrop.model.errors import (
    NodropError,
    QueueFullError,
    RelayFaultError,
    StoreUnavailableError,
    UnavailableError,
)
from nodrop.model.handoff import Handoff, Timer
from nodrop.model.limits import SECOND, Limits
from nodrop.model.surroundings import Surroundings
from nodrop.relay.agenda import Agenda
from nodrop.relay.batch import Batch, union
from nodrop.relay.bodies import Bodies, MissingBodyError
from nodrop.relay.delivery.leases import Leases
from nodrop.relay.delivery.retries import Retries
from nodrop.relay.delivery.waiters import Taker, Takers
from nodrop.relay.directory.register import MissingManifestError, Register
from nodrop.relay.job_queue import JobQueue
from nodrop.relay.jobs import Committed, Job
from nodrop.relay.ports import Clock, Ids

log = logging.getLogger("nodrop.relay")

T = TypeVar("T")
_TICKS_PER_HANDOFF_MAX: Final = 64
"""Clocks that one batch looks after for each handoff in it; the rest wait for the next."""
_FETCHES_MAX: Final = 5
_DECISIONS_MAX: Final = 8
"""Of one batch, where other engines keep changing what it rests on."""
_LOOK_AGAIN_MS: Final = 100
"""What another engine may be looking after is left to it for so long."""
_REST_MS_MAX: Final = 250
"""Clocks that ran out wait no longer than this for callers; a batch may have been held up."""
_SET_BACK_MS_MIN: Final = SECOND
"""A clock that was set back by less only makes things happen later by as much."""
_FOREVER: Final = 2**62
_ALL: Final = 2**31


class Engine:
    """The only writer of a store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        register: Register,
        bodies: Bodies,
        limits: Limits,
    ) -> None:
        self.limits = limits
        self.takers = Takers(limits)
        self.leases = Leases(limits)
        self.retries = Retries(limits)
        self.on_commit: Callable[[Committed], None] = lambda _: None
        self.on_stated: Callable[[Batch], None] = lambda _: None
        """Signs what the relay adds to what others signed, as entries of the same batch."""
        self.on_outcome: Callable[[Handoff], bool] = lambda _: False
        """Whether the requester of a handoff that just ended waits on a connection right now."""
        self.on_due: Callable[[Sequence[Handoff]], Awaitable[None]] = _nothing
        """Reads together, as far as it can be kept, what the clocks of these need to know."""
        self.on_step: Callable[[Batch, Handoff, Timer], Awaitable[dict[str, Any]]] = _nothing_known
        """What a clock that ran out must know: whom its handoff may be given to."""
        self.on_delivery: Callable[[Batch, Handoff], Awaitable[Binding | None]] = _no_contract
        """Finds the contract that a first delivery binds, or why it cannot hold."""
        self.on_unqueued: Callable[[Batch, Handoff], Awaitable[dict[str, Any]]] = _nothing_known
        """The same where a queued acknowledgement is void."""
        self.on_decided: Callable[[Transaction, Batch], Awaitable[None]] = _nothing
        """Does what follows from what a batch has decided, in the same transaction."""
        self.heard_at: Callable[[str, str], int] = _never
        """When any process of an agent was last heard of, here or at another engine."""
        self.on_conflict: Callable[[], Awaitable[None]] | None = None
        """Catches up with the other engines on the store; None: there are none."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._register = register
        self._bodies = bodies
        self._queue = JobQueue()
        self._wake = asyncio.Event()
        self._agenda = Agenda(store, self.leases, clock=clock, wake=self._wake.set)
        self._behind = False
        """More came due than the last batch could look after."""
        self._up_since = 0
        self._set_back = False
        """The clock stands before what the log tells of, and no commit has looked after that yet."""
        self._tasks: list[asyncio.Task[None]] = []
        self._fetching: dict[asyncio.Task[None], Job[Any]] = {}
        """Jobs on their way back into the queue. Only the committer puts some here."""
        self._stopping = False
        self._batch: Batch | None = None
        """What is being decided and committed right now."""

    # --- life ---

    async def start(self, *, up_since: int | None = None) -> None:
        """Take up service: whatever came due meanwhile is looked after first.

        `up_since` is when the first of several engines did, if there are others.
        """
        now = self._clock.now()
        self._up_since = now if up_since is None else up_since
        processes = list(await self._store.processes())
        if up_since is None:
            self.leases.restore(processes, up_since=now)
        else:
            self.leases.learn(processes, up_since=up_since)
        await self._agenda.load()
        self._set_back = await self._last_at() - now > _SET_BACK_MS_MIN
        if self._set_back:
            self._agenda.expect(now)
        self._tasks = [
            asyncio.create_task(self._commit_forever(), name="nodrop commits"),
            asyncio.create_task(self._agenda.watch(), name="nodrop clock"),
        ]

    async def _last_at(self) -> int:
        """Return when the log ends, as the clock had it then."""
        last_at = 0
        for team in await self._store.teams():
            end = (await self._store.head(team.id)).seq
            for entry in await self._store.log(LogPage(team=team.id, after=end - 1, limit=1)):
                last_at = max(last_at, entry.at)
        return last_at

    async def stop(self) -> None:
        """Finish the commit under way, refuse the rest."""
        self._stopping = True
        self._wake.set()
        if self._tasks:
            committer, clock = self._tasks
            clock.cancel()
            await asyncio.wait({committer})
            await asyncio.gather(clock, return_exceptions=True)
        # No commit, no new fetch: once these have ended, nobody is left who fills the queue.
        fetching = dict(self._fetching)
        for task in fetching:
            task.cancel()
        await asyncio.gather(*fetching, return_exceptions=True)
        self._refuse((*self._queue, *fetching.values()), UnavailableError("the relay is stopping"))
        self._queue.clear()

    def now(self) -> int:
        """Return the current time."""
        return self._clock.now()

    def surroundings(self, **known: Any) -> Surroundings:
        """Return what a decision may depend on besides the handoff."""
        return Surroundings(up_since=self._up_since, limits=self.limits, **known)

    def placed(self, team: str, agent: str) -> int:
        """Return how many more unfinished handoffs an agent has by the commit under way."""
        return 0 if self._batch is None else self._batch.placed(team, agent)

    def retrying(self, handoff: Handoff, now: int, **known: Any) -> Surroundings:
        """Return the same for what may give `handoff` another try: how long that must wait."""
        wait = self.retries.wait_ms(handoff.team, handoff.origin, now=now)
        return self.surroundings(retry_wait_ms=wait, **known)

    # --- what callers do ---

    def submit(self, job: Job[T]) -> asyncio.Future[T]:
        """Have `job` decided in the next batch; the future holds the answer once committed."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def told(answer: T) -> None:
            if not future.done():  # else the caller went away; the commit stands
                future.set_result(answer)

        def refused(error: NodropError) -> None:
            if not future.done():
                future.set_exception(error)

        job.told, job.refused = told, refused
        self.post(job)
        return future

    def post(self, job: Job[Any]) -> None:
        """Have `job` decided in the next batch, after those before it; it says whom to tell."""
        if self._stopping:
            raise UnavailableError("the relay is stopping")
        if len(self._queue) >= self.limits.queue_commands_max:
            raise QueueFullError(f"{len(self._queue)} commands wait for a commit")
        if (
            job.by is not None
            and self._queue.of(job.by) >= self.limits.queue_commands_per_agent_max
        ):
            raise QueueFullError(
                f"{self._queue.of(job.by)} commands of {job.by[1]} wait for a commit"
            )
        self._queue.append(job)
        self._wake.set()

    def join(self, taker: Taker, *, free: int) -> None:
        """Let a connection wait for work."""
        self.takers.join(taker, free=free, now=self._clock.now())
        self._wake.set()

    def grant(self, taker: Taker, n: int) -> None:
        """Let a connection have more work."""
        self.takers.grant(taker, n, now=self._clock.now())
        if taker.free > 0:
            self._wake.set()

    def hear(self, team: str, process: str, now: int) -> None:
        """Deliver to a process again that has just shown a sign of life."""
        if self.takers.hear(team, process, now):
            self._wake.set()

    def expect_life(self, batch: Batch, team: str, agent: str) -> None:
        """Look after an agent that has acknowledged something as queued.

        Kept as a process with the agent's own name: it is there for as long as any of them is, and
        known after a start and to other engines.
        """
        beat = self._queued_lease_ms // self.limits.lease_heartbeats
        if not batch.sees(team, agent, heartbeat_ms=beat):
            process = Process(
                team=team, id=agent, agent=agent, heartbeat_ms=beat, seen_at=batch.now
            )
            batch.see(self.leases.see(process))

    @property
    def _queued_lease_ms(self) -> int:
        """How long an agent may be silent before what it has queued is asked for elsewhere."""
        beat = round(self.limits.heartbeat_seconds * SECOND)
        return self.limits.lease_heartbeats_unacknowledged * beat

    # --- what other engines did ---

    def up_since(self, at: int) -> None:
        """Know since when there has been an engine all the time."""
        if at > self._up_since:
            self._up_since = at
            self.leases.excuse(at)

    def apply_changes(self, handoffs: Iterable[Handoff], processes: Iterable[Process]) -> None:
        """Know what others have changed: whoever waits for it here, and when it comes due."""
        for process in processes:
            self.leases.learn([process], up_since=self._up_since)
            if self.takers.learn(process.team, process.id, process.seen_at):
                self._wake.set()
        for handoff in handoffs:
            self._note_lapsed(handoff)
            self._agenda.expect(due_at(handoff))
            if takeable(handoff):
                self.feed([(handoff.team, handoff.recipient)])
        self._agenda.rearm()

    def feed(self, agents: Iterable[Key]) -> None:
        """Look through the inboxes of these agents."""
        self.takers.recheck(agents)
        self._wake.set()

    # --- the loop ---

    async def _commit_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._stopping:
                return
            jobs = self._queue.take(self.limits.batch_commands_max)
            if self._queue:
                self._wake.set()
            await self._commit(jobs)

    async def _commit(self, jobs: list[Job[Any]]) -> None:
        now = self._clock.now()
        for team, process in (job.held for job in jobs if job.held and job.alive):
            self.leases.hear(team, process, now)  # who waits for us to be heard is not silent
            self.takers.hear(team, process, now)
        to_check = self.takers.to_check()
        silent = self.leases.to_check(now)
        served: dict[int, tuple[Taker, list[Handoff]]] = {}
        try:
            await self._transact_at_last(jobs, to_check, silent, served, now)
        except Exception as error:
            if not isinstance(error, NodropError):
                log.exception("a commit failed")
                error = StoreUnavailableError()
            self._refuse(jobs, error)
            # Nothing of it may be believed. Whoever waited for work or was to be looked after still
            # is, though not at once: a full disk stays full for a while.
            self.takers.recheck()
            for taker, _ in served.values():
                self.takers.doubted(taker)
            for process in silent:
                self.leases.check_at(process.team, process.id, now + SECOND)
            self._agenda.put_off(now + SECOND)

    async def _transact_at_last(
        self,
        jobs: list[Job[Any]],
        to_check: list[Key],
        silent: list[Process],
        served: dict[int, tuple[Taker, list[Handoff]]],
        now: int,
    ) -> None:
        """Decide again for as long as other engines change what was decided on."""
        for _ in range(_DECISIONS_MAX):
            try:
                return await self._transact(jobs, to_check, silent, served, now)
            except ConflictError:
                served.clear()  # nothing of it was kept
                if self.on_conflict is not None:
                    await self.on_conflict()
            finally:
                self._batch = None
        raise StoreUnavailableError("others write to this team at the same time")

    async def _transact(
        self,
        jobs: list[Job[Any]],
        to_check: list[Key],
        silent: list[Process],
        served: dict[int, tuple[Taker, list[Handoff]]],
        now: int,
    ) -> None:
        async with self._store.transaction() as tx:
            batch = Batch(await tx.load(self._wanted(jobs, silent)), now=now, salt=self._ids.salt)
            self._batch = batch
            if self.on_conflict is not None:  # another engine may have heard of them since
                self.leases.learn(batch.processes, up_since=self._up_since)
            self._look_after([p for p in silent if p.id != p.agent], batch)
            for process in silent:
                if process.id == process.agent:
                    await self._look_after_queue(process, tx, batch)
            if self._set_back:
                await self._count_anew(tx, batch)
            await self._tick(tx, batch)
            answers = [self._decide(job, batch) for job in jobs]
            await self.on_decided(tx, batch)
            if await self._serve(tx, batch, to_check, served):
                await self.on_decided(tx, batch)
                self.feed(batch.takeable_by_recipient())  # what follows is delivered next
            self._mark_outcomes(batch)
            if batch.stated:
                self.on_stated(batch)
            changes = batch.changes()
            seqs = await tx.append(changes)
        # From here on it is true.
        self._set_back = False
        self._note_leases(silent, batch)
        for key, body in batch.bodies.items():
            self._bodies.put(key, body)
        await self._note_due(changes, now)
        self._answer(jobs, answers, seqs)
        for taker, handoffs in served.values():
            self.takers.served(taker, handoffs)
        if teams := frozenset(draft.team for draft in changes.entries):
            self.on_commit(
                Committed(
                    at=now,
                    handoffs=batch.touched,
                    changed=batch.changed,
                    happened=batch.happened,
                    seqs=seqs,
                    teams=teams,
                    changes=changes,
                )
            )

    # --- the parts of a batch ---

    @staticmethod
    def _wanted(jobs: Sequence[Job[Any]], silent: Sequence[Process]) -> Wanted:
        held = [job.held for job in jobs if job.held]
        return union((job.wanted for job in jobs), [*held, *((p.team, p.id) for p in silent)])

    def _decide(self, job: Job[Any], batch: Batch) -> Any:
        try:
            return batch.attempt(job.run)
        except (NodropError, MissingBodyError, MissingManifestError) as error:
            return error
        except Exception:
            log.exception("a command could not be decided")
            return RelayFaultError()

    def _answer(self, jobs: list[Job[Any]], answers: list[Any], seqs: Sequence[int]) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, MissingBodyError | MissingManifestError):
                self._fetch_and_try_again(job, answer)
            elif isinstance(answer, NodropError):
                job.refused(answer)
            else:
                job.told(answer(seqs) if callable(answer) else answer)

    def _fetch_and_try_again(
        self, job: Job[Any], missing: MissingBodyError | MissingManifestError
    ) -> None:
        async def fetch() -> None:
            try:
                if isinstance(missing, MissingBodyError):
                    await self._bodies.fetch([missing.key])
                else:
                    await self._recall(missing)
            except Exception as error:
                if not isinstance(error, NodropError):
                    log.exception("a fetch failed")
                    error = StoreUnavailableError()
                self._refuse([job], error)
                return
            job.fetches += 1
            if job.fetches > _FETCHES_MAX:
                self._refuse([job], RelayFaultError())
                return
            self._queue.append(job)
            self._wake.set()

        task = asyncio.create_task(fetch())
        self._fetching[task] = job  # a task that nobody refers to may be collected unfinished
        task.add_done_callback(self._fetching.pop)

    async def _recall(self, missing: MissingManifestError) -> None:
        manifest = await self._store.manifest(missing.team, missing.agent, missing.version)
        if manifest is None:
            raise RelayFaultError
        self._register.recall(missing.team, missing.agent, missing.version, manifest)

    @staticmethod
    def _refuse(jobs: Iterable[Job[Any]], error: NodropError) -> None:
        for job in jobs:
            job.refused(error)

    async def _serve(
        self,
        tx: Transaction,
        batch: Batch,
        to_check: list[Key],
        served: dict[int, tuple[Taker, list[Handoff]]],
    ) -> bool:
        """Deliver what waits to whom waits, in the commit that made it possible.

        `to_check` are the agents whose inboxes must be read. The others were given all there was, or can
        have nothing: only what this batch put into their inboxes is looked at. Returns whether
        something was rejected instead, because it does not fit the contract of its recipient.
        """
        rejected = False
        for handoff in batch.touched:
            self._note_lapsed(handoff)
        fresh = batch.takeable_by_recipient()
        looked_through = dict.fromkeys(to_check)
        for team, agent in {**looked_through, **dict.fromkeys(fresh)}:
            free = self.takers.free(team, agent)
            if not free:
                self.takers.recheck([(team, agent)])
                continue
            limit = min(free, self.limits.deliveries_max)
            queue = fresh.get((team, agent), [])
            bindings: dict[str, Binding] = {}
            while True:
                if (team, agent) in looked_through:
                    most = limit + batch.touches
                    stored = batch.admit(await tx.claimable(team, agent, limit=most))
                    # The batch may have given one of them to another agent, which the store ignores.
                    mine = [h for h in stored if takeable(h) and h.recipient == agent]
                    queue = list({h.id: h for h in (*queue, *mine)}.values())
                    if len(stored) < most:
                        self.takers.emptied(team, agent)
                queue = sorted(queue, key=lambda h: (rank(h), h.id))
                unfit = await self._bind(batch, queue[:limit], bindings)
                if not unfit:
                    break
                rejected = True
                queue = [h for h in queue if h.id not in unfit]
            few = queue[:limit]
            if self.takers.has_once(team, agent):
                few = await self._fitting(batch, few)
            assigned = self.takers.assign(team, agent, few, now=batch.now)
            for taker, handoff in assigned:
                delivered = self._deliver(batch, taker, handoff, bindings.get(handoff.id))
                served.setdefault(id(taker), (taker, []))[1].append(delivered)
            if len(queue) > len(assigned):  # a consumer may have left while the store was read
                self.takers.recheck([(team, agent)])
                if free > limit or len(few) < min(limit, len(queue)):
                    self._wake.set()
        return rejected

    async def _fitting(self, batch: Batch, handoffs: list[Handoff]) -> list[Handoff]:
        """Return the first of these, as many as one answer has room for, and at least one."""
        if not handoffs:
            return handoffs
        team, left = handoffs[0].team, self.limits.page_bytes_max
        sizes = await self._store.body_sizes(team, [(h.id, 1) for h in handoffs])
        for count, handoff in enumerate(handoffs):
            brought = batch.bodies.get((team, handoff.id, 1)) or b""
            left -= sizes.get((handoff.id, 1), len(brought))
            if left < 0 and count:
                return handoffs[:count]
        return handoffs

    async def _bind(
        self, batch: Batch, handoffs: Sequence[Handoff], bindings: dict[str, Binding]
    ) -> set[str]:
        """Find the contracts of first deliveries; return what does not fit its own, rejected."""
        unfit: set[str] = set()
        for handoff in handoffs:
            binding = await self.on_delivery(batch, handoff) if handoff.unbound else None
            if binding is None:
                continue
            bindings[handoff.id] = binding
            if binding.refused is not None:
                unfit.add(handoff.id)
                deliver = commands.Deliver(process=handoff.recipient, heartbeat_ms=None)
                around = self.surroundings(binding=binding)
                batch.apply(handoff.team, handoff.id, deliver, by=RELAY, around=around)
        return unfit

    def _deliver(
        self, batch: Batch, taker: Taker, handoff: Handoff, binding: Binding | None
    ) -> Handoff:
        if taker.heartbeat_ms is not None and not batch.sees(
            taker.team, taker.process, heartbeat_ms=taker.heartbeat_ms
        ):
            # To be delivered to is no sign of life: what else the process holds is not kept by it.
            known = self.leases.get(taker.team, taker.process)
            process = Process(
                team=taker.team,
                id=taker.process,
                agent=taker.agent,
                heartbeat_ms=taker.heartbeat_ms,
                seen_at=known.seen_at if known else batch.now,
            )
            batch.see(self.leases.see(process))
        if taker.command_id is not None and taker.request is not None:
            batch.asked(taker.team, taker.agent, taker.command_id, taker.request)
        return batch.apply(
            handoff.team,
            handoff.id,
            commands.Deliver(process=taker.process, heartbeat_ms=taker.heartbeat_ms),
            by=Actor(agent=taker.agent),
            around=self.surroundings(binding=binding),
            command_id=taker.command_id,
        )

    def _mark_outcomes(self, batch: Batch) -> None:
        """Record that an outcome is sent, in the commit of the outcome, where somebody waits."""
        for handoff in batch.touched:
            if (
                handoff.outcome is not None
                and handoff.settled_at is None
                and self.on_outcome(handoff)
            ):
                batch.apply(
                    handoff.team,
                    handoff.id,
                    commands.MarkOutcomeDelivered(),
                    by=RELAY,
                    around=self.surroundings(),
                )

    # --- time ---

    async def _count_anew(self, tx: Transaction, batch: Batch) -> None:
        """Let no clock wait for a time that may be a year away: the clock was set back.

        Everything in one commit: the next start must not take a part of it for the whole.
        """
        for handoff in batch.admit(await tx.due(now=_FOREVER, limit=_ALL)):
            batch.apply(
                handoff.team,
                handoff.id,
                commands.CountAnew(),
                by=RELAY,
                around=self.surroundings(),
            )

    async def _tick(self, tx: Transaction, batch: Batch) -> None:
        if not self._agenda.is_due(batch.now):
            return
        due = batch.admit(await tx.due(now=batch.now, limit=self.limits.batch_commands_max))
        await self.on_due(due)
        until = batch.now
        self._behind = len(due) >= self.limits.batch_commands_max
        if self._behind:
            until = min(due_at(due[-1]) or until, until)  # what comes later waits for the rest
        # One clock at a time, whosever is next: what happened while nobody looked is told in order.
        waiting = [
            (timer.at, number)
            for number, handoff in enumerate(due)
            if (timer := ran_out(handoff, batch.now)) is not None
        ]
        heapq.heapify(waiting)
        for _ in range(_TICKS_PER_HANDOFF_MAX * len(due)):
            if not waiting:
                return
            _, number = heapq.heappop(waiting)
            handoff = due[number] = await self.tick(batch, due[number])
            timer = ran_out(handoff, batch.now)
            if timer is not None and timer.at <= until:
                heapq.heappush(waiting, (timer.at, number))

    async def tick(self, batch: Batch, handoff: Handoff) -> Handoff:
        """Look after one clock of a handoff that ran out, if one did."""
        timer = ran_out(handoff, batch.now)
        known = await self.on_step(batch, handoff, timer) if timer else {}
        around = self.retrying(handoff, batch.now, **known)
        after = batch.apply(handoff.team, handoff.id, commands.Tick(), by=RELAY, around=around)
        self.retries.note(handoff, after, now=batch.now)
        return after

    def _look_after(self, silent: list[Process], batch: Batch) -> None:
        """Take back what silent processes hold."""
        lapsed: list[tuple[int, Handoff]] = []
        for process in silent:
            for handoff in batch.held(process.team, process.id):
                until = self.leases.until(handoff)
                if until is not None and until <= batch.now:
                    lapsed.append((until, handoff))
        for _, handoff in sorted(lapsed, key=lambda lease: lease[0]):
            after = batch.apply(
                handoff.team,
                handoff.id,
                commands.LapseLease(process=handoff.process or ""),
                by=RELAY,
                around=self.retrying(handoff, batch.now),
            )
            self.retries.note(handoff, after, now=batch.now)
            self.takers.lapsed(handoff.team, handoff.process or "", batch.now)
        for process in silent:
            held = batch.held(process.team, process.id)
            if all(self.leases.until(handoff) is None for handoff in held):
                batch.forget(process.team, process.id)

    async def _look_after_queue(self, process: Process, tx: Transaction, batch: Batch) -> None:
        """Hold an agent that is gone to nothing that it acknowledged as queued."""
        team, agent = process.team, process.agent
        heard_at = max(self.heard_at(team, agent), self._up_since)
        if heard_at + self._queued_lease_ms > batch.now:
            batch.see(self.leases.see(msgspec.structs.replace(process, seen_at=heard_at)))
            return
        for handoff in batch.admit(await tx.claimable(team, agent, limit=_ALL)):
            if handoff.queued is None:
                continue
            known = await self.on_unqueued(batch, handoff)
            around = self.surroundings(**known)
            batch.apply(team, handoff.id, commands.LapseQueue(), by=RELAY, around=around)
        batch.forget(team, agent)

    def _note_lapsed(self, handoff: Handoff) -> None:
        """Know a process whose lease was taken back by a timer or by another node."""
        if handoff.revivable:
            self.takers.lapsed(handoff.team, handoff.process or "", handoff.offered_at)

    def _note_leases(self, silent: list[Process], batch: Batch) -> None:
        """Know when each process must be looked after again."""
        for team, process in batch.processes_gone:
            self.leases.forget(team, process)
        held = [h for p in silent for h in batch.held(p.team, p.id)]
        for handoff in (*held, *batch.touched):
            if not handoff.live or handoff.process is None:
                continue
            until = self.leases.until(handoff)
            if until is not None:
                self.leases.check_at(handoff.team, handoff.process, until)

    async def _note_due(self, changes: Changes, now: int) -> None:
        """Know the earliest due time: of what this batch changed, or of what was left."""
        if self._agenda.is_due(now):
            later_by = 0 if self.on_conflict is None else _LOOK_AGAIN_MS
            if self._behind:
                # Where much came due at once, callers get as much of the time as the clocks do.
                took = self._clock.now() - now
                later_by = took + min(took, _REST_MS_MAX)
            await self._agenda.read_on(now, later_by=later_by)
        for row in changes.rows:
            self._agenda.expect(row.due_at)
        self._agenda.rearm()


async def _nothing(*_: object) -> None:
    """Do nothing, where nobody has said what to do."""


async def _no_contract(*_: object) -> None:
    """Bind nothing, where nobody knows a manifest."""


def _never(*_: str) -> int:
    """Return a time before everything, where nobody has said who was heard of."""
    return 0


async def _nothing_known(*_: object) -> dict[str, Any]:
    return {}
