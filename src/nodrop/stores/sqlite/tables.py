"""Everything in a database file, as the rows of plain tables: what leaves for another store.

For moving, not for serving: the file is held for itself meanwhile, like by a relay.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from nodrop.core.errors import NotFoundError
from nodrop.store import row_of
from nodrop.stores import journal
from nodrop.stores.journal import Batch
from nodrop.stores.records import Columns, read_handoff, value_of
from nodrop.stores.sqlite.connection import connect
from nodrop.stores.sqlite.database import Database
from nodrop.stores.sqlite.pruning import BATCH
from nodrop.wire.log import Entry


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
        made: Mapping[str, Callable[[], Iterator[Columns]]] = {
            "team": self._teams,
            "entry": self._entries,
            "body": self._bodies,
            "handoff": self._handoffs,
        }
        return made[table]() if table in made else self._as_it_is(table, columns)

    def _as_it_is(self, table: str, columns: Sequence[str]) -> Iterator[Columns]:
        sql = f"select {', '.join(columns)} from {table} order by {columns[0]}, {columns[1]}"  # noqa: S608  # names of our own schema
        yield from self._connection.execute(sql)

    def _teams(self) -> Iterator[Columns]:
        for row in self._connection.execute("select * from team order by id"):
            head = self._heads[row[0]]
            yield (*row, head.seq, head.hash)

    def _batches(self) -> Iterator[Batch]:
        sql = f"select {BATCH} from journal order by team, last_seq"  # noqa: S608  # constants
        for row in self._connection.execute(sql):
            yield value_of(Batch, row)

    def _entries(self) -> Iterator[Columns]:
        for batch in self._batches():
            for entry in journal.entries(batch):
                columns = list(msgspec.structs.astuple(entry))
                columns[_DATA] = str(bytes(entry.data), "utf-8")
                yield (*columns, self._request(entry))

    def _request(self, entry: Entry) -> bytes | None:
        """Return the digest of the request that wrote an entry."""
        if entry.command_id is None:
            return None
        row = self._connection.execute(
            "select request from command where team = ? and actor = ? and id = ?",
            (entry.team, entry.actor, entry.command_id),
        ).fetchone()
        return row[0] if row else None

    def _bodies(self) -> Iterator[Columns]:
        """Yield (team, handoff id, version or `seq`, salt, body)."""
        for batch in self._batches():
            entries = {entry.seq: entry for entry in journal.entries(batch)}
            for body in journal.bodies(batch):
                yield (*_place(entries[body.seq]), body.salt, body.body)
            large = self._connection.execute(
                "select seq, salt, body from large_body where team = ? and seq between ? and ?",
                (batch.team, batch.first_seq, batch.last_seq),
            )
            for seq, salt, body in large:
                yield (*_place(entries[seq]), salt, body)
        yield from self._connection.execute("select * from kept_body")

    def _handoffs(self) -> Iterator[Columns]:
        for (json,) in self._connection.execute("select json from handoff order by team, id"):
            handoff = read_handoff(json)
            row = row_of(handoff)
            yield (
                handoff.team,
                handoff.id,
                handoff.version,
                handoff.state.value,
                handoff.attempt,
                handoff.sender,
                handoff.origin,
                handoff.recipient,
                handoff.correlation_id,
                handoff.process,
                row.due_at,
                row.rank,
                row.held,
                row.open,
                row.dead,
                handoff.outcome.at if handoff.outcome else None,
                handoff.settled_at,
                json,
            )


_DATA: int = Entry.__struct_fields__.index("data")


def _place(entry: Entry) -> tuple[Any, ...]:
    if entry.handoff_id is None or entry.version is None:
        return (entry.team, "", entry.seq)
    return (entry.team, entry.handoff_id, entry.version)
