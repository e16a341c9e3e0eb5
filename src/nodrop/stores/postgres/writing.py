"""What a unit of work comes to, as the one call that writes it (`append` in the schema).

Nothing here decides when that is, or what becomes of it: `transaction` and `store` do.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from nodrop.core.model import Handoff
from nodrop.store import Changes, Key
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.records import (
    Columns,
    agent_columns,
    columns_of,
    handoff_columns,
    party_columns,
    transposed,
    with_salt,
)
from nodrop.wire.log import Draft, around_place, salted_digest

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

Name = tuple[str, str, str]
"""(team, actor, command id) or (team, sender, key)."""


class Basis:
    """What a unit of work believes without having looked: checked when it is written."""

    def __init__(self) -> None:
        self.versions: dict[Key, int] = {}
        self.commands: set[Name] = set()
        """Not carried out before."""
        self.keys: set[Name] = set()
        """Not used before."""

    def rest_on(
        self, handoffs: Iterable[Handoff], commands: Iterable[Name], keys: Iterable[Name]
    ) -> None:
        """Believe that these handoffs are as they are known, and that nobody used these names."""
        self.versions |= {(handoff.team, handoff.id): handoff.version for handoff in handoffs}
        self.commands.update(commands)
        self.keys.update(keys)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to check."""
        return not (self.versions or self.commands or self.keys)


class Writer(msgspec.Struct, frozen=True, kw_only=True):
    """Who writes."""

    node: str = ""
    heard: Mapping[str, int] | None = None
    """Up to which entry of each team what is known to decide by has been heard of; None: nobody
    else changes it."""
    channel: str | None = None
    """Where the others are told; None: there are none."""


def names_of(commands: Iterable[Name], keys: Iterable[Name]) -> list[str]:
    """Return what is held by its name, because it is not there yet.

    Of two nodes that are sent one command, or one key, the second decides when the first is through.
    """
    names = [":".join(("command", *command)) for command in commands]
    return names + [":".join(("key", *key)) for key in keys]


def gathered(parts: Sequence[Changes]) -> Changes:
    """Return several changes as one; what a later one puts in an earlier one's place stays."""
    if len(parts) == 1:
        return parts[0]
    together: dict[str, list[Any]] = {
        name: [each for part in parts for each in getattr(part, name)]
        for name in Changes.__struct_fields__
    }
    together["rows"] = list({(r.handoff.team, r.handoff.id): r for r in together["rows"]}.values())
    together["keys"] = list({(u.team, u.sender, u.key): u for u in together["keys"]}.values())
    together["processes"] = list({(p.team, p.id): p for p in together["processes"]}.values())
    return Changes(**together)


async def write(
    connection: Connection,
    changes: Changes,
    basis: Basis,
    gone: Sequence[tuple[str, str, int]],
    *,
    rows: Mapping[Key, Handoff],
    writer: Writer,
) -> list[int]:
    """Write what a unit of work came to; return the `seq` of each entry.

    Args:
        connection: inside of a transaction, or the call is one.
        changes: what it came to.
        basis: what must hold.
        gone: processes that go, unless they were heard of after the time given with each.
        rows: handoffs that have a row, as it was.
        writer: who writes.
    """
    entries, bodies, items = _entries(changes.entries)
    changed = {(row.handoff.team, row.handoff.id): row for row in changes.rows}
    parties: list[Columns] = []
    for key, row in changed.items():
        before = rows.get(key)
        if before is None or before.asked != row.handoff.asked:
            parties.extend(party_columns(row.handoff))
    # That nobody else has changed what is written, the versions of its entries tell.
    read = [(*key, version) for key, version in basis.versions.items() if key not in changed]
    heard = writer.heard
    teams = sorted({draft.team for draft in changes.entries})
    return await connection.fetchval(
        _APPEND,
        names_of(basis.commands, basis.keys),
        *transposed(read, 3),
        *transposed(list(basis.commands), 3),
        *transposed(list(basis.keys), 3),
        teams,
        [None if heard is None else heard.get(team, 0) for team in teams],
        is_known(changes),
        *transposed(entries, 13),
        *transposed(bodies, 2),
        *transposed(items, 3),
        sum(key not in rows for key in changed),
        *transposed([handoff_columns(changed[key]) for key in sorted(changed)], 18),
        *transposed(parties, 4),
        *transposed([columns_of(use) for use in changes.keys], 5),
        *transposed([columns_of(process) for process in changes.processes], 5),
        *transposed(gone, 3),
        writer.node,
        writer.channel,
    )


def _entries(
    drafts: Sequence[Draft],
) -> tuple[list[Columns], list[Columns], list[Columns]]:
    """Return entries, bodies and inbox items as columns; the latter two count entries from 1."""
    entries: list[Columns] = []
    bodies: list[Columns] = []
    items: list[Columns] = []
    for number, draft in enumerate(drafts, start=1):
        digest = None
        if draft.body is not None:
            digest = salted_digest(draft.salt, draft.body)
            bodies.append((number, with_salt(draft.salt, draft.body)))
        for reader, kind in set(draft.mail):  # one may be told for two reasons
            items.append((number, reader, kind))
        entries.append(
            (
                draft.team,
                draft.at,
                draft.type,
                draft.actor,
                draft.handoff_id,
                draft.version,
                draft.correlation_id,
                draft.command_id,
                draft.request,
                str(bytes(draft.data), "utf-8"),
                digest,
                *around_place(draft, digest),
            )
        )
    return entries, bodies, items


def is_known(changes: Changes) -> bool:
    """Whether decisions of other nodes rest on something in `changes`."""
    return bool(
        changes.agents
        or changes.tokens
        or any(kind not in UNTOLD for _, kind, _ in changes.records_gone)
        or any(record.kind not in UNTOLD for record in changes.records)
    )


_ARGUMENTS: Final = 69
_APPEND: Final = f"select append({', '.join(f'${n + 1}' for n in range(_ARGUMENTS))})"


# --- what is rare -------------------------------------------------------------------------------


async def write_known(connection: Connection, changes: Changes) -> None:
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
