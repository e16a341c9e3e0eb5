"""A store that fails when told to: before a commit, after it, by making it wait, or with its relay.

Wraps any store. What fails is the unit of work, as a disk, a network or a power cut would make it
fail; reads are left alone until the relay is gone.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import Any

from nodrop.log.port import ConflictError, Key, Store, Transaction
from nodrop.model.errors import NodropError, StoreUnavailableError
from nodrop.model.handoff import Handoff


class Fault(Enum):
    """How a unit of work fails."""

    BEFORE_COMMIT = "nothing is kept"
    AFTER_COMMIT = "everything is kept, and nobody is told"
    CRASH_BEFORE_COMMIT = "nothing is kept, and the relay is gone"
    CRASH_AFTER_COMMIT = "everything is kept, and the relay is gone"


class FaultyStore:
    """A store whose next units of work fail as planned."""

    def __init__(self, store: Store) -> None:
        self.transactions = 0
        """Units of work that were begun."""
        self.failed = 0
        """Units of work that ended in an error."""
        self.gate = asyncio.Event()
        """Commits wait for it; set unless a test clears it."""
        self.gate.set()
        self.crashed = asyncio.Event()
        """The relay on this store is gone: whatever it still asks for is never answered."""
        self._store = store
        self._plan: deque[tuple[Fault, NodropError]] = deque()
        self._unanswered: list[asyncio.Future[None]] = []

    def fail_next(self, fault: Fault, error: NodropError | None = None) -> None:
        """Make the next unit of work that is not planned for yet fail."""
        self._plan.append((fault, error or StoreUnavailableError()))

    def relent(self) -> None:
        """Let nothing of what is planned happen, and let what waits go on."""
        self._plan.clear()
        self.gate.set()

    def crash(self) -> None:
        """Take the relay away, now. What it did not commit is not kept."""
        self.crashed.set()
        self.gate.set()

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a unit of work that may be doomed."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Transaction]:
        if self.crashed.is_set():
            await self._never()
        self.transactions += 1
        fault, error = self._plan.popleft() if self._plan else (None, None)
        try:
            async with self._store.transaction() as tx:
                yield tx
                await self.gate.wait()
                if fault is Fault.CRASH_BEFORE_COMMIT:
                    self.crash()
                if self.crashed.is_set():
                    raise _GoneError  # noqa: TRY301  # it must pass through the transaction's exit
                if fault is Fault.BEFORE_COMMIT and error is not None:
                    self.failed += 1
                    raise error
        except _GoneError:
            await self._never()
        except ConflictError:
            if fault is not None and error is not None:  # it is decided again, and that one fails
                self._plan.appendleft((fault, error))
            raise
        if fault is Fault.CRASH_AFTER_COMMIT:
            self.crash()
        if self.crashed.is_set():
            await self._never()
        if fault is Fault.AFTER_COMMIT and error is not None:
            self.failed += 1
            raise error

    async def _never(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unanswered.append(waiting)  # whoever waits is kept, as long as the store is
        await waiting

    def cached(self, key: Key) -> Handoff | None:
        """Return what the store has at hand; nothing, once there is no relay to ask."""
        return None if self.crashed.is_set() else self._store.cached(key)

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the store itself, as long as there is a relay to ask."""
        if self.crashed.is_set():
            return self._unanswering
        return getattr(self._store, name)

    async def _unanswering(self, *_: object, **__: object) -> None:
        await self._never()


class _GoneError(Exception):
    """Nobody is there any more to be told."""
