"""One database on a disk that faults happen to, and the team that uses it through all of them."""

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from nodrop.log.port import Store
from nodrop.model.errors import UnavailableError
from nodrop.testing.clock import FakeClock
from nodrop_proof.chaos.colleagues import Desk, at_work, team
from nodrop_proof.chaos.in_process import Host
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.remains import Connection, examine
from nodrop_proof.chaos.tally import Books, Tally
from nodrop_proof.kit.powercut import PowerCutDisk

REQUESTERS: Final = 6
WORKERS: Final = 4

_CHECKPOINT_PAGES: Final = (10, 40, 200, 4_000)
"""How long the write-ahead log gets. A relay's is long; short ones put the main file at risk."""


class Database:
    """A database, its disk and its team; what the faults are is a subclass's."""

    def __init__(self, plan: Plan, number: int, tally: Tally, *, fault: str) -> None:
        # What happens when is drawn apart from what colleagues do: their number of draws varies.
        self.random, self._load, disk = (
            Random(f"{plan.seed}/{number}/{what}")  # noqa: S311  # to be repeated
            for what in ("faults", "load", "disk")
        )
        self.tally = tally
        self.books = Books(f"database {number}")
        self.desk = Desk(FakeClock(), self._load)
        self.disk = PowerCutDisk(f"nodrop-{fault}-{number}", disk)
        self.desk.is_off = lambda: self.disk.off
        self._path = plan.folder / f"{fault}-{number}.db"
        self.host = Host(
            self._path,
            self.disk,
            clock=self.desk.clock,
            random=self._load,
            controls=plan.controls,
        )

    @asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None]:
        """Have the team at work while the block runs; then examine what is there, and add it up."""
        colleagues = team(self.desk, self._load, requesters=REQUESTERS, workers=WORKERS)
        try:
            async with at_work(colleagues):
                yield
                async with self.host.opened() as (store, connection):
                    await self.examine(store, connection)
        except UnavailableError as error:
            self.books.wrong(f"could not be opened again: {error}")
        finally:
            self.add_up()
            self.disk.unregister()
            self._path.unlink(missing_ok=True)
            self.tally.add(self.desk.memory, self.books)

    def add_up(self) -> None:
        """Tell what no examination finds, at the end."""

    async def examine(self, store: Store, connection: Connection) -> None:
        """Look whether everything is there that anybody was answered."""
        self.books.add(await examine(store, self.desk.memory, connection))

    def vary_checkpoints(self, connection: Connection) -> None:
        """Let the write-ahead log get so long this time."""
        connection.pragma("wal_autocheckpoint", self.random.choice(_CHECKPOINT_PAGES))

    def chance(self, share: float) -> bool:
        """Whether something happens that happens so often."""
        return self.random.random() < share


async def one_after_the_other(
    plan: Plan, tally: Tally, live: Callable[[int, int], Awaitable[None]], *, faults_max: int
) -> None:
    """Have database after database `live` through some faults, until there were `plan.count`."""
    for number in itertools.count():
        left = plan.count - tally.faults
        if left <= 0:
            break
        await live(number, min(left, faults_max))
