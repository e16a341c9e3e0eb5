"""The statements that write a unit of work. `transaction` puts them between a begin and a commit."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.core.model import Handoff
from nodrop.store import Changes
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.records import (
    Columns,
    agent_columns,
    body_key,
    columns_of,
    entry_columns,
    handoff_columns,
    party_columns,
    transposed,
)
from nodrop.wire.canonical import keyed_digest
from nodrop.wire.log import Draft, Head, seal

OBSERVED: Final = "observed"
"""The kind of record that is written without an entry, and that no decision rests on."""


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Where a team's log ends, locked."""

    head: Head
    digest_key: bytes
    known_seq: int
    """The last entry that came with a change of agents, tokens or records."""


async def lock_ends(connection: Connection, teams: Iterable[str]) -> dict[str, End]:
    """Return where the logs of `teams` end, and let nobody else append until the commit."""
    rows = await connection.fetch(_LOCK_ENDS, sorted(teams))
    return {
        team: End(head=Head(seq=seq, hash=hash_), digest_key=key, known_seq=known)
        for team, seq, hash_, key, known in rows
    }


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts in their places, as columns."""

    seqs: list[int]
    ends: Mapping[str, End]
    entries: list[Columns]
    bodies: list[Columns]
    items: list[Columns]


def sealed(drafts: Sequence[Draft], ends: Mapping[str, End], *, node: str) -> Sealed:
    """Chain `drafts`, written by `node`, to the logs of their teams."""
    after = dict(ends)
    done = Sealed(seqs=[], ends=after, entries=[], bodies=[], items=[])
    for draft in drafts:
        end = after[draft.team]
        digest = keyed_digest(end.digest_key, draft.body) if draft.body is not None else None
        entry = seal(draft, end.head, digest)
        head = Head(seq=entry.seq, hash=entry.hash)
        after[draft.team] = msgspec.structs.replace(end, head=head)
        done.seqs.append(entry.seq)
        done.entries.append((*entry_columns(entry), node))
        if draft.body is not None:
            done.bodies.append((*body_key(entry), draft.body))
        shown = (entry.at, entry.actor, entry.type, entry.handoff_id, entry.version)
        readers = set(draft.mail)  # one may be told for two reasons
        done.items.extend((entry.team, reader, entry.seq, kind, *shown) for reader, kind in readers)
    return done


async def write(
    connection: Connection,
    changes: Changes,
    made: Sealed,
    gone: Sequence[tuple[str, str, int]],
    *,
    node: str,
    channel: str | None,
) -> None:
    """Write what a unit of work came to: one statement for what is common, more for what is rare.

    `gone` are the processes that go, unless they were heard of after the time given with each.
    Whoever listens on `channel` is told that `node` wrote something.
    """
    if changes.agents or changes.tokens or changes.records or changes.records_gone:
        await _write_known(connection, changes)
    tells = is_known(changes)
    parties = [row for handoff in _strangers(changes) for row in party_columns(handoff)]
    await connection.fetch(
        _WRITE,
        *transposed(made.entries, _width("entry")),
        *transposed(made.bodies, _width("body")),
        *transposed(made.items, _width("inbox")),
        *transposed([handoff_columns(row) for row in changes.rows], _width("handoff")),
        *transposed(parties, _width("party")),
        *transposed([columns_of(use) for use in changes.keys], _width("idempotency_key")),
        *transposed([columns_of(p) for p in changes.processes], _width("process")),
        *transposed(gone, 3),
        *transposed(
            [
                (team, end.head.seq, end.head.hash, end.head.seq if tells else end.known_seq)
                for team, end in made.ends.items()
            ],
            4,
        ),
        channel,
        node,
    )


def is_known(changes: Changes) -> bool:
    """Whether decisions of other nodes rest on something in `changes`."""
    return bool(
        changes.agents
        or changes.tokens
        or changes.records_gone
        or any(record.kind != OBSERVED for record in changes.records)
    )


def _strangers(changes: Changes) -> Iterable[Handoff]:
    """Return the handoffs whose parties may not be known yet: only recipients are added later."""
    return (row.handoff for row in changes.rows)


async def _write_known(connection: Connection, changes: Changes) -> None:
    """Write what is known of a team's agents and ways in. Rare, so statement by statement."""
    agents = [agent for agent, _ in changes.agents]
    manifests = [(agent.team, agent.id, agent.version, sent) for agent, sent in changes.agents]
    for sql, rows in (
        (_PUT_AGENT, [agent_columns(agent) for agent in agents]),
        (_KEEP_MANIFEST, manifests),
        (_LET_IN, [columns_of(token) for token in changes.tokens]),
        (_PUT_RECORD, [columns_of(record) for record in changes.records]),
        (_DROP_RECORD, list(changes.records_gone)),
    ):
        if rows:
            await connection.executemany(sql, rows)


_PUT_AGENT: Final = """
    insert into agent (team, id, version, json) values ($1, $2, $3, $4)
    on conflict (team, id) do update set version = excluded.version, json = excluded.json
"""
# A version is what was sent first under its number: it does not change afterwards.
_KEEP_MANIFEST: Final = """
    insert into manifest (team, agent, version, sent) values ($1, $2, $3, $4)
    on conflict do nothing
"""
_LET_IN: Final = """
    insert into token (team, id, secret_sha256, agent, role, label, created_at, revoked_at)
    values ($1, $2, $3, $4, $5, $6, $7, $8)
    on conflict (team, id) do update set
        secret_sha256 = excluded.secret_sha256, agent = excluded.agent, role = excluded.role,
        label = excluded.label, revoked_at = excluded.revoked_at
"""
_PUT_RECORD: Final = """
    insert into record (team, kind, id, json) values ($1, $2, $3, $4)
    on conflict (kind, team, id) do update set json = excluded.json
"""
_DROP_RECORD: Final = "delete from record where team = $1 and kind = $2 and id = $3"


# --- the one statement --------------------------------------------------------------------------

_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "entry": {
        "team": "text",
        "seq": "bigint",
        "at": "bigint",
        "type": "text",
        "actor": "text",
        "handoff_id": "text",
        "version": "bigint",
        "correlation_id": "text",
        "command_id": "text",
        "data": "text",
        "body_digest": "text",
        "prev_hash": "text",
        "hash": "text",
        "node": "text",
    },
    "body": {"team": "text", "handoff_id": "text", "number": "bigint", "body": "bytea"},
    "inbox": {
        "team": "text",
        "agent": "text",
        "seq": "bigint",
        "kind": "text",
        "at": "bigint",
        "actor": "text",
        "type": "text",
        "handoff_id": "text",
        "version": "bigint",
    },
    "handoff": {
        "team": "text",
        "id": "text",
        "version": "bigint",
        "state": "text",
        "attempt": "bigint",
        "sender": "text",
        "origin": "text",
        "recipient": "text",
        "correlation_id": "text",
        "process": "text",
        "due_at": "bigint",
        "rank": "bigint",
        "held": "boolean",
        "open": "boolean",
        "dead": "boolean",
        "ended_at": "bigint",
        "settled_at": "bigint",
        "json": "bytea",
    },
    "party": {"team": "text", "agent": "text", "handoff_id": "text", "watches": "boolean"},
    "idempotency_key": {
        "team": "text",
        "sender": "text",
        "key": "text",
        "handoff_id": "text",
        "digest": "text",
    },
    "process": {
        "team": "text",
        "id": "text",
        "agent": "text",
        "heartbeat_ms": "bigint",
        "seen_at": "bigint",
    },
}
"""Named column by column: a later schema may have more of them, and nodes that do not know."""

# Sender, origin and correlation are as the offer made them: naming them would rewrite their
# indexes each time.
_CONFLICTS: Final = {
    "handoff": """(team, id) do update set
        version = excluded.version, state = excluded.state, attempt = excluded.attempt,
        recipient = excluded.recipient, process = excluded.process, due_at = excluded.due_at,
        rank = excluded.rank, held = excluded.held, open = excluded.open, dead = excluded.dead,
        ended_at = excluded.ended_at, settled_at = excluded.settled_at, json = excluded.json""",
    "party": "do nothing",
    "idempotency_key": """(team, sender, key) do update set
        handoff_id = excluded.handoff_id, digest = excluded.digest""",
    # Two nodes may have heard of a process; the later sign of life counts.
    "process": """(team, id) do update set
        agent = excluded.agent, heartbeat_ms = excluded.heartbeat_ms,
        seen_at = greatest(process.seen_at, excluded.seen_at)""",
}

_LOCK_ENDS: Final = """
    select id, head_seq, head_hash, digest_key, known_seq from team
    where id = any($1::text[]) order by id for no key update
"""


def _width(table: str) -> int:
    return len(_TABLES[table])


def _one_statement() -> str:
    bound = 0

    def arrays(types: Iterable[str]) -> str:
        nonlocal bound
        placed: list[str] = []
        for type_ in types:
            bound += 1
            placed.append(f"${bound}::{type_}[]")
        return f"unnest({', '.join(placed)})"

    parts: list[str] = []
    for table, columns in _TABLES.items():
        conflict = f" on conflict {_CONFLICTS[table]}" if table in _CONFLICTS else ""
        rows = (
            f"insert into {table} ({', '.join(columns)}) select * from {arrays(columns.values())}"  # noqa: S608  # constants of this module
        )
        parts.append(f"new_{table} as ({rows}{conflict})")
    gone = f"{arrays(('text', 'text', 'bigint'))} g(team, id, seen_at)"
    parts.append(
        f"gone as (delete from process p using {gone} "  # noqa: S608  # the same
        "where p.team = g.team and p.id = g.id and p.seen_at <= g.seen_at)"
    )
    ends = f"{arrays(('text', 'bigint', 'text', 'bigint'))} n(id, seq, hash, known)"
    parts.append(
        "ends as (update team t set head_seq = n.seq, head_hash = n.hash, known_seq = n.known "  # noqa: S608  # the same
        f"from {ends} where t.id = n.id)"
    )
    # At most one a unit of work: a notification takes a lock of the whole database at the commit.
    channel, node = f"${bound + 1}::text", f"${bound + 2}::text"
    told = f"select pg_notify({channel}, {node}) where {channel} is not null"
    return f"with {', '.join(parts)} {told}"


_WRITE: Final[Any] = _one_statement()
