"""Full disks: callers are refused with `store_full`, nothing is lost, and service comes back by itself.

Where a file system can be mounted, the relay is a process of its own on a small one (`small_disk`).
Elsewhere, and in the suite, the real engine and the real store run in this process on a disk that
refuses the write for which it has no room, at a random byte of it. Now and then the power goes as
well, or the relay is started again while the disk is still full.

Control, for the disk in this process: `answer-before-sync`, of `in_process`.
"""

import asyncio
import itertools
from collections.abc import Callable
from random import Random
from typing import Final

import msgspec

from nodrop.core.errors import NodropError, UnavailableError
from nodrop.engine.relay import Caller, Relay
from nodrop.proof.chaos import small_disk
from nodrop.proof.chaos.colleagues import TEAM, Desk, at_work, team
from nodrop.proof.chaos.in_process import Host
from nodrop.proof.chaos.plan import Plan
from nodrop.proof.chaos.remains import examine
from nodrop.proof.chaos.report import Report
from nodrop.proof.chaos.small_disk import NotPermittedError
from nodrop.proof.chaos.tally import Books, Tally
from nodrop.testing.clock import FakeClock
from nodrop.testing.powercut import PowerCutDisk
from nodrop.wire import requests

FULLS_MAX: Final = 6
"""Times that one database's disk is full."""
REQUESTERS: Final = 6
WORKERS: Final = 4
WAIT_SECONDS_MAX: Final = 20.0
"""Nothing here waits for time to pass; what takes this long does not happen."""

_ANSWERS_MAX: Final = 60
_ROOM_BYTES_MAX: Final = 60_000
_REFUSED_MAX: Final = 30
_UNTOLD_MAX: Final = 200
"""When so many writes were refused and nobody was told, nobody will be."""
_SERVED_AGAIN: Final = 20
_STAYS_FULL: Final = 0.3
_POWER_GOES: Final = 0.5
_CHECKPOINT_PAGES: Final = (10, 40, 200, 4_000)

_ALARMS: Final = frozenset({"store_unavailable", "relay_fault", "queue_full", "unavailable"})
"""What a full disk is not."""


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Fill the disk `plan.count` times; return what was lost."""
    try:
        return await small_disk.run(plan, progress)
    except NotPermittedError as error:
        report = await run_in_process(plan, progress)
        note = f"a disk in memory: {error}"
        return msgspec.structs.replace(report, extras={**report.extras, "disk": note})


async def run_in_process(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Do it on a disk in memory."""
    tally = Tally(plan)
    for number in itertools.count():
        left = plan.count - tally.faults
        if left <= 0:
            break
        database = _Database(plan, number, tally)
        await database.live(min(left, FULLS_MAX), lambda: progress(tally.faults, plan.count))
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
        self._disk = PowerCutDisk(f"nodrop-disk-full-{number}", disk)
        self._desk.is_off = lambda: self._disk.off
        self._path = plan.folder / f"disk-full-{number}.db"
        self._host = Host(
            self._path,
            self._disk,
            clock=self._desk.clock,
            random=load,
            controls=plan.controls,
        )

    async def live(self, fulls: int, done: Callable[[], None]) -> None:
        """Have no room `fulls` times, and be examined after every stop."""
        colleagues = team(self._desk, self._load, requesters=REQUESTERS, workers=WORKERS)
        try:
            async with at_work(colleagues):
                while fulls:
                    some = self._random.randint(1, fulls)
                    await self._life(some, done)
                    fulls -= some
                self._disk.room_bytes = None
                async with self._host.opened() as (store, connection):
                    self._books.add(await examine(store, self._desk.memory, connection))
        except UnavailableError as error:
            self._books.wrong(f"could not be opened again: {error}")
        finally:
            for code in sorted(_ALARMS & self._desk.memory.refusals.keys()):
                self._books.wrong(f"somebody was refused as {code}")
            self._disk.unregister()
            self._path.unlink(missing_ok=True)
            self._tally.add(self._desk.memory, self._books)

    async def _life(self, fulls: int, done: Callable[[], None]) -> None:
        """Open the database, with room or without, use it, and stop in one way or another."""
        self._disk.power_on()
        async with self._host.opened() as (store, connection):
            self._books.add(await examine(store, self._desk.memory, connection))
            connection.pragma("wal_autocheckpoint", self._random.choice(_CHECKPOINT_PAGES))
            async with self._host.relay_on(store) as relay:
                self._desk.serve(relay, store)
                for left in reversed(range(fulls)):
                    await self._fill(relay)
                    if left or not self._chance(_STAYS_FULL):
                        await self._make_room()
                    self._tally.faults += 1
                    done()
                self._desk.close()
            if self._chance(_POWER_GOES):
                self._tally.moments["power went too"] += 1
                self._disk.cut()
        self._disk.power_on()

    async def _fill(self, relay: Relay) -> None:
        """Let the disk fill up under load, unless it still is full, and look what happens."""
        refusals = self._desk.memory.refusals
        if self._disk.room_bytes is None:
            await self._desk.answers(self._random.randint(1, _ANSWERS_MAX))
            room = self._random.randint(0, _ROOM_BYTES_MAX)
            self._disk.room_bytes = self._disk.used_bytes + room
        else:
            self._tally.moments["full from the start"] += 1
        told, refused = refusals["store_full"], self._disk.writes_refused
        enough = self._random.randint(1, _REFUSED_MAX)

        def is_told() -> bool:
            passed = self._disk.writes_refused - refused
            return passed >= _UNTOLD_MAX or (passed >= enough and refusals["store_full"] > told)

        if not await self._until(is_told) or refusals["store_full"] == told:
            self._books.wrong("the disk was full, and nobody was told")
        await self._read(relay)

    async def _make_room(self) -> None:
        """Let there be room, and look whether service comes back by itself."""
        self._disk.room_bytes = None
        promises = self._desk.memory.promises
        served = len(promises) + _SERVED_AGAIN
        if await self._until(lambda: len(promises) >= served):
            self._tally.moments["served again"] += 1
        else:
            self._books.wrong("there was room again, and nobody was served")

    async def _read(self, relay: Relay) -> None:
        """What is there can be read, room or not."""
        try:
            await relay.call(Caller(team=TEAM, agent="me", operator=True), "log", requests.GetLog())
        except NodropError as error:
            self._books.wrong(f"the disk was full, and reading was refused as {error.code}")

    async def _until(self, reached: Callable[[], bool]) -> bool:
        """Let everybody work until `reached`; return whether it was."""
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not reached():  # noqa: ASYNC110  # each turn brings something
                    await asyncio.sleep(0)
        except TimeoutError:
            return False
        return True

    def _chance(self, share: float) -> bool:
        return self._random.random() < share
