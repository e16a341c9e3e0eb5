"""The statements that write a unit of work. `database` puts them between a begin and a commit."""

from collections.abc import Iterable, Sequence
from typing import Final

from nodrop.core.model import Handoff
from nodrop.store import Changes, Row
from nodrop.stores.sqlite.driver import Connection
from nodrop.stores.sqlite.records import (
    Columns,
    agent_columns,
    body_key,
    columns_of,
    entry_columns,
    handoff_columns,
    party_columns,
)
from nodrop.wire.canonical import keyed_digest
from nodrop.wire.log import Draft, Head, seal


def write_entries(connection: Connection, drafts: Sequence[Draft]) -> None:
    """Chain `drafts` to the logs of their teams, with their bodies and inbox items."""
    ends = {team: _end(connection, team) for team in {draft.team for draft in drafts}}
    entries: list[Columns] = []
    bodies: list[Columns] = []
    items: list[Columns] = []
    for draft in drafts:
        head, digest_key = ends[draft.team]
        digest = keyed_digest(digest_key, draft.body) if draft.body is not None else None
        entry = seal(draft, head, digest)
        ends[draft.team] = (Head(seq=entry.seq, hash=entry.hash), digest_key)
        entries.append(entry_columns(entry))
        if draft.body is not None:
            bodies.append((*body_key(entry), draft.body))
        shown = (entry.at, entry.actor, entry.type, entry.handoff_id, entry.version)
        readers = set(draft.mail)  # one may be told for two reasons
        items.extend((entry.team, reader, entry.seq, kind, *shown) for reader, kind in readers)
    connection.executemany(_INSERT_ENTRY, entries)
    connection.executemany("insert into body values (?, ?, ?, ?)", bodies)
    connection.executemany("insert into inbox values (?, ?, ?, ?, ?, ?, ?, ?, ?)", items)
    connection.executemany(
        "update team set head_seq = ?, head_hash = ? where id = ?",
        [(head.seq, head.hash, team) for team, (head, _) in ends.items()],
    )


def write_handoffs(
    connection: Connection, rows: Sequence[Row], strangers: Iterable[Handoff]
) -> None:
    """Put each row in the place of the one before it.

    `strangers` are the handoffs whose parties may not be known yet.
    """
    connection.executemany(_UPSERT_HANDOFF, map(handoff_columns, rows))
    connection.executemany(
        "insert into party values (?, ?, ?) on conflict do nothing",
        [row for handoff in strangers for row in party_columns(handoff)],
    )


def write_others(connection: Connection, changes: Changes) -> None:
    """Write what `changes` has besides entries and rows."""
    connection.executemany(
        "insert or replace into idempotency_key values (?, ?, ?, ?, ?)",
        map(columns_of, changes.keys),
    )
    connection.executemany(
        "insert or replace into process values (?, ?, ?, ?, ?)",
        map(columns_of, changes.processes),
    )
    connection.executemany("delete from process where team = ? and id = ?", changes.processes_gone)
    connection.executemany(
        "insert or replace into agent values (?, ?, ?, ?)",
        (agent_columns(agent) for agent, _ in changes.agents),
    )
    connection.executemany(
        # A version is what was sent first under its number: it does not change afterwards.
        "insert into manifest values (?, ?, ?, ?) on conflict do nothing",
        ((agent.team, agent.id, agent.version, sent) for agent, sent in changes.agents),
    )
    connection.executemany(
        "insert or replace into token values (?, ?, ?, ?, ?, ?, ?, ?)",
        map(columns_of, changes.tokens),
    )
    connection.executemany(
        "insert or replace into record (team, kind, id, json) values (?, ?, ?, ?)",
        map(columns_of, changes.records),
    )
    connection.executemany(
        "delete from record where team = ? and kind = ? and id = ?", changes.records_gone
    )


def _end(connection: Connection, team: str) -> tuple[Head, bytes]:
    row = connection.execute(
        "select head_seq, head_hash, digest_key from team where id = ?", (team,)
    ).fetchone()
    assert row is not None, "a team is created before it is written to"
    seq, hash_, digest_key = row
    return Head(seq=seq, hash=hash_), digest_key


_INSERT_ENTRY: Final = "insert into entry values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

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
