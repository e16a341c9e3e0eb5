"""Group commit: commands that arrive together become one transaction.

    load → decide → append → commit → answer

Whatever arrives while a commit is on its way forms the next batch, so there is no timer to tune:
a lone command commits at once, and a thousand share one sync. Answers, deliveries and wake-ups
leave only after the commit. The loop is the only writer; it knows nothing of servers or of
requests: a `Job` brings what it wants loaded and a function that decides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from nodrop.log.port import ConflictError, Key, LogPage, Process, Row, Store, takeable
from nodrop.model import commands
from nodrop.model.commands import RELAY
from nodrop.model.errors import (
    NodropError,
    RelayFaultError,
    StoreUnavailableError,
    UnavailableError,
)
from nodrop.model.handoff import State
from nodrop.model.limits import SECOND
from nodrop.relay.batch import Batch
from nodrop.relay.bodies import Bodies, MissingBodyError
from nodrop.relay.delivery.deliveries import Deliveries, Fresh, Served
from nodrop.relay.directory.register import MissingManifestError, Register
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.consequences import Consequences, matters
from nodrop.relay.handoffs.following import Following
from nodrop.relay.identity.statements import Statements
from nodrop.relay.jobs import Committed, Job, Wants
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.timers import Timers

log = logging.getLogger("nodrop.relay")

_FETCHES_MAX: Final = 5
_DECISIONS_MAX: Final = 8
"""Of one batch, where other nodes keep changing what it rests on."""
_SET_BACK_MS_MIN: Final = SECOND
"""A clock that was set back by less only makes things happen later by as much."""

_DELIVERED: Final = commands.MarkOutcomeDelivered()
_COMPLETED: Final = State.COMPLETED
_OFFERED: Final = State.OFFERED


class Loop:
    """The only writer of a store."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        timers: Timers,
        deliveries: Deliveries,
        consequences: Consequences,
        following: Following,
        statements: Statements,
        register: Register,
        bodies: Bodies,
        clock: Clock,
        ids: Ids,
        committed: Callable[[Committed], None],
        flush: Callable[[], None],
    ) -> None:
        """Have told what is to be told with `flush`, then call `committed` with what a commit made true."""
        self._engine = engine
        self._store = store
        self._timers = timers
        self._deliveries = deliveries
        self._consequences = consequences
        self._following = following
        self._statements = statements
        self._register = register
        self._bodies = bodies
        self._clock = clock
        self._ids = ids
        self._committed = committed
        self._flush = flush
        self._catch_up: Callable[[], Awaitable[None]] | None = None
        """Reads what other nodes wrote; None: there are none."""
        self._set_back = False
        """The clock stands before what the log tells of, and no commit has looked after that yet."""
        self._tasks: list[asyncio.Task[None]] = []
        self._fetching: dict[asyncio.Task[None], Job[Any]] = {}
        """Jobs on their way back into the queue. Only the committer puts some here."""

    # --- life ---

    async def start(
        self,
        *,
        up_since: int | None = None,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Take up service: whatever came due meanwhile is looked after first.

        With other nodes on the store, `up_since` is when the first of them started, and `catch_up`
        reads what they wrote.
        """
        engine, now = self._engine, self._clock.now()
        self._catch_up = catch_up
        engine.served_since(now if up_since is None else up_since)
        processes = list(await self._store.processes())
        if up_since is None:
            engine.leases.restore(processes, up_since=now)
        else:
            engine.leases.learn(processes, up_since=up_since)
        await engine.agenda.load()
        self._set_back = await self._last_at() - now > _SET_BACK_MS_MIN
        if self._set_back:
            engine.agenda.expect(now)
        self._tasks = [
            asyncio.create_task(self._commit_forever(), name="nodrop commits"),
            asyncio.create_task(engine.agenda.watch(), name="nodrop clock"),
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
        self._engine.stopping = True
        self._engine.wake.set()
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
        self._refuse(
            (*self._engine.queue, *fetching.values()), UnavailableError("the relay is stopping")
        )
        self._engine.queue.clear()

    # --- the loop ---

    async def _commit_forever(self) -> None:
        engine, wake, queue = self._engine, self._engine.wake, self._engine.queue
        while True:
            while not wake.is_set:
                wake.waiting = asyncio.get_running_loop().create_future()
                await wake.waiting
            wake.is_set = False
            if engine.stopping:
                return
            jobs = queue.take(engine.limits.batch_commands_max)
            if queue.count:
                wake.set()
            await self._commit(jobs)
            del jobs  # they hold requests, and who asked, while this waits for more

    async def _commit(self, jobs: list[Job[Any]]) -> None:
        now = self._clock.now()
        takers, leases, agenda = self._engine.takers, self._engine.leases, self._engine.agenda
        wants = Wants()
        handoffs, names = wants.handoffs, wants.commands
        for job in jobs:
            if job.about is not None:
                handoffs.add(job.about)
            if job.command is not None:
                names.add(job.command)
            if job.key_use is not None:
                wants.keys.add(job.key_use)
            if job.besides is not None:
                wants.add(job.besides)
            if job.held is not None:
                wants.processes.add(job.held)
                if job.alive:  # a process that waits for its job to be decided is not silent
                    leases.hear(*job.held, now)
                    takers.hear(*job.held, now)
        to_check = takers.to_check() if takers.unchecked else []
        leases.now = now
        silent = leases.to_check() if leases.next_at <= now else []
        if not (jobs or to_check or silent or self._set_back or agenda.next_due <= now):
            agenda.rearm()
            return
        for process in silent:
            wants.processes.add((process.team, process.id))
        served: Served = {}
        try:
            for _ in range(_DECISIONS_MAX):
                try:
                    await self._transact(jobs, wants, to_check, silent, served, now)
                    return  # noqa: TRY300  # what is below is for the next try
                except ConflictError:  # other nodes changed what was decided on
                    served.clear()  # nothing of it was kept
                    if self._catch_up is not None:
                        await self._catch_up()
                finally:
                    self._engine.batch = None
            raise StoreUnavailableError("others write to this team at the same time")  # noqa: TRY301  # refused as any other failure is
        except Exception as error:
            if not isinstance(error, NodropError):
                log.exception("a commit failed")
                error = StoreUnavailableError()
            self._refuse(jobs, error)
            self._engine.leases.doubt()
            # Nothing of it may be believed. Whoever waited for work or was to be looked after still
            # is, though not at once: a full disk stays full for a while.
            self._engine.takers.recheck()
            for taker, _ in served.values():
                self._engine.takers.doubted(taker)
            for process in silent:
                self._engine.leases.check_at(process.team, process.id, now + SECOND)
            agenda.put_off(now + SECOND)

    async def _transact(  # noqa: PLR0917  # called for every commit, with what it begins with
        self,
        jobs: list[Job[Any]],
        wants: Wants,
        to_check: list[Key],
        silent: list[Process],
        served: Served,
        now: int,
    ) -> None:
        engine, consequences = self._engine, self._consequences
        async with self._store.transaction() as tx:
            batch = Batch(await tx.load(wants), now=now, salt=self._ids.salt)
            engine.batch = batch
            if self._catch_up is not None:  # another node may have heard of them since
                engine.leases.learn(batch.processes, up_since=engine.up_since)
            due = engine.agenda.next_due <= now
            if silent or self._set_back or due:
                await self._timers.look_after(silent, tx, batch, set_back=self._set_back)
            answers = batch.decide_each([job.run for job in jobs])
            fresh, ended, has_consequences = self._sort(batch)
            if has_consequences or consequences.promised:
                await consequences.look_after(tx, batch)
                fresh, ended, _ = self._sort(batch)
            if (fresh or to_check) and await self._deliveries.serve(
                tx, batch, to_check, fresh, served
            ):
                await consequences.look_after(tx, batch)
                fresh, ended, _ = self._sort(batch)
                engine.feed(fresh)  # what follows is delivered next
            for key in ended:
                # An outcome is sent with its commit where its requester waits, which is recorded in it.
                followers = self._following.followers.get(key)
                if followers is not None and any([each.origin for each in followers]):  # noqa: C419  # a list is quicker for so few
                    batch.apply(*key, _DELIVERED, by=RELAY, around=engine.usual)
            if batch.stated:
                self._statements.sign(batch)
            changes = batch.changes()
            seqs = await tx.append(changes)
        # From here on it is true. Those who wait are told first: they go on while the relay counts.
        self._set_back = False
        if batch.bodies:
            self._bodies.keep(batch.bodies)
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Exception):
                self._tell_why(job, answer)
                continue
            try:
                job.told(answer(seqs) if callable(answer) else answer)
            except Exception:  # a failure to answer one command concerns no other
                log.exception("a command was committed, and its answer failed")
                job.refused(RelayFaultError())
        for taker, handoffs in served.values():
            engine.takers.served(taker, handoffs)
        if self._following.followers:
            self._following.committed([row.handoff for row in changes.rows])
        self._flush()
        alone = self._catch_up is None
        if due:
            await self._timers.read_on(now, alone=alone)
        if silent or changes.processes or changes.processes_gone:
            self._timers.note_processes(silent, batch, changes, alone=alone)
        self._expect(changes.rows)
        if changes.entries:
            self._committed(
                Committed(
                    at=now,
                    changes=changes,
                    seqs=seqs,
                    changed=list(zip(batch.before.values(), changes.rows, strict=True)),
                    happened=batch.happened,
                    bodies=batch.bodies,
                )
            )

    # --- the parts of a batch ---

    def _sort(self, batch: Batch) -> tuple[Fresh, list[Key], bool]:
        """Return what a batch put into inboxes of those connected, what has ended, and whether anything follows.

        Notes which processes it found silent.
        """
        fresh: Fresh = {}
        ended: list[Key] = []
        follows, handoffs, takers = False, batch.handoffs, self._engine.takers
        for key, before in batch.before.items():
            after = handoffs[key]
            if after.outcome is not None:
                if after.settled_at is None:
                    ended.append(key)
                is_plain = after.state is _COMPLETED and not after.legs and after.decision is None
                if not is_plain or after.member_of is not None:
                    follows = follows or matters(before, after)
                continue
            if after.member_of is not None:
                follows = follows or matters(before, after)
            if after.live:
                continue
            if after.revivable:
                self._engine.note_lapsed(after)
            if after.state is _OFFERED:
                agent = (after.team, after.recipient)
                if agent not in takers.by_agent:
                    takers.emptied.discard(agent)
                elif takeable(after):
                    fresh.setdefault(agent, []).append(after)
        return fresh, ended, follows

    def _expect(self, rows: Iterable[Row]) -> None:
        """Know the earliest due time, and when processes must be looked after again."""
        leases, agenda = self._engine.leases, self._engine.agenda
        for row in rows:
            due = row.due_at
            if due is not None and due < agenda.next_due:
                agenda.next_due = due
            if row.handoff.live:
                leases.expect(row.handoff)
        if agenda.next_due < agenda.armed_at or leases.next_at < agenda.armed_at:
            agenda.rearm()

    def _tell_why(self, job: Job[Any], error: Exception) -> None:
        """Refuse a job that could not be decided, unless it lacks what can be fetched."""
        if isinstance(error, MissingBodyError | MissingManifestError):
            self._fetch_and_try_again(job, error)
        elif isinstance(error, NodropError):
            job.refused(error)
        else:
            log.error("a command could not be decided", exc_info=error)
            job.refused(RelayFaultError())

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
            self._engine.queue.append(job)
            self._engine.wake.set()

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
