"""Flushes: when connections send what was put into them.

At the end of a turn of the event loop, so that the messages of one turn leave together; and as soon as a
commit was answered, before the relay does its own bookkeeping: clients work meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger("nodrop.relay")


class Flushes:
    """The connections that have something to send."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def soon(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of this turn, or before."""
        if not self._due:
            asyncio.get_running_loop().call_soon(self.now)
        self._due.append(flush)

    def now(self) -> None:
        """Have everything sent."""
        due, self._due = self._due, []
        for flush in due:
            try:
                flush()
            except Exception:  # of one connection, which concerns no other
                log.exception("a connection could not be written to")
