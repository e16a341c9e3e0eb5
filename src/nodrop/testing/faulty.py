"""A store that fails when told to: before a commit, after it, or by making it wait.

Wraps any store. What fails is the unit of work, as a disk, a network or a power cut would make it
fail; reads are left alone.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from enum import Enum
from typing import Any

from nodrop.core.errors import NodropError, StoreUnavailableError
from nodrop.store import Store, Transaction


class Fault(Enum):
    """How a unit of work fails."""

    BEFORE_COMMIT = "nothing is kept"
    AFTER_COMMIT = "everything is kept, and nobody is told"


class FaultyStore:
    """A store whose next units of work fail as planned."""

    def __init__(self, store: Store) -> None:
        self.transactions = 0
        """Units of work that were begun."""
        self.gate = asyncio.Event()
        """Commits wait for it; set unless a test clears it."""
        self.gate.set()
        self._store = store
        self._plan: deque[tuple[Fault, NodropError]] = deque()

    def fail_next(self, fault: Fault, error: NodropError | None = None) -> None:
        """Make the next unit of work that is not planned for yet fail."""
        self._plan.append((fault, error or StoreUnavailableError()))

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a unit of work that may be doomed."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Transaction]:
        self.transactions += 1
        fault, error = self._plan.popleft() if self._plan else (None, None)
        async with self._store.transaction() as tx:
            yield tx
            await self.gate.wait()
            if fault is Fault.BEFORE_COMMIT and error is not None:
                raise error
        if fault is Fault.AFTER_COMMIT and error is not None:
            raise error

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the store itself."""
        return getattr(self._store, name)
