"""The statements that write a commit. `database` puts them between a begin and a commit."""

from collections.abc import Sequence
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
from nodrop.log.sqlite.driver import Connection
from nodrop.log.state import Slice
from nodrop.log.work import Commit


def write(connection: Connection, commit: Commit) -> None:
    """Write a commit."""
    run = connection.executemany
    for each in commit.journal:
        connection.execute(_INSERT_BATCH, columns_of(each.batch))
        if each.large:
            team = each.batch.team
            run(_INSERT_LARGE, [(team, *columns_of(body)) for body in each.large])
    if commit.commands:
        run(_UPSERT_COMMAND, commit.commands)
    if commit.mentions:
        run("insert into mention values (?, ?, ?)", commit.mentions)
    for changes in commit.changes:
        _write_kept(connection, changes)
    if commit.behind.rows or commit.behind.mail or commit.behind.watermarks:
        write_behind(connection, commit.behind)


def write_behind(connection: Connection, behind: Slice) -> None:
    """Write rows and inbox items that earlier commits have left."""
    rows = behind.rows
    _write(
        connection,
        (_UPSERT_HANDOFF, [handoff_columns(row) for row in rows]),
        (
            "insert or ignore into party values (?, ?, ?)",
            [party for row in rows if row.parties for party in party_columns(row.handoff)],
        ),
        (
            "insert or replace into trail values (?, ?, ?, ?)",
            [
                (row.handoff.team, row.handoff.id, first, packed(seqs))
                for row in rows
                for first, seqs in row.overflow
            ],
        ),
        (
            "insert or ignore into inbox values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(team, reader, *columns_of(item)) for team, reader, item in behind.mail],
        ),
        ("insert or replace into watermark values (?, ?)", behind.watermarks),
    )


def _write_kept(connection: Connection, changes: Changes) -> None:
    """Write what `changes` has besides entries and rows."""
    run = connection.executemany
    if changes.keys:
        run(_PUT_KEY, map(columns_of, changes.keys))
    if changes.processes:
        run(_PUT_PROCESS, map(columns_of, changes.processes))
    if changes.processes_gone:
        run("delete from process where team = ? and id = ?", changes.processes_gone)
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


def _write(connection: Connection, *writes: tuple[str, Sequence[Columns]]) -> None:
    """Run each statement for each of its rows."""
    for statement, rows in writes:
        if rows:
            connection.executemany(statement, rows)


_INSERT_BATCH: Final = "insert into journal values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_LARGE: Final = "insert into large_body values (?, ?, ?, ?)"
_PUT_KEY: Final = "insert or replace into idempotency_key values (?, ?, ?, ?, ?)"
_PUT_PROCESS: Final = "insert or replace into process values (?, ?, ?, ?, ?)"
_PUT_AGENT: Final = "insert or replace into agent values (?, ?, ?, ?)"
# A version is what was sent first under its number: it does not change afterwards.
_KEEP_MANIFEST: Final = "insert into manifest values (?, ?, ?, ?) on conflict do nothing"
_PUT_TOKEN: Final = "insert or replace into token values (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S105  # no secret
_PUT_RECORD: Final = "insert or replace into record (team, kind, id, json) values (?, ?, ?, ?)"
_UPSERT_COMMAND: Final = """
    insert into command values (?, ?, ?, ?, ?)
    on conflict (team, actor, id) do update set seqs = command.seqs || excluded.seqs
"""
# Sender, origin and correlation are as the offer made them. Naming them would rewrite their
# indexes each time.
_UPSERT_HANDOFF: Final = """
    insert into handoff values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict (team, id) do update set
        applied_seq = excluded.applied_seq, state = excluded.state, recipient = excluded.recipient,
        process = excluded.process, due_at = excluded.due_at, rank = excluded.rank,
        open = excluded.open, dead = excluded.dead, ended_at = excluded.ended_at,
        settled_at = excluded.settled_at, seqs_from = excluded.seqs_from, seqs = excluded.seqs,
        json = excluded.json
"""
