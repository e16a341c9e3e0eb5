"""What this store uses of apsw, with types.

The stubs of apsw name a type that Python 3.11 lacks, so a type checker knows nothing about the
methods that take it. What comes out of a table is `Any` here; `records` says what it is.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol


class Cursor(Protocol):
    """Runs statements one after the other; the rows of the last one."""

    def execute(self, statements: str, bindings: Sequence[Any] = ..., /) -> "Cursor":
        """Run a statement, or several without bindings."""
        ...

    def executemany(self, statement: str, bindings: Iterable[Sequence[Any]], /) -> "Cursor":
        """Run a statement for each of `bindings`; the cursor has the rows of all of them."""
        ...

    def __iter__(self) -> Iterator[Any]: ...

    def fetchone(self) -> Any:
        """Return the next row, None if there is none."""
        ...


class Backup(Protocol):
    """A copy of one database into another that is under way."""

    @property
    def done(self) -> bool:
        """Whether everything is copied."""
        ...

    def step(self, pages: int, /) -> bool:
        """Copy at most so many pages."""
        ...

    def close(self, force: bool = False, /) -> None:  # noqa: FBT001, FBT002  # apsw's signature
        """End it; `force` does not complain."""
        ...


class Connection(Protocol):
    """An open database. Statements are prepared once and found again by their text."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun and not ended."""
        ...

    def cursor(self) -> Cursor:
        """Return a cursor of its own."""
        ...

    def execute(self, statements: str, bindings: Sequence[Any] = ..., /) -> Cursor:
        """Run a statement, or several without bindings."""
        ...

    def executemany(self, statement: str, bindings: Iterable[Sequence[Any]], /) -> Cursor:
        """Run a statement for each of `bindings`; the cursor has the rows of all of them."""
        ...

    def pragma(self, name: str, value: Any = None, /) -> Any:
        """Read a setting, or change it and return what it is then."""
        ...

    def config(self, option: int, value: int, /) -> int:
        """Change a setting that is no pragma; return what it is then."""
        ...

    def set_progress_handler(self, handler: Callable[[], bool] | None, steps: int, /) -> None:
        """Call `handler` every so many steps of a statement; True ends the statement."""
        ...

    def set_wal_hook(self, hook: "Callable[[Connection, str, int], int] | None", /) -> None:
        """Call `hook` after each commit, with the pages that are in the write-ahead log then."""
        ...

    def changes(self) -> int:
        """Return how many rows the last statement inserted, changed or deleted."""
        ...

    def set_busy_timeout(self, milliseconds: int, /) -> None:
        """Set how long to wait for a lock that another process holds."""
        ...

    def status(self, option: int, /) -> tuple[int, int]:
        """Return how much of something is in use, and the most that was."""
        ...

    def wal_checkpoint(self, *, mode: int) -> tuple[int, int]:
        """Copy the write-ahead log into the database."""
        ...

    def backup(self, name: str, source: "Connection", source_name: str, /) -> Backup:
        """Begin to copy the database `source_name` of `source` into `name` of this one."""
        ...

    def close(self, force: bool = False, /) -> None:  # noqa: FBT001, FBT002  # apsw's signature
        """Let go of the file; `force` does not complain."""
        ...
