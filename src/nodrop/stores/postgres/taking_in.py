"""Taking in the tables of another store, row by row, with the log checked on the way.

All or nothing, in one transaction, and only where no team is yet. The chain is followed entry by
entry as it passes: what does not hold is not taken in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from nodrop.core.errors import RelayFaultError, StoreUnavailableError
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.records import read_entry, read_handoff, read_horizon, with_salt
from nodrop.wire.log import Entry, Head, hash_of


class Tables(Protocol):
    """Where the rows come from."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return the rows of a table, in the order of its key."""
        ...


COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "team": ("id", "digest_key", "created_at", "head_seq", "head_hash"),
    "horizon": ("team", "seq", "json"),
    "entry": (*Entry.__struct_fields__, "request"),
    "body": ("team", "handoff_id", "number", "body"),
    "inbox": (*("team", "agent", "seq", "kind", "at", "actor", "type", "handoff_id", "version"),),
    "handoff": (
        *("team", "id", "version", "state", "attempt", "sender", "origin", "recipient"),
        *("correlation_id", "process", "due_at", "rank", "held", "open", "dead", "ended_at"),
        *("settled_at", "json"),
    ),
    "party": ("team", "agent", "handoff_id"),
    "idempotency_key": ("team", "sender", "key", "handoff_id", "digest"),
    "agent": ("team", "id", "version", "json"),
    "manifest": ("team", "agent", "version", "sent"),
    "process": ("team", "id", "agent", "heartbeat_ms", "seen_at"),
    "token": (
        *("team", "id", "secret_sha256", "agent", "role", "label", "created_at", "revoked_at"),
    ),
    "record": ("team", "kind", "id", "json"),
}
"""What is taken in, in this order; the names are the same everywhere."""
_FLAGS: Final = ("held", "open", "dead")


async def take_in(connection: Connection, tables: Tables) -> dict[str, int]:
    """Copy everything; return how many rows of each table there were.

    Raises:
        StoreUnavailableError: the database has teams already.
        RelayFaultError: a log does not hold, and nothing was taken in.
    """
    counts: dict[str, int] = {}
    async with connection.transaction():
        # A whole database takes its time, in statements and between them.
        for bound in ("statement_timeout", "idle_in_transaction_session_timeout"):
            await connection.execute(f"set local {bound} = 0")
        if await connection.fetchval("select 1 from team limit 1"):
            raise StoreUnavailableError(
                "the database is not empty", next_step="Name a database that no relay has served."
            )
        heads = {row[0]: Head(seq=row[3], hash=row[4]) for row in _of("team", tables)}
        begins = {row[0]: read_horizon(row[2]) for row in _of("horizon", tables)}
        chains = {team: Head() for team in heads}
        chains |= {team: Head(seq=h.seq, hash=h.hash) for team, h in begins.items()}
        for table, columns in COLUMNS.items():
            rows: Iterable[tuple[Any, ...]] = _of(table, tables)
            more: tuple[str, ...] = ()
            if table == "entry":
                rows, more = _checked(rows, chains), ("node",)
            elif table == "body":
                rows = ((*key, with_salt(salt, body)) for *key, salt, body in rows)
            elif table == "handoff":
                rows = _typed(rows)
            elif table == "party":
                rows, more = _told_apart(rows, _watchers(tables)), ("watches",)
            done = await connection.copy_records_to_table(
                table, records=rows, columns=(*columns, *more)
            )
            counts[table] = int(done.rpartition(" ")[2])
        for team, head in heads.items():
            if chains[team] != head:
                raise RelayFaultError(
                    f"the log of {team} ends at {chains[team].seq}, not {head.seq}"
                )
    return counts


def _of(table: str, tables: Tables) -> Iterable[tuple[Any, ...]]:
    return tables.rows(table, COLUMNS[table])


def _checked(rows: Iterable[tuple[Any, ...]], chains: dict[str, Head]) -> Iterator[tuple[Any, ...]]:
    """Pass entries on, as long as each follows from the one before."""
    for row in rows:
        entry = read_entry(row[: len(Entry.__struct_fields__)])
        before = chains[entry.team]
        if (entry.seq, entry.prev_hash) != (before.seq + 1, before.hash):
            raise RelayFaultError(f"entry {entry.seq} of {entry.team} does not follow {before.seq}")
        if hash_of(entry) != entry.hash:
            raise RelayFaultError(f"entry {entry.seq} of {entry.team} is not what its hash says")
        chains[entry.team] = Head(seq=entry.seq, hash=entry.hash)
        yield (*row, "")


def _typed(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    flags = [COLUMNS["handoff"].index(name) for name in _FLAGS]
    for row in rows:
        changed = list(row)
        for flag in flags:
            changed[flag] = bool(changed[flag])
        yield tuple(changed)


def _told_apart(
    rows: Iterable[tuple[Any, ...]], watchers: set[tuple[str, str, str]]
) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield (*row, tuple(row) in watchers)


def _watchers(tables: Tables) -> set[tuple[str, str, str]]:
    watchers: set[tuple[str, str, str]] = set()
    for row in _of("handoff", tables):
        try:
            handoff = read_handoff(row[-1])
        except msgspec.MsgspecError as error:
            raise RelayFaultError(f"the row of {row[1]} cannot be read") from error
        watchers |= {(handoff.team, agent, handoff.id) for agent in handoff.watchers}
    return watchers
