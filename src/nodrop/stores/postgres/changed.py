"""What has changed of the agents, tokens and records of a team: told by whoever changed it.

With many agents in a team somebody joins all the time: what that costs the other nodes must not
depend on how many there are.
"""

from collections.abc import Collection, Mapping
from typing import Final

from nodrop.store import Changes, Record, Token
from nodrop.stores.postgres.driver import Ask, Connection
from nodrop.stores.postgres.place import NOW
from nodrop.stores.postgres.records import read_agent, transposed, value_of

KEPT_MS: Final = 600_000
"""By then every node that serves has heard of it."""
TOGETHER_MAX: Final = 2_000
"""Where more has changed than this, it is quicker to read everything."""
_AGENT: Final = "agent"
_TOKEN: Final = "token"  # noqa: S105  # what it is called
_RECORD: Final = "record/"


async def tell_changes(
    connection: Connection, changes: Changes, *, told: Mapping[str, int], heard: Mapping[str, int]
) -> None:
    """Write down what `changes` are about, in the transaction that makes them; forget what is old.

    Args:
        connection: inside of that transaction, which holds the teams.
        changes: what it has written.
        told: the last entry of each team that came with them.
        heard: the last entry before that came with a change.
    """
    rows: list[tuple[str, int, int, list[str], list[str]]] = []
    for team, seq in told.items():
        about = [(_AGENT, agent.id) for agent, _ in changes.agents if agent.team == team]
        about += [(_TOKEN, token.id) for token in changes.tokens if token.team == team]
        about += [(_RECORD + r.kind, r.id) for r in changes.records if r.team == team]
        about += [(_RECORD + kind, id_) for of, kind, id_ in changes.records_gone if of == team]
        kinds, ids = transposed(about, 2)
        rows.append((team, seq, heard.get(team, 0), list(kinds), list(ids)))
    await connection.executemany(_TELL, rows)
    await connection.execute(_FORGET, KEPT_MS)


_TELL: Final = (
    "insert into change (team, seq, before, at, kinds, ids)"  # noqa: S608  # constants
    f" values ($1, $2, $3, {NOW}, $4, $5)"
)
_FORGET: Final = (
    "delete from change where (team, seq) in (select team, seq from change"  # noqa: S608  # constants
    f" where at < {NOW} - $1 order by at limit 10000 for update skip locked)"
)


async def learn_changes(ask: Ask, team: str, *, after: int, until: int) -> Changes | None:
    """Return what has changed since the entry `after`, as it is now; None: that is not known."""
    rows = await ask(
        "select before, seq, kinds, ids from change"
        " where team = $1 and seq > $2 and seq <= $3 order by seq",
        team,
        after,
        until,
    )
    if [after, *(seq for _, seq, *_ in rows)] != [*(before for before, *_ in rows), until]:
        return None
    about = {pair for *_, kinds, ids in rows for pair in zip(kinds, ids, strict=True)}
    if len(about) > TOGETHER_MAX:
        return None
    agents = await ask(_AGENTS, team, [id_ for kind, id_ in about if kind == _AGENT])
    tokens = await ask(_TOKENS, team, [id_ for kind, id_ in about if kind == _TOKEN])
    named = {
        (team, kind.removeprefix(_RECORD), id_) for kind, id_ in about if kind.startswith(_RECORD)
    }
    records = await _records(ask, named)
    return Changes(
        agents=[(read_agent(json), sent) for json, sent in agents],
        tokens=[value_of(Token, row) for row in tokens],
        records=records,
        records_gone=sorted(named - {(r.team, r.kind, r.id) for r in records}),
    )


async def _records(ask: Ask, named: Collection[tuple[str, str, str]]) -> list[Record]:
    if not named:
        return []
    rows = await ask(_RECORDS, *transposed(list(named), 3))
    return [value_of(Record, row) for row in rows]


_AGENTS: Final = """
    select a.json, m.sent from unnest($2::text[]) u(id), lateral
        (select id, version, json from agent where team = $1 and id = u.id offset 0) a, lateral
        (select sent from manifest
            where team = $1 and agent = a.id and version = a.version offset 0) m
"""
_TOKENS: Final = """
    select t.* from unnest($2::text[]) u(id), lateral
        (select team, id, secret_sha256, agent, role, label, created_at, revoked_at
            from token where team = $1 and id = u.id offset 0) t
"""
_RECORDS: Final = """
    select r.* from unnest($1::text[], $2::text[], $3::text[]) u(team, kind, id), lateral
        (select team, kind, id, json from record
            where kind = u.kind and team = u.team and id = u.id offset 0) r
"""
