"""Full disks: callers are refused with `store_full`, nothing is lost, and service comes back by itself.

Where a file system can be mounted, the relay is a process of its own on a small one (`small_disk`).
Elsewhere, and in the suite, the real engine and the real store run in this process on a disk that
refuses the write for which it has no room, at a random byte of it. Now and then the power goes as
well, or the relay is started again while the disk is still full.

Control, for the disk in this process: `answer-before-sync`, of `in_process`.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from nodrop.model.errors import NodropError
from nodrop.protocol import requests
from nodrop.relay.relay import Caller, Relay
from nodrop_proof.chaos import small_disk
from nodrop_proof.chaos.colleagues import TEAM
from nodrop_proof.chaos.database import Database, one_after_the_other
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.small_disk import NotPermittedError
from nodrop_proof.chaos.tally import Tally

FULLS_MAX: Final = 6
"""Times that one database's disk is full."""
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

    async def live(number: int, fulls: int) -> None:
        database = _Database(plan, number, tally, fault="disk-full")
        await database.live(fulls, lambda: progress(tally.faults, plan.count))

    await one_after_the_other(plan, tally, live, faults_max=FULLS_MAX)
    return tally.report()


class _Database(Database):
    """One that there is no room for, again and again."""

    async def live(self, fulls: int, done: Callable[[], None]) -> None:
        """Have no room `fulls` times, and be examined after every stop."""
        async with self.in_use():
            while fulls:
                some = self.random.randint(1, fulls)
                await self._life(some, done)
                fulls -= some
            self.disk.room_bytes = None

    def add_up(self) -> None:
        """Tell whether anybody was refused for anything else than a full disk."""
        for code in sorted(_ALARMS & self.desk.memory.refusals.keys()):
            self.books.wrong(f"somebody was refused as {code}")

    async def _life(self, fulls: int, done: Callable[[], None]) -> None:
        """Open the database, with room or without, use it, and stop in one way or another."""
        self.disk.power_on()
        async with self.host.opened() as (store, connection):
            await self.examine(store, connection)
            self.vary_checkpoints(connection)
            async with self.host.relay_on(store) as relay:
                self.desk.serve(relay, store)
                for left in reversed(range(fulls)):
                    await self._fill(relay)
                    if left or not self.chance(_STAYS_FULL):
                        await self._make_room()
                    self.tally.faults += 1
                    done()
                self.desk.close()
            if self.chance(_POWER_GOES):
                self.tally.moments["power went too"] += 1
                self.disk.cut()
        self.disk.power_on()

    async def _fill(self, relay: Relay) -> None:
        """Let the disk fill up under load, unless it still is full, and look what happens."""
        refusals = self.desk.memory.refusals
        if self.disk.room_bytes is None:
            await self.desk.answers(self.random.randint(1, _ANSWERS_MAX))
            room = self.random.randint(0, _ROOM_BYTES_MAX)
            self.disk.room_bytes = self.disk.used_bytes + room
        else:
            self.tally.moments["full from the start"] += 1
        told, refused = refusals["store_full"], self.disk.writes_refused
        enough = self.random.randint(1, _REFUSED_MAX)

        def is_told() -> bool:
            passed = self.disk.writes_refused - refused
            return passed >= _UNTOLD_MAX or (passed >= enough and refusals["store_full"] > told)

        if not await self._until(is_told) or refusals["store_full"] == told:
            self.books.wrong("the disk was full, and nobody was told")
        await self._read(relay)

    async def _make_room(self) -> None:
        """Let there be room, and look whether service comes back by itself."""
        self.disk.room_bytes = None
        promises = self.desk.memory.promises
        served = len(promises) + _SERVED_AGAIN
        if await self._until(lambda: len(promises) >= served):
            self.tally.moments["served again"] += 1
        else:
            self.books.wrong("there was room again, and nobody was served")

    async def _read(self, relay: Relay) -> None:
        """What is there can be read, room or not."""
        try:
            await relay.call(Caller(team=TEAM, agent="me", operator=True), "log", requests.GetLog())
        except NodropError as error:
            self.books.wrong(f"the disk was full, and reading was refused as {error.code}")

    async def _until(self, reached: Callable[[], bool]) -> bool:
        """Let everybody work until `reached`; return whether it was."""
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not reached():  # noqa: ASYNC110  # each turn brings something
                    await asyncio.sleep(0)
        except TimeoutError:
            return False
        return True
