"""Taking in the tables of another store as they are, with the log checked on the way.

All or nothing, in one transaction, and only where no team is yet. The chain is followed entry by
entry as it passes: what does not hold is not taken in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from nodrop.log import journal
from nodrop.log.journal import Batch
from nodrop.log.postgres.driver import Connection
from nodrop.log.records import read_handoff, read_horizon, value_of
from nodrop.model.errors import RelayFaultError, StoreUnavailableError
from nodrop.protocol.entries import Head, hash_of


class Source(Protocol):
    """Where the rows come from."""

    def rows(self, table: str, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Return the rows of a table, in the order of its key."""
        ...


COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "team": ("id", "digest_key", "created_at", "head_seq", "head_hash", "watermark"),
    "horizon": ("team", "seq", "json"),
    "journal": Batch.__struct_fields__,
    "large_body": ("team", "seq", "salt", "body"),
    "kept_body": ("team", "handoff_id", "version", "salt", "body"),
    "mention": ("team", "about", "seq"),
    "command": ("team", "actor", "id", "request", "seqs"),
    "inbox": (*("team", "agent", "seq", "kind", "at", "actor", "type", "handoff_id", "version"),),
    "handoff": (
        *("team", "id", "applied_seq", "state", "sender", "origin", "recipient"),
        *("correlation_id", "process", "due_at", "rank", "open", "dead", "ended_at"),
        *("settled_at", "seqs_from", "seqs", "json"),
    ),
    "trail": ("team", "handoff_id", "from_version", "seqs"),
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
_FLAGS: Final = ("open", "dead")


async def take_in(connection: Connection, source: Source) -> dict[str, int]:
    """Copy everything; return how many rows of each table there were, and how many entries.

    Raises:
        StoreUnavailableError: the database has teams already.
        RelayFaultError: a log does not hold, and nothing was taken in.
    """
    counts: dict[str, int] = {"entry": 0}
    async with connection.transaction():
        # A whole database takes its time, in statements and between them.
        for bound in ("statement_timeout", "idle_in_transaction_session_timeout"):
            await connection.execute(f"set local {bound} = 0")
        if await connection.fetchval("select 1 from team limit 1"):
            raise StoreUnavailableError(
                "the database is not empty", next_step="Name a database that no relay has served."
            )
        heads = {row[0]: Head(seq=row[3], hash=row[4]) for row in _of("team", source)}
        begins = {row[0]: read_horizon(row[2]) for row in _of("horizon", source)}
        chains = {team: Head() for team in heads}
        chains |= {team: Head(seq=h.seq, hash=h.hash) for team, h in begins.items()}
        for table, columns in COLUMNS.items():
            rows: Iterable[tuple[Any, ...]] = _of(table, source)
            more: tuple[str, ...] = ()
            if table == "journal":
                rows = _checked(rows, chains, counts)
            elif table == "handoff":
                rows = _typed(rows)
            elif table == "party":
                rows, more = _told_apart(rows, _watchers(source)), ("watches",)
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


def _of(table: str, source: Source) -> Iterable[tuple[Any, ...]]:
    return source.rows(table, COLUMNS[table])


def _checked(
    rows: Iterable[tuple[Any, ...]], chains: dict[str, Head], counts: dict[str, int]
) -> Iterator[tuple[Any, ...]]:
    """Pass batches on, as long as each entry follows from the one before."""
    for row in rows:
        for entry in journal.entries(value_of(Batch, row)):
            before = chains[entry.team]
            if (entry.seq, entry.prev_hash) != (before.seq + 1, before.hash):
                raise RelayFaultError(
                    f"entry {entry.seq} of {entry.team} does not follow {before.seq}"
                )
            if hash_of(entry) != entry.hash:
                raise RelayFaultError(
                    f"entry {entry.seq} of {entry.team} is not what its hash says"
                )
            chains[entry.team] = Head(seq=entry.seq, hash=entry.hash)
            counts["entry"] += 1
        yield row


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


def _watchers(source: Source) -> set[tuple[str, str, str]]:
    watchers: set[tuple[str, str, str]] = set()
    for row in _of("handoff", source):
        try:
            handoff = read_handoff(row[-1])
        except msgspec.MsgspecError as error:
            raise RelayFaultError(f"the row of {row[1]} cannot be read") from error
        watchers |= {(handoff.team, agent, handoff.id) for agent in handoff.watchers}
    return watchers
