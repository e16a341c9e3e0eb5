"""Work that nobody waits for: pushes, and what is written down now and then."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("nodrop.relay")


class Tasks:
    """Tasks under way, held until they are done."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin `work`; should it fail, the relay's log says so."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    async def cancel(self) -> None:
        """End all of it."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("what nobody waits for failed", exc_info=error)
