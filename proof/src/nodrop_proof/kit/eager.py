"""CONTROLS: ways to answer before the sync of the commit, which is the one thing a relay must not do.

A proof that nothing is lost must find losses with one of these in place, or it proves nothing. No
relay has a switch for them: a test wraps its store or patches its process.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, cast

from nodrop.log.port import Store, Transaction
from nodrop.log.sqlite import SQLiteStore
from nodrop.model.errors import NodropError

_TURNS: Final = 3
"""Of the event loop: enough for answers to leave first."""


class EagerStore:
    """A store that says a unit of work is committed, and then commits it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._committing: set[asyncio.Task[None]] = set()

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a unit of work that ends before it is kept."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Transaction]:
        async with AsyncExitStack() as stack:
            tx = await stack.enter_async_context(self._store.transaction())
            yield tx
            # The turn goes with it: the next unit of work begins when this one is kept.
            committing = asyncio.create_task(self._commit(stack.pop_all()))
            self._committing.add(committing)
            committing.add_done_callback(self._committing.discard)

    async def _commit(self, stack: AsyncExitStack) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        with suppress(NodropError):  # everybody has been told already that it went well
            await stack.aclose()

    def __getattr__(self, name: str) -> Any:
        """Leave everything else to the store itself."""
        return getattr(self._store, name)


def weaken_sync(synchronous: str = "NORMAL") -> None:
    """Have every SQLite store that this process opens from now on sync less. Cannot be undone."""
    opening = cast("Any", SQLiteStore.open).__func__
    opening.__kwdefaults__ = {**opening.__kwdefaults__, "synchronous": synchronous}
