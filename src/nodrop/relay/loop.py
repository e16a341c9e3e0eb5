"""Group commit: commands that arrive together become one transaction.

    load → decide → append → commit → answer

Whatever arrives while a commit is on its way forms the next batch, so there is no timer to tune:
a lone command commits at once, and a thousand share one sync. Answers, deliveries and wake-ups
leave only after the commit. The loop is the only writer; it knows nothing of servers or of
requests: a `Job` brings what it wants loaded and a function that decides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

from nodrop.log.port import ConflictError, Key, LogPage, Process, Store
from nodrop.model import commands
from nodrop.model.commands import RELAY
from nodrop.model.errors import (
    NodropError,
    RelayFaultError,
    StoreUnavailableError,
    UnavailableError,
)
from nodrop.model.handoff import Handoff
from nodrop.model.limits import SECOND
from nodrop.relay.batch import Batch
from nodrop.relay.bodies import Bodies, MissingBodyError
from nodrop.relay.delivery.deliveries import Deliveries, Served
from nodrop.relay.directory.register import MissingManifestError, Register
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.consequences import Consequences
from nodrop.relay.handoffs.following import Following
from nodrop.relay.identity.statements import Statements
from nodrop.relay.jobs import Committed, Job, all_wanted
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.timers import Timers

log = logging.getLogger("nodrop.relay")

_FETCHES_MAX: Final = 5
_DECISIONS_MAX: Final = 8
"""Of one batch, where other nodes keep changing what it rests on."""
_SET_BACK_MS_MIN: Final = SECOND
"""A clock that was set back by less only makes things happen later by as much."""

_MISSING: Final = (MissingBodyError, MissingManifestError)
_DELIVERED: Final = commands.MarkOutcomeDelivered()


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
        while True:
            await self._engine.wake.wait()
            if self._engine.stopping:
                return
            jobs = self._engine.queue.take(self._engine.limits.batch_commands_max)
            if self._engine.queue.count:
                self._engine.wake.set()
            await self._commit(jobs)
            del jobs  # they hold requests, and who asked, while this waits for more

    async def _commit(self, jobs: list[Job[Any]]) -> None:
        now = self._clock.now()
        for job in jobs:
            if job.alive and job.held:
                # A process that waits for its job to be decided is not silent.
                self._engine.leases.hear(*job.held, now)
                self._engine.takers.hear(*job.held, now)
        takers = self._engine.takers
        to_check = takers.to_check() if takers.unchecked else []
        leases, agenda = self._engine.leases, self._engine.agenda
        leases.now = now
        silent = leases.to_check() if leases.next_at <= now else []
        if not (jobs or to_check or silent or self._set_back or agenda.next_due <= now):
            agenda.rearm()
            return
        served: Served = {}
        try:
            await self._transact_at_last(jobs, to_check, silent, served, now)
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

    async def _transact_at_last(
        self,
        jobs: list[Job[Any]],
        to_check: list[Key],
        silent: list[Process],
        served: Served,
        now: int,
    ) -> None:
        """Decide again for as long as other nodes change what was decided on."""
        for _ in range(_DECISIONS_MAX):
            try:
                return await self._transact(jobs, to_check, silent, served, now)
            except ConflictError:
                served.clear()  # nothing of it was kept
                if self._catch_up is not None:
                    await self._catch_up()
            finally:
                self._engine.batch = None
        raise StoreUnavailableError("others write to this team at the same time")

    async def _transact(
        self,
        jobs: list[Job[Any]],
        to_check: list[Key],
        silent: list[Process],
        served: Served,
        now: int,
    ) -> None:
        async with self._store.transaction() as tx:
            batch = Batch(
                await tx.load(all_wanted(jobs, silent)),
                now=now,
                salt=self._ids.salt,
            )
            self._engine.batch = batch
            if self._catch_up is not None:  # another node may have heard of them since
                self._engine.leases.learn(batch.processes, up_since=self._engine.up_since)
            due = self._engine.agenda.next_due <= now
            if silent or self._set_back or due:
                await self._timers.look_after(silent, tx, batch, set_back=self._set_back)
            answers = self._decide(jobs, batch)
            changed = batch.changed
            if self._consequences.follow_from(changed):
                await self._consequences.look_after(tx, batch)
                changed = batch.changed
            fresh = self._deliveries.sort(changed)
            if (fresh or to_check) and await self._deliveries.serve(
                tx, batch, to_check, fresh, served
            ):
                await self._consequences.look_after(tx, batch)
                changed = batch.changed
                self._engine.feed(self._deliveries.sort(changed))  # what follows is delivered next
            self._mark_outcomes(batch, changed)
            if batch.stated:
                self._statements.sign(batch)
            changes = batch.changes()
            seqs = await tx.append(changes)
        # From here on it is true. Those who wait are told first: they go on while the relay counts.
        self._set_back = False
        self._bodies.keep(batch.bodies)
        self._answer(jobs, answers, seqs)
        for taker, handoffs in served.values():
            self._engine.takers.served(taker, handoffs)
        self._following.committed([row.handoff for row in changes.rows])
        self._flush()
        alone = self._catch_up is None
        if due:
            await self._timers.read_on(now, alone=alone)
        self._timers.note(silent, batch, changes, alone=alone)
        if changes.entries:
            self._committed(
                Committed(
                    at=now,
                    changes=changes,
                    seqs=seqs,
                    types={draft.type for draft in changes.entries},
                    changed=list(zip(batch.before, changes.rows, strict=True)),
                    happened=batch.happened,
                    bodies=batch.bodies,
                )
            )

    # --- the parts of a batch ---

    def _decide(self, jobs: list[Job[Any]], batch: Batch) -> list[Any]:
        """Return the answer to each job, or the error that it is told of."""
        answers: list[Any] = []
        for job in jobs:
            try:
                answers.append(batch.attempt(job.run))
            except (NodropError, MissingBodyError, MissingManifestError) as error:
                answers.append(error)
            except Exception:
                log.exception("a command could not be decided")
                answers.append(RelayFaultError())
        return answers

    def _answer(self, jobs: list[Job[Any]], answers: list[Any], seqs: Sequence[int]) -> None:
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, _MISSING):
                self._fetch_and_try_again(job, answer)
            elif isinstance(answer, NodropError):
                job.refused(answer)
            else:
                try:
                    job.told(answer(seqs) if callable(answer) else answer)
                except Exception:  # a failure to answer one command concerns no other
                    log.exception("a command was committed, and its answer failed")
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

    def _mark_outcomes(
        self, batch: Batch, changed: Iterable[tuple[Handoff | None, Handoff]]
    ) -> None:
        """Record that an outcome is sent, in the commit of the outcome, where somebody waits."""
        around = self._engine.surroundings()
        for _, handoff in changed:
            if (
                handoff.outcome is not None
                and handoff.settled_at is None
                and self._following.is_awaited(handoff)
            ):
                batch.apply(handoff.team, handoff.id, _DELIVERED, by=RELAY, around=around)
