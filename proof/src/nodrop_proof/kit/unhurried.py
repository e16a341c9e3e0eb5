"""A store that takes its time: before each visit to it, others get as many turns as a seed says.

A quick disk answers before anybody else can act, and hides what a slow one would show. Wraps any
store and changes nothing else.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from random import Random
from typing import Any

from nodrop.log.port import Store, Transaction


class UnhurriedStore:
    """A store whose answers come some turns of the event loop later."""

    def __init__(self, store: Store, random: Random, *, turns_max: int = 3) -> None:
        self._store = store
        self._random = random
        self._turns_max = turns_max

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """Open a unit of work that is in no hurry to commit either."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncGenerator[Transaction]:
        async with self._store.transaction() as tx:
            yield tx
            await self._turns()

    def __getattr__(self, name: str) -> Any:
        """Leave everything to the store itself, after a while."""
        found = getattr(self._store, name)
        return self._later(found) if inspect.iscoroutinefunction(found) else found

    def _later(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @wraps(call)
        async def later(*args: Any, **named: Any) -> Any:
            await self._turns()
            return await call(*args, **named)

        return later

    async def _turns(self) -> None:
        for _ in range(self._random.randint(0, self._turns_max)):
            await asyncio.sleep(0)
