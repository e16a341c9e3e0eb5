"""Power cuts: the real engine and the real store on a disk that loses what was not synced.

One database lives through several cuts. In each of its lives a team hands off, works and settles
until the power goes, at a random point, sometimes while the database is being opened or closed; in
some of them syncs fail now and then. Then it is opened from what survived and examined: everything
that anybody was answered must be there. The callers' memories go on from life to life, and so do
their unanswered commands.

A seed fixes the load, the cuts and what survives them; so that strings hash alike too, and the run
is the same to the last write, set PYTHONHASHSEED. Controls: `synchronous=NORMAL` and
`answer-before-sync`, of `in_process`.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from nodrop.log.port import Store
from nodrop.model.errors import UnavailableError
from nodrop.relay.relay import Relay
from nodrop_proof.chaos.database import Database, one_after_the_other
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.tally import Tally
from nodrop_proof.kit.powercut import Cut

LIVES_MAX: Final = 8
"""Cuts that one database lives through."""
LIFE_SECONDS_MAX: Final = 60.0
"""A life that goes on for longer than this is one in which nothing is written any more."""

_EARLY: Final = 0.15
"""How often the power may go before anybody is served; a new database has more to lose then."""
_EARLY_AT_FIRST: Final = 0.5
_IN_ORDER: Final = 0.1
"""How often the relay is stopped in order, and the power goes while it closes its database."""
_AT_SYNC: Final = 0.5
"""How often the cut is counted in syncs, so that it comes right before or after one."""
_SYNCS_FAIL: Final = (0.0, 0.0, 0.0, 0.1)
"""How many syncs fail in a life."""
_OPERATIONS_MAX: Final = 600
_OPERATIONS_PER_SYNC: Final = 20
_EARLY_OPERATIONS_MAX: Final = 80
_ANSWERS_MAX: Final = 100


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Cut the power `plan.count` times; return what was lost."""
    tally = Tally(plan)

    async def live(number: int, cuts: int) -> None:
        database = _Database(plan, number, tally)
        await database.live(cuts, lambda: progress(tally.faults, plan.count))

    await one_after_the_other(plan, tally, live, faults_max=LIVES_MAX)
    return tally.report()


class _Database(Database):
    """One that the power goes from, again and again."""

    def __init__(self, plan: Plan, number: int, tally: Tally) -> None:
        super().__init__(plan, number, tally, fault="power-cut")
        self._cut = asyncio.Event()
        self.disk.on_cut = self._cut.set

    async def live(self, cuts: int, done: Callable[[], None]) -> None:
        """Live through `cuts` power cuts, and be examined after each."""
        async with self.in_use():
            for _ in range(cuts):
                self.tally.moments[await self._life()] += 1
                self.tally.faults += 1
                if not await self.desk.deserted():
                    self.books.wrong("somebody waits for a relay that stopped")
                    break
                done()
            self.disk.power_on()

    def add_up(self) -> None:
        """Tell how many syncs failed."""
        self.tally.moments["sync failed"] += self.disk.syncs_failed

    async def _life(self) -> str:
        """Open what survived, examine it, use it until the power goes; return when it went."""
        self._cut.clear()
        self.disk.power_on()
        early = self.chance(_EARLY if self.disk.life else _EARLY_AT_FIRST)
        in_order = self.chance(_IN_ORDER)
        if early:
            self._plan_cut(_EARLY_OPERATIONS_MAX)
        watch = _StopWatch()
        try:
            async with self.host.opened() as (store, connection):
                watch.stop()
                await self.examine(store, connection)
                self.vary_checkpoints(connection)
                watch.go_on()
                async with self.host.relay_on(store) as relay:
                    self.tally.restarts_ms.append(watch.stop())
                    if not early:
                        self._plan_cut(_OPERATIONS_MAX)
                    await self._use(relay, store, in_order=in_order)
                if in_order and not self.disk.off:  # a plan would outlast this life
                    self._plan_cut(_EARLY_OPERATIONS_MAX)
        except UnavailableError:
            if not self.disk.off:
                raise
            return "opening"
        if not self.disk.off:
            self.disk.cut()
        return "closing" if in_order else "working"

    async def _use(self, relay: Relay, store: Store, *, in_order: bool) -> None:
        """Let everybody work until the power goes, or for so many answers."""
        self.disk.syncs_fail = self.random.choice(_SYNCS_FAIL)
        self.desk.serve(relay, store)
        async with asyncio.timeout(LIFE_SECONDS_MAX):
            if in_order:
                await self.desk.answers(self.random.randint(1, _ANSWERS_MAX))
            else:
                await self._cut.wait()
        self.desk.close()
        self.disk.syncs_fail = 0.0

    def _plan_cut(self, operations_max: int) -> None:
        syncs = self.chance(_AT_SYNC)
        most = operations_max // _OPERATIONS_PER_SYNC if syncs else operations_max
        number = self.random.randint(1, most)
        self.disk.cut_at(Cut(number=number, syncs=syncs, done=self.chance(0.5)))


class _StopWatch:
    """Counts milliseconds, from when it is made."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._since = time.perf_counter()

    def stop(self) -> float:
        """Return what was counted so far, and count no more."""
        self._passed += (time.perf_counter() - self._since) * 1_000
        return self._passed

    def go_on(self) -> None:
        """Count on."""
        self._since = time.perf_counter()
