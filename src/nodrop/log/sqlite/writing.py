"""The statements that write a commit. `database` puts them between a begin and a commit."""

from collections.abc import Sequence
from typing import Final

from nodrop.log.journal import Packed
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
from nodrop.model.errors import RelayFaultError


def write(connection: Connection, commit: Commit) -> None:
    """Write a commit."""
    if commit.journal:
        for each in commit.journal:
            _require_next(connection, each)
            connection.execute(_INSERT_BATCH, columns_of(each.batch))
        large = [
            (each.batch.team, *columns_of(body)) for each in commit.journal for body in each.large
        ]
        _write(
            connection,
            (_UPSERT_COMMAND, commit.commands),
            ("insert into large_body values (?, ?, ?, ?)", large),
            ("insert into mention values (?, ?, ?)", commit.mentions),
        )
    for changes in commit.changes:
        _write_kept(connection, changes)
    if commit.behind.rows or commit.behind.mail or commit.behind.watermarks:
        write_behind(connection, commit.behind)


def _require_next(connection: Connection, packed: Packed) -> None:
    """Refuse a batch that does not go on where the journal ends: a log has no second history."""
    batch = packed.batch
    end = batch.first_seq - 1
    rows = connection.execute(
        "select last_seq from journal where team = ? and last_seq >= ? order by last_seq",
        (batch.team, end),
    )
    if (found := [seq for (seq,) in rows]) not in ([], [end]):
        raise RelayFaultError(
            f"the log of {batch.team} ends at {found[-1]}, and {batch.first_seq} was to follow"
        )


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
    _write(
        connection,
        (
            "insert or replace into idempotency_key values (?, ?, ?, ?, ?)",
            [columns_of(use) for use in changes.keys],
        ),
        (
            "insert or replace into process values (?, ?, ?, ?, ?)",
            [columns_of(process) for process in changes.processes],
        ),
        ("delete from process where team = ? and id = ?", changes.processes_gone),
        (
            "insert or replace into agent values (?, ?, ?, ?)",
            [agent_columns(agent) for agent, _ in changes.agents],
        ),
        (
            # A version is what was sent first under its number: it does not change afterwards.
            "insert into manifest values (?, ?, ?, ?) on conflict do nothing",
            [(agent.team, agent.id, agent.version, sent) for agent, sent in changes.agents],
        ),
        (
            "insert or replace into token values (?, ?, ?, ?, ?, ?, ?, ?)",
            [columns_of(token) for token in changes.tokens],
        ),
        (
            "insert or replace into record (team, kind, id, json) values (?, ?, ?, ?)",
            [columns_of(record) for record in changes.records],
        ),
        ("delete from record where team = ? and kind = ? and id = ?", changes.records_gone),
    )


def _write(connection: Connection, *writes: tuple[str, Sequence[Columns]]) -> None:
    """Run each statement for each of its rows."""
    for statement, rows in writes:
        if rows:
            connection.executemany(statement, rows)


_INSERT_BATCH: Final = "insert into journal values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
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
