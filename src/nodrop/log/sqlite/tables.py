"""Everything in a database file, table by table: what leaves for another store.

For moving, not for serving: the file is held for itself meanwhile, like by a relay.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from nodrop.log.records import Columns
from nodrop.log.sqlite.connection import connect
from nodrop.log.sqlite.database import Database
from nodrop.model.errors import NotFoundError


class SQLiteTables:
    """The tables of one file."""

    def __init__(self, path: Path) -> None:
        """Open the file at `path`.

        Raises:
            NotFoundError: there is none.
            StoreInUseError: a relay serves it.
            StoreUnavailableError: it cannot be opened, or is not a file of this Nodrop.
            RelayFaultError: its rows do not fit its log.
        """
        if not path.exists():
            raise NotFoundError(f"there is no database at {path}")
        database = Database(path, vfs=None, synchronous="FULL")
        try:
            state = database.recover()
            for team in state.teams:
                database.write_behind(state.all_of(team))
        finally:
            database.close()
        self._heads = {name: team.head for name, team in state.teams.items()}
        self._connection = connect(path, vfs=None, synchronous="FULL")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._connection.close()

    def rows(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield the rows of a table in the order of its key."""
        if table == "team":
            yield from self._teams()
            return
        sql = f"select {', '.join(columns)} from {table} order by {columns[0]}, {columns[1]}"  # noqa: S608  # names of our own schema
        yield from self._connection.execute(sql)

    def _teams(self) -> Iterator[Columns]:
        """Yield each team with the end of its log, up to which every row is written."""
        for row in self._connection.execute("select * from team order by id"):
            head = self._heads[row[0]]
            yield (*row, head.seq, head.hash, head.seq)
