"""The statements that write a commit. `database` puts them between a begin and a commit."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from nodrop.log.port import Changes
from nodrop.log.records import (
    Columns,
    agent_columns,
    columns_of,
    handoff_columns,
    packed,
    party_columns,
)
from nodrop.log.sqlite.driver import Cursor
from nodrop.log.state import Slice
from nodrop.log.work import Commit


def write(writer: Cursor, commit: Commit) -> None:
    """Write a commit."""
    for each in commit.journal:
        writer.execute(_INSERT_BATCH, columns_of(each.batch))
        if each.large:
            team = each.batch.team
            writer.executemany(_INSERT_LARGE, [(team, *columns_of(body)) for body in each.large])
    if commit.commands:
        _write(writer, _UPSERT_COMMANDS, commit.commands)
    if commit.mentions:
        writer.executemany("insert into mention values (?, ?, ?)", commit.mentions)
    for changes in commit.changes:
        if changes.keys:
            _write(writer, _PUT_KEYS, [columns_of(use) for use in changes.keys])
        if changes.processes:
            writer.executemany(_PUT_PROCESS, map(columns_of, changes.processes))
        if changes.processes_gone:
            writer.executemany(
                "delete from process where team = ? and id = ?", changes.processes_gone
            )
        if changes.agents or changes.tokens or changes.records or changes.records_gone:
            _write_known(writer, changes)


def write_behind(writer: Cursor, behind: Slice) -> None:
    """Write rows and inbox items that earlier commits have left."""
    rows = behind.rows
    parties = [party for each in rows if each.parties for party in party_columns(each.row.handoff)]
    trails = [
        (each.row.handoff.team, each.row.handoff.id, first, packed(seqs))
        for each in rows
        for first, seqs in each.overflow
    ]
    _write(writer, _UPSERT_HANDOFFS, [handoff_columns(each) for each in rows])
    _write(writer, _INSERT_PARTIES, parties)
    if trails:
        writer.executemany("insert or replace into trail values (?, ?, ?, ?)", trails)
    items = [(team, reader, *columns_of(item)) for team, reader, item in behind.mail]
    _write(writer, _INSERT_ITEMS, items)
    if behind.watermarks:
        writer.executemany("insert or replace into watermark values (?, ?)", behind.watermarks)


def _write_known(writer: Cursor, changes: Changes) -> None:
    """Write what is known of a team's agents and ways in."""
    run = writer.executemany
    if changes.agents:
        run(_PUT_AGENT, [agent_columns(agent) for agent, _ in changes.agents])
        sent = [(agent.team, agent.id, agent.version, sent) for agent, sent in changes.agents]
        run(_KEEP_MANIFEST, sent)
    if changes.tokens:
        run(_PUT_TOKEN, map(columns_of, changes.tokens))
    if changes.records:
        run(_PUT_RECORD, map(columns_of, changes.records))
    if changes.records_gone:
        run("delete from record where team = ? and kind = ? and id = ?", changes.records_gone)


_ROWS: Final = 16
"""Rows that are written with one statement, where there are as many: to run one takes as long as a row does."""


def _insert(into: str, columns: int, otherwise: str = "") -> tuple[str, str]:
    """Return the statement that inserts one row, and the one that inserts `_ROWS`."""
    row = f"({','.join('?' * columns)})"
    # On one line: the text of a statement is hashed each time that it is run.
    into, otherwise = f"insert {into} values ", " ".join(otherwise.split())  # noqa: S608  # constants
    return f"{into}{row} {otherwise}", f"{into}{','.join([row] * _ROWS)} {otherwise}"


def _write(writer: Cursor, insert: tuple[str, str], rows: Sequence[Columns]) -> None:
    """Insert rows of one table."""
    one, many = insert
    alone = len(rows) % _ROWS
    for first in range(0, len(rows) - alone, _ROWS):
        writer.execute(many, list(chain.from_iterable(rows[first : first + _ROWS])))
    if alone:
        writer.executemany(one, rows[-alone:])


_INSERT_BATCH: Final = "insert into journal values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_LARGE: Final = "insert into large_body values (?, ?, ?, ?)"
_INSERT_PARTIES: Final = _insert("or ignore into party", 3)
_INSERT_ITEMS: Final = _insert("or ignore into inbox", 9)
_PUT_KEYS: Final = _insert("or replace into idempotency_key", 5)
_PUT_PROCESS: Final = "insert or replace into process values (?, ?, ?, ?, ?)"
_PUT_AGENT: Final = "insert or replace into agent values (?, ?, ?, ?)"
# A version is what was sent first under its number: it does not change afterwards.
_KEEP_MANIFEST: Final = "insert into manifest values (?, ?, ?, ?) on conflict do nothing"
_PUT_TOKEN: Final = "insert or replace into token values (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S105  # no secret
_PUT_RECORD: Final = "insert or replace into record (team, kind, id, json) values (?, ?, ?, ?)"
_UPSERT_COMMANDS: Final = _insert(
    "into command",
    5,
    " on conflict (team, actor, id) do update set seqs = command.seqs || excluded.seqs",
)
# Sender, origin and correlation are as the offer made them. Naming them would rewrite their
# indexes each time.
_UPSERT_HANDOFFS: Final = _insert(
    "into handoff",
    18,
    """ on conflict (team, id) do update set
        applied_seq = excluded.applied_seq, state = excluded.state, recipient = excluded.recipient,
        process = excluded.process, due_at = excluded.due_at, rank = excluded.rank,
        open = excluded.open, dead = excluded.dead, ended_at = excluded.ended_at,
        settled_at = excluded.settled_at, seqs_from = excluded.seqs_from, seqs = excluded.seqs,
        json = excluded.json
    """,
)
