"""Cutting a log at its horizon, and forgetting what nobody will ask for again.

In small steps, each a transaction of its own, that lock only what goes, and never the end of a log
or anything open: writers do not wait. The horizon first, which hides what is before it, then what
it hides. Whoever prunes after a crash goes on.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from nodrop.store import Horizon
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.records import (
    horizon_columns,
    party_columns,
    read_handoff,
    read_horizon,
)

STEP_ENTRIES: Final = 2_000
STEP_HANDOFFS: Final = 500

Step = Callable[[Callable[[Connection], Awaitable[int]]], Awaitable[int]]
"""Runs something in a transaction of its own; returns what it returns."""


async def current_horizon(connection: Connection, team: str) -> Horizon | None:
    """Return where a team's log begins, if it was pruned."""
    json = await connection.fetchval("select json from horizon where team = $1", team)
    return None if json is None else read_horizon(json)


async def prune(step: Step, horizon: Horizon, *, forget_before: int) -> int:
    """Cut a team's log at `horizon`; return how many entries went."""
    if not await step(lambda connection: _set(connection, horizon)):
        return 0  # another node has cut further, and deletes what is left
    kept = [handoff.id for handoff in horizon.snapshots]
    count = 0
    while gone := await step(lambda connection: _cut(connection, horizon, kept)):
        count += gone
    while await step(lambda connection: _forget(connection, horizon, forget_before)):
        pass
    first = await step(lambda connection: _first_item(connection, horizon.team))
    for seq in range(first, horizon.seq + 1, STEP_ENTRIES):
        await step(partial(_delete_items, horizon=horizon, first=seq))
    return count


async def _set(connection: Connection, horizon: Horizon) -> int:
    """Hold the horizon against the log: what is cut cannot be checked afterwards."""
    team, seq, hash_ = horizon.team, horizon.seq, horizon.hash
    # Of nodes that prune at once, one after the other. By a name that no writer asks for: what is
    # before the horizon changes no more, so nobody who appends need wait.
    await connection.execute(
        "select pg_advisory_xact_lock(hashtextextended('prune:' || $1, 0))", team
    )
    before = await current_horizon(connection, team)
    if before is not None and before.seq > seq:
        return 0
    known = before is not None and (before.seq, before.hash) == (seq, hash_)
    found = await connection.fetchval(
        "select 1 from entry where team = $1 and seq = $2 and hash = $3", team, seq, hash_
    )
    assert known or found, "a horizon names the last entry that goes"
    await connection.execute(
        "insert into horizon (team, seq, json) values ($1, $2, $3)"
        " on conflict (team) do update set seq = excluded.seq, json = excluded.json",
        *horizon_columns(horizon),
    )
    return 1


async def _cut(connection: Connection, horizon: Horizon, kept: list[str]) -> int:
    """Delete some of the entries before the horizon, with the bodies that go with them."""
    return await connection.fetchval(
        """
        with old as (
            select seq from entry where team = $1 and seq <= $2 order by seq limit $3
        ), gone as (
            delete from entry e using old where e.team = $1 and e.seq = old.seq
            returning e.seq, e.handoff_id, e.version
        ), of_handoffs as (
            delete from body b using gone
            where b.team = $1 and gone.handoff_id is not null
                and not (gone.handoff_id = any($4::text[]))
                and b.handoff_id = gone.handoff_id and b.number <= gone.version
        ), of_the_team as (
            delete from body b using gone
            where b.team = $1 and gone.version is null and b.handoff_id = '' and b.number = gone.seq
        )
        select count(*) from gone
        """,
        horizon.team,
        horizon.seq,
        STEP_ENTRIES,
        kept,
    )


async def _forget(connection: Connection, horizon: Horizon, forget_before: int) -> int:
    """Drop some of the handoffs that are over and that the log tells nothing of any more."""
    rows = await connection.fetch(
        """
        select json from handoff h
        where team = $1 and not open and settled_at < $2 and not exists (
            select 1 from entry e where e.team = h.team and e.handoff_id = h.id
        )
        limit $3 for update skip locked
        """,
        horizon.team,
        forget_before,
        STEP_HANDOFFS,
    )
    over = [read_handoff(json) for (json,) in rows]
    ids = [handoff.id for handoff in over]
    await connection.executemany(
        "delete from party where team = $1 and agent = $2 and handoff_id = $3",
        [row[:3] for handoff in over for row in party_columns(handoff)],
    )
    for table, column in (("idempotency_key", "handoff_id"), ("handoff", "id")):
        sql = f"delete from {table} where team = $1 and {column} = any($2::text[])"  # noqa: S608  # names from the line above
        await connection.execute(sql, horizon.team, ids)
    return len(over)


async def _first_item(connection: Connection, team: str) -> int:
    first = await connection.fetchval("select min(seq) from inbox where team = $1", team)
    return 0 if first is None else first


async def _delete_items(connection: Connection, horizon: Horizon, first: int) -> int:
    """Delete some of the inbox items that were about no handoff, or about one that is forgotten."""
    await connection.execute(
        """
        delete from inbox i where team = $1 and seq between $2 and $3 and (
            handoff_id is null
            or not exists (select 1 from handoff h where h.team = i.team and h.id = i.handoff_id)
        )
        """,
        horizon.team,
        first,
        min(first + STEP_ENTRIES - 1, horizon.seq),
    )
    return 0
