"""The SQLite store without its thread: what is asked of it is done at once, in the caller's own.

For loops of virtual time, on which nothing else may run: the order of what happens is then the
same every time.
"""

import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nodrop.log.sqlite.database import Database
from nodrop.log.sqlite.store import SQLiteStore


class Inline(ThreadPoolExecutor):
    """A thread that is this one."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do it, and return what came of it."""
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever asked
            done.set_exception(error)
        return done


class InlineSQLiteStore(SQLiteStore):
    """A SQLite store in one thread, which leaves it to the operating system when to sync."""

    quick_seconds_max = math.inf
    """How long a visit takes must not decide where it is made."""

    def __init__(self, path: Path) -> None:
        """Open the database at `path`."""
        self.database = Database(path, vfs=None, synchronous="OFF")
        self.state = self.database.recover()
        super().__init__(self.database, self.state, Inline(1))

    def crash(self) -> None:
        """Let go of the file as a crash would: at once."""
        self.database.close()
