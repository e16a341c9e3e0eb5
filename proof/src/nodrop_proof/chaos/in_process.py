"""A relay in this process, on a disk that does what it is told. Nothing varies but by a seed.

The engine and the store are the real ones. Ids are counted, time is a fake clock's, and there is no
thread: with one, no two runs would be alike. What a thread would let happen meanwhile happens all
the same, by `testing.unhurried`.
"""

import itertools
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar, cast

import apsw

from nodrop.log.port import Store
from nodrop.log.sqlite import SQLiteStore
from nodrop.log.sqlite.database import Database
from nodrop.model.errors import UnavailableError
from nodrop.relay.ports import Clock
from nodrop.relay.relay import Relay
from nodrop_proof.chaos.colleagues import TEAM
from nodrop_proof.chaos.remains import Connection
from nodrop_proof.kit.eager import EagerStore
from nodrop_proof.kit.powercut import PowerCutDisk
from nodrop_proof.kit.unhurried import UnhurriedStore

SYNCHRONOUS_NORMAL: Final = "synchronous=NORMAL"
"""CONTROL: commits are not synced."""
ANSWER_BEFORE_SYNC: Final = "answer-before-sync"
"""CONTROL: answers leave before their commit is synced."""

T = TypeVar("T")


class Host:
    """Opens one database again and again, and runs relays on it."""

    def __init__(
        self,
        path: Path,
        disk: PowerCutDisk,
        *,
        clock: Clock,
        random: Random,
        controls: frozenset[str] = frozenset(),
    ) -> None:
        self._path = path
        self._disk = disk
        self._clock = clock
        self._random = random
        self._controls = controls
        self._ids = _Ids()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[tuple[Store, Connection]]:
        """Open what is on the disk.

        Raises:
            StoreUnavailableError: it cannot be opened.
        """
        level = "NORMAL" if SYNCHRONOUS_NORMAL in self._controls else "FULL"
        with _connections() as connections:
            database = Database(self._path, vfs=self._disk.name, synchronous=level)
        store = SQLiteStore(database, database.recover(), _NoThread())
        try:
            yield store, connections[0]
        finally:
            with suppress(UnavailableError):  # the disk fails, and has said so before
                await store.close()

    @asynccontextmanager
    async def relay_on(self, store: Store) -> AsyncGenerator[Relay]:
        """Run a relay on an open store; every other one as if its disk were slow."""
        if self._random.choice((True, False)):
            store = cast("Store", UnhurriedStore(store, self._random))
        if ANSWER_BEFORE_SYNC in self._controls:
            store = cast("Store", EagerStore(store))
        relay = await Relay.start(store, clock=self._clock, ids=self._ids, signer=_NoSigner())
        try:
            await relay.ensure_team(TEAM)
            yield relay
        finally:
            await relay.stop()


@contextmanager
def _connections() -> Generator[list[Connection]]:
    """Gather the connections that SQLite opens inside of the block."""
    opened: list[Connection] = []
    apsw.connection_hooks.append(opened.append)
    try:
        yield opened
    finally:
        apsw.connection_hooks.remove(opened.append)


class _NoThread(ThreadPoolExecutor):
    """Does everything at once."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # an executor hands on whatever it meets
            done.set_exception(error)
        return done


class _Ids:
    """Ids in order: the same ones in every run."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self) -> str:
        return f"019b76da-a800-7000-8000-{next(self._numbers):012x}"

    def secret(self) -> str:
        return f"secret-{next(self._numbers)}"

    def salt(self) -> bytes:
        return next(self._numbers).to_bytes(16)


class _NoSigner:
    """Signatures are not what is at risk."""

    public_key = "none"

    def sign(self, message: bytes) -> str:
        return f"none over {len(message)} bytes"
