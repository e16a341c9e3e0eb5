"""Work that nobody waits for: pushes, and what is written down now and then."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

log = logging.getLogger("nodrop.relay")

T = TypeVar("T")


class Tasks:
    """Tasks under way, held until they are done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin `work`; should it fail, the relay's log says so."""
        return self.begin(work, _say_if_failed)

    def begin(
        self, work: Coroutine[Any, Any, T], done: Callable[[asyncio.Task[T]], None]
    ) -> asyncio.Task[T]:
        """Begin `work`; `done` is called with its task, whatever came of it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(done)
        return task

    async def cancel(self) -> None:
        """End all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _say_if_failed(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("what nobody waits for failed", exc_info=error)
