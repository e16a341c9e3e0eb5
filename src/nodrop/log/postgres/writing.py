"""A unit of work as the one call that writes it (`append` in the schema).

Nothing here decides when that is, or what becomes of it: `store` does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.log.port import Changes, Key
from nodrop.log.postgres.driver import Connection
from nodrop.log.postgres.place import Place
from nodrop.log.postgres.records import party_columns, transposed
from nodrop.log.records import Columns, agent_columns, columns_of, handoff_columns, packed
from nodrop.log.tables import Name
from nodrop.log.work import Commit
from nodrop.protocol.entries import Head

UNTOLD: Final = frozenset(
    {
        "endings",
        "observed",
        "outlet_progress",
        "webhook",
        "webhook_ended",
        "webhook_progress",
    }
)
"""The kinds of records that no decision rests on: other nodes need not read them again."""
AGENT: Final = "agent"
TOKEN: Final = "token"  # noqa: S105  # what it is called
RECORD: Final = "record/"
_EVER: Final = 2**62

About = Mapping[str, list[tuple[str, str]]]
"""(kind, id) of agents, tokens and records, by team."""


class Basis(msgspec.Struct, kw_only=True):
    """What a unit of work rests on: compared when it is written."""

    heads: dict[str, Head] = msgspec.field(default_factory=dict[str, Head])
    """Where the log of each team ended when it was first looked at."""
    heard: Mapping[str, int] | None = None
    """Up to which entry of each team what is known to decide by has been heard of; None: nobody
    else changes it."""
    commands: set[Name] = msgspec.field(default_factory=set[Name])
    """Not carried out before."""
    keys: set[Name] = msgspec.field(default_factory=set[Name])
    """Not used before."""
    processes: dict[Key, int] = msgspec.field(default_factory=dict[Key, int])
    """When each process was last heard of: one that was heard of since is not dropped."""

    def ends(self) -> list[Columns]:
        """Return (team, seq, hash, heard) of each team, sorted: who locks them locks them in order."""
        heard = self.heard
        return [
            (team, head.seq, head.hash, None if heard is None else heard.get(team, 0))
            for team, head in sorted(self.heads.items())
        ]


def gathered(parts: Sequence[Changes]) -> Changes:
    """Return several changes as one; what a later one puts in an earlier one's place stays."""
    if len(parts) == 1:
        return parts[0]
    together: dict[str, list[Any]] = {
        name: [each for part in parts for each in getattr(part, name)]
        for name in Changes.__struct_fields__
    }
    together["keys"] = list({(u.team, u.sender, u.key): u for u in together["keys"]}.values())
    together["processes"] = list({(p.team, p.id): p for p in together["processes"]}.values())
    return Changes(**together)


async def check(connection: Connection, basis: Basis) -> bool:
    """Whether everything is as a unit of work that writes nothing has found it."""
    return await connection.fetchval(
        _CHECK,
        *transposed(basis.ends(), 4),
        *transposed(list(basis.commands), 3),
        *transposed(list(basis.keys), 3),
    )


async def write(  # noqa: PLR0917  # for every commit: names would cost as much again
    connection: Connection,
    commit: Commit,
    changes: Changes,
    about: About | None,
    basis: Basis,
    place: Place,
) -> None:
    """Write a commit, inside of a transaction, or the call is one.

    Args:
        connection: where.
        commit: what.
        changes: its changes, gathered.
        about: what `known_changes` says of them.
        basis: what it rests on.
        place: who writes.

    Raises:
        asyncpg.SerializationError: it rests on what is not so. Nothing is written.
        asyncpg.UniqueViolationError: the same.
    """
    commands, keys = commit.commands, [columns_of(use) for use in changes.keys]
    unused_commands, new_commands = _believed(basis.commands, commands)
    unused_keys, new_keys = _believed(basis.keys, keys)
    processes, gone = changes.processes, changes.processes_gone
    behind = commit.behind
    rows = behind.rows
    await connection.fetchval(
        _APPEND,
        _logs(commit, about, basis),
        unused_commands,
        unused_keys,
        commands or None,
        new_commands,
        keys or None,
        new_keys,
        [(e.batch.team, *columns_of(body)) for e in commit.journal for body in e.large] or None,
        commit.mentions or None,
        [columns_of(process) for process in processes] if processes else None,
        [(*key, basis.processes.get(key, _EVER)) for key in gone] if gone else None,
        [handoff_columns(row) for row in rows] if rows else None,
        [party for each in rows if each.parties for party in party_columns(each.row.handoff)]
        if rows
        else None,
        [
            (each.row.handoff.team, each.row.handoff.id, first, packed(seqs))
            for each in rows
            for first, seqs in each.overflow
        ]
        if rows
        else None,
        [(team, reader, *columns_of(item)) for team, reader, item in behind.mail]
        if behind.mail
        else None,
        place.node,
        place.channel,
    )
    if about is not None:
        await _write_known(connection, changes)


def _logs(commit: Commit, about: About | None, basis: Basis) -> list[Columns]:
    """Return what is compared with the end of each log, and appended to it."""
    written = {each.batch.team: each for each in commit.journal}
    marks = dict(commit.behind.watermarks)
    logs: list[Columns] = []
    for end in basis.ends():
        team, seq, hash_, _ = end
        each, mark = written.get(team), marks.get(team)
        if each is None:
            logs.append((*end, seq, hash_, False, mark, *_NOTHING_APPENDED))
            continue
        batch = each.batch
        told = None if about is None or team not in about else told_in(about, team)
        logs.append(
            (
                *end,
                batch.last_seq,
                each.head.hash,
                told is not None,
                mark,
                batch.first_at,
                batch.last_at,
                batch.types,
                batch.entries,
                batch.hashes,
                batch.bodies,
                batch.mail,
                told or "",
            )
        )
    return logs


def _believed(names: set[Name], rows: Sequence[Columns]) -> tuple[list[Name] | None, bool]:
    """Return which of `names` must be looked up, and whether each of `rows` must be under one of them.

    The unique index says of a row that is written whether there was one of its name before.
    """
    if not rows:
        return list(names) or None, False
    used = {row[:3] for row in rows}
    if used == names:
        return None, True
    return (list(names - used) or None, True) if used < names else (list(names) or None, False)


def known_changes(changes: Changes) -> About | None:
    """Return which agents, tokens and records change that decisions rest on; None: none do at all."""
    if not (changes.agents or changes.tokens or changes.records or changes.records_gone):
        return None
    about: dict[str, list[tuple[str, str]]] = {}
    for agent, _ in changes.agents:
        about.setdefault(agent.team, []).append((AGENT, agent.id))
    for token in changes.tokens:
        about.setdefault(token.team, []).append((TOKEN, token.id))
    records = [(record.team, record.kind, record.id) for record in changes.records]
    for team, kind, name in (*records, *changes.records_gone):
        if kind not in UNTOLD:
            about.setdefault(team, []).append((RECORD + kind, name))
    return about


def told_in(about: About, team: str) -> str:
    """Return what the journal says about agents, tokens and records that changed with a batch."""
    return msgspec.json.encode(about[team]).decode()


_ARGUMENTS: Final = 17
_APPEND: Final = f"select append({', '.join(f'${n + 1}' for n in range(_ARGUMENTS))})"
_NOTHING_APPENDED: Final = (None,) * 8
_CHECK: Final = """
    select not exists (
        select 1 from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) u(id, seq, hash, heard)
        left join lateral (
            select head_seq, head_hash, known_seq from team where id = u.id offset 0
        ) t on true
        where t.head_seq is distinct from u.seq or t.head_hash is distinct from u.hash
            or t.known_seq > u.heard
    ) and not exists (
        select 1 from unnest($5::text[], $6::text[], $7::text[]) u(team, actor, id), lateral (
            select 1 from command c
            where c.team = u.team and c.actor = u.actor and c.id = u.id offset 0
        ) used
    ) and not exists (
        select 1 from unnest($8::text[], $9::text[], $10::text[]) u(team, sender, key), lateral (
            select 1 from idempotency_key k
            where k.team = u.team and k.sender = u.sender and k.key = u.key offset 0
        ) used
    )
"""


# --- what is rare -------------------------------------------------------------------------------


async def _write_known(connection: Connection, changes: Changes) -> None:
    """Write what is known of a team's agents and ways in, statement by statement, each sorted."""
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
            await connection.executemany(sql, sorted(rows, key=_order))


def _order(row: Columns) -> Columns:
    """Return what rows of any of these tables are told apart by: no column of it is ever null."""
    return row[:3]


_PUT_AGENT: Final[Any] = """
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
