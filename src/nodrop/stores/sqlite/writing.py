"""The statements that write a unit of work. `database` puts them between a begin and a commit."""

from collections.abc import Sequence
from typing import Final

from nodrop.store import Changes, Row
from nodrop.stores.sqlite.driver import Connection
from nodrop.stores.sqlite.records import (
    Columns,
    agent_columns,
    body_key,
    change_columns,
    columns_of,
    entry_columns,
    handoff_columns,
    party_columns,
)
from nodrop.wire.canonical import keyed_digest
from nodrop.wire.log import Draft, hash_of, placed


class End:
    """Where the log of a team ends, entry after entry."""

    __slots__ = ("digest_key", "hash", "seq")

    def __init__(self, seq: int, hash_: str, digest_key: bytes) -> None:
        self.seq = seq
        self.hash = hash_
        self.digest_key = digest_key


def write_entries(connection: Connection, drafts: Sequence[Draft], ends: dict[str, End]) -> None:
    """Chain `drafts` to the logs of their teams, with their bodies and inbox items.

    `ends` are those of teams written to before. They are moved on, and true once this is committed.
    """
    teams = {draft.team for draft in drafts}
    for team in teams - ends.keys():
        ends[team] = _end(connection, team)
    entries: list[Columns] = []
    bodies: list[Columns] = []
    items: list[Columns] = []
    for draft in drafts:
        end = ends[draft.team]
        body = draft.body
        digest = keyed_digest(end.digest_key, body) if body is not None else None
        entry = placed(draft, end.seq + 1, end.hash, digest)
        end.seq, end.hash = entry.seq, hash_of(entry)
        entries.append((*entry_columns(entry, end.hash), draft.request))
        if body is not None:
            bodies.append((*body_key(entry), body))
        for reader, kind in set(draft.mail):  # one may be told for two reasons
            shown = (entry.at, entry.actor, entry.type, entry.handoff_id, entry.version)
            items.append((entry.team, reader, entry.seq, kind, *shown))
    _write(connection, _INSERT_ENTRY, entries)
    _write(connection, "insert into body values (?, ?, ?, ?)", bodies)
    _write(connection, "insert into inbox values (?, ?, ?, ?, ?, ?, ?, ?, ?)", items)
    _write(
        connection,
        "update team set head_seq = ?, head_hash = ? where id = ?",
        [(ends[team].seq, ends[team].hash, team) for team in teams],
    )


def _write(connection: Connection, statement: str, rows: Sequence[Columns]) -> None:
    if rows:
        connection.executemany(statement, rows)


def write_handoffs(connection: Connection, known: Sequence[Row], strange: Sequence[Row]) -> None:
    """Put each row in the place of the one before it.

    Args:
        connection: where to.
        known: rows of handoffs that have one, and the same parties as in that.
        strange: all others.
    """
    _write(connection, _UPDATE_HANDOFF, [change_columns(row) for row in known])
    _write(connection, _UPSERT_HANDOFF, [handoff_columns(row) for row in strange])
    _write(
        connection,
        "insert into party values (?, ?, ?) on conflict do nothing",
        [party for row in strange for party in party_columns(row.handoff)],
    )


def write_others(connection: Connection, changes: Changes) -> None:
    """Write what `changes` has besides entries and rows."""
    _write(
        connection,
        "insert or replace into idempotency_key values (?, ?, ?, ?, ?)",
        [columns_of(use) for use in changes.keys],
    )
    _write(
        connection,
        "insert or replace into process values (?, ?, ?, ?, ?)",
        [columns_of(process) for process in changes.processes],
    )
    _write(connection, "delete from process where team = ? and id = ?", changes.processes_gone)
    _write(
        connection,
        "insert or replace into agent values (?, ?, ?, ?)",
        [agent_columns(agent) for agent, _ in changes.agents],
    )
    _write(
        connection,
        # A version is what was sent first under its number: it does not change afterwards.
        "insert into manifest values (?, ?, ?, ?) on conflict do nothing",
        [(agent.team, agent.id, agent.version, sent) for agent, sent in changes.agents],
    )
    _write(
        connection,
        "insert or replace into token values (?, ?, ?, ?, ?, ?, ?, ?)",
        [columns_of(token) for token in changes.tokens],
    )
    _write(
        connection,
        "insert or replace into record (team, kind, id, json) values (?, ?, ?, ?)",
        [columns_of(record) for record in changes.records],
    )
    _write(
        connection,
        "delete from record where team = ? and kind = ? and id = ?",
        changes.records_gone,
    )


def _end(connection: Connection, team: str) -> End:
    row = connection.execute(
        "select head_seq, head_hash, digest_key from team where id = ?", (team,)
    ).fetchone()
    assert row is not None, "a team is created before it is written to"
    return End(*row)


_INSERT_ENTRY: Final = "insert into entry values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

# Sender, origin and correlation are as the offer made them. Naming them would rewrite their
# indexes each time.
_UPSERT_HANDOFF: Final = """
    insert into handoff values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict (team, id) do update set
        version = excluded.version, state = excluded.state, attempt = excluded.attempt,
        recipient = excluded.recipient, process = excluded.process, due_at = excluded.due_at,
        rank = excluded.rank, held = excluded.held, open = excluded.open, dead = excluded.dead,
        ended_at = excluded.ended_at, settled_at = excluded.settled_at, json = excluded.json
"""
# The same where there surely is a row: looking for a conflict costs as much as the change itself.
_UPDATE_HANDOFF: Final = """
    update handoff set
        version = ?3, state = ?4, attempt = ?5, recipient = ?6, process = ?7, due_at = ?8,
        rank = ?9, held = ?10, open = ?11, dead = ?12, ended_at = ?13, settled_at = ?14, json = ?15
    where team = ?1 and id = ?2
"""
