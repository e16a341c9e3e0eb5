"""Every row of a database file, table by table: what leaves for another store.

For moving, not for serving: the file is held for itself meanwhile, like by a relay.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from nodrop.core.errors import NotFoundError
from nodrop.stores.sqlite.connection import connect


class SQLiteTables:
    """The tables of one file."""

    def __init__(self, path: Path) -> None:
        """Open the file at `path`.

        Raises:
            NotFoundError: there is none.
            StoreInUseError: a relay serves it.
            StoreUnavailableError: it cannot be opened, or is not a file of this Nodrop.
        """
        if not path.exists():
            raise NotFoundError(f"there is no database at {path}")
        self._connection = connect(path, vfs=None, synchronous="FULL")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table in the order of its key."""
        sql = f"select {', '.join(columns)} from {table} order by {columns[0]}, {columns[1]}"  # noqa: S608  # names of our own schema
        yield from self._connection.execute(sql)
