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
import itertools
import time
from collections.abc import Callable
from random import Random
from typing import Final

from nodrop.core.errors import UnavailableError
from nodrop.engine.relay import Relay
from nodrop.proof.chaos.colleagues import Desk, at_work, team
from nodrop.proof.chaos.in_process import Host
from nodrop.proof.chaos.plan import Plan
from nodrop.proof.chaos.remains import examine
from nodrop.proof.chaos.report import Report
from nodrop.proof.chaos.tally import Books, Tally
from nodrop.store import Store
from nodrop.testing.clock import FakeClock
from nodrop.testing.powercut import Cut, PowerCutDisk

LIVES_MAX: Final = 8
"""Cuts that one database lives through."""
REQUESTERS: Final = 6
WORKERS: Final = 4
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
_CHECKPOINT_PAGES: Final = (10, 40, 200, 4_000)
"""How long the write-ahead log gets. A relay's is long; short ones put the main file at risk."""


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Cut the power `plan.count` times; return what was lost."""
    tally = Tally(plan)
    for number in itertools.count():
        left = plan.count - tally.faults
        if left <= 0:
            break
        database = _Database(plan, number, tally)
        await database.live(min(left, LIVES_MAX), lambda: progress(tally.faults, plan.count))
    return tally.report()


class _Database:
    """One database, its disk, and the team that uses it."""

    def __init__(self, plan: Plan, number: int, tally: Tally) -> None:
        # What happens when is drawn apart from what colleagues do: their number of draws varies.
        self._random, load, disk = (
            Random(f"{plan.seed}/{number}/{what}")  # noqa: S311  # to be repeated
            for what in ("faults", "load", "disk")
        )
        self._load = load
        self._tally = tally
        self._books = Books(f"database {number}")
        self._desk = Desk(FakeClock(), load)
        self._disk = PowerCutDisk(f"nodrop-power-cut-{number}", disk)
        self._desk.is_off = lambda: self._disk.off
        self._path = plan.folder / f"power-cut-{number}.db"
        self._host = Host(
            self._path,
            self._disk,
            clock=self._desk.clock,
            random=load,
            controls=plan.controls,
        )
        self._cut = asyncio.Event()
        self._disk.on_cut = self._cut.set

    async def live(self, cuts: int, done: Callable[[], None]) -> None:
        """Live through `cuts` power cuts, and be examined after each."""
        colleagues = team(self._desk, self._load, requesters=REQUESTERS, workers=WORKERS)
        try:
            async with at_work(colleagues):
                for _ in range(cuts):
                    self._tally.moments[await self._life()] += 1
                    self._tally.faults += 1
                    if not await self._desk.deserted():
                        self._books.wrong("somebody waits for a relay that stopped")
                        break
                    done()
                self._disk.power_on()
                async with self._host.opened() as (store, connection):
                    self._books.add(await examine(store, self._desk.memory, connection))
        except UnavailableError as error:
            self._books.wrong(f"could not be opened again: {error}")
        finally:
            self._tally.moments["sync failed"] += self._disk.syncs_failed
            self._disk.unregister()
            self._path.unlink(missing_ok=True)
            self._tally.add(self._desk.memory, self._books)

    async def _life(self) -> str:
        """Open what survived, examine it, use it until the power goes; return when it went."""
        self._cut.clear()
        self._disk.power_on()
        early = self._chance(_EARLY if self._disk.life else _EARLY_AT_FIRST)
        in_order = self._chance(_IN_ORDER)
        if early:
            self._plan_cut(_EARLY_OPERATIONS_MAX)
        watch = _StopWatch()
        try:
            async with self._host.opened() as (store, connection):
                watch.stop()
                self._books.add(await examine(store, self._desk.memory, connection))
                connection.pragma("wal_autocheckpoint", self._random.choice(_CHECKPOINT_PAGES))
                watch.go_on()
                async with self._host.relay_on(store) as relay:
                    self._tally.restarts_ms.append(watch.stop())
                    if not early:
                        self._plan_cut(_OPERATIONS_MAX)
                    await self._use(relay, store, in_order=in_order)
                if in_order:
                    self._plan_cut(_EARLY_OPERATIONS_MAX)
        except UnavailableError:
            if not self._disk.off:
                raise
            return "opening"
        if not self._disk.off:
            self._disk.cut()
        return "closing" if in_order else "working"

    async def _use(self, relay: Relay, store: Store, *, in_order: bool) -> None:
        """Let everybody work until the power goes, or for so many answers."""
        self._disk.syncs_fail = self._random.choice(_SYNCS_FAIL)
        self._desk.serve(relay, store)
        async with asyncio.timeout(LIFE_SECONDS_MAX):
            if in_order:
                await self._desk.answers(self._random.randint(1, _ANSWERS_MAX))
            else:
                await self._cut.wait()
        self._desk.close()
        self._disk.syncs_fail = 0.0

    def _plan_cut(self, operations_max: int) -> None:
        syncs = self._chance(_AT_SYNC)
        most = operations_max // _OPERATIONS_PER_SYNC if syncs else operations_max
        number = self._random.randint(1, most)
        self._disk.cut_at(Cut(number=number, syncs=syncs, done=self._chance(0.5)))

    def _chance(self, share: float) -> bool:
        return self._random.random() < share


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
