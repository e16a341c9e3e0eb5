"""Objects that remember: one handoff at a time on each, or a fresh one for each.

Some frameworks keep the conversation in the agent object itself. Two handoffs on such an object
would read each other's mail.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

T = TypeVar("T")

_LOCKS: Final[WeakKeyDictionary[Any, asyncio.Lock]] = WeakKeyDictionary()
"""By object and not by who serves it: the same one may be served under two names."""


def lock_of(target: Any) -> asyncio.Lock:
    """Return what whoever uses `target` holds meanwhile."""
    return _LOCKS.setdefault(target, asyncio.Lock())


class Turns(Generic[T]):
    """An object that is used in turns, or a factory that makes one for every use."""

    def __init__(
        self, target: T | Callable[[], T], kind: type[Any] | tuple[type[Any], ...]
    ) -> None:
        """Take `target` for the object if it is one of `kind`, else for the factory."""
        self._one = cast("T", target) if isinstance(target, kind) else None
        self._make = cast("Callable[[], T]", target)

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[T]:
        """Have an object to oneself."""
        if self._one is None:
            yield self._make()
            return
        async with lock_of(self._one):
            yield self._one
