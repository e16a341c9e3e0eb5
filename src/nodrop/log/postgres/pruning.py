"""Erasing bodies, cutting a log at its horizon, and forgetting what nobody will ask for again.

In small steps, each a transaction of its own, that lock only what goes, and never the end of a log
or anything open: writers do not wait. The horizon first, which hides what is before it, then what
it hides. Whoever prunes after a crash goes on.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

from nodrop.log import journal
from nodrop.log.journal import Batch, PackedBody
from nodrop.log.port import Horizon
from nodrop.log.postgres.driver import Connection
from nodrop.log.postgres.records import party_columns, transposed
from nodrop.log.postgres.tables import EVERYTHING
from nodrop.log.records import columns_of, horizon_columns, read_handoff, read_horizon, value_of

STEP_ENTRIES: Final = 2_000
STEP_BATCHES: Final = 50
STEP_HANDOFFS: Final = 500

Step = Callable[[Callable[[Connection], Awaitable[int]]], Awaitable[int]]
"""Runs something in a transaction of its own; returns what it returns."""


# --- erasing -------------------------------------------------------------------------------------


async def erase(connection: Connection, team: str, handoff_id: str, seqs: Sequence[int]) -> int:
    """Delete the bodies of a handoff, whose entries are at `seqs`; return how many there were.

    A row is locked while it is rewritten: of two that erase from one batch, the second sees what the
    first has left.
    """
    count = 0
    for batch in await _batches_at(connection, team, seqs, lock="for no key update"):
        gone = [body.seq for body in journal.bodies(batch) if body.seq in seqs]
        if gone:
            await connection.execute(
                "update journal set bodies = $3 where team = $1 and last_seq = $2",
                team,
                batch.last_seq,
                journal.without_bodies(batch, gone),
            )
            count += len(gone)
    for sql, which in (
        ("delete from large_body where team = $1 and seq = any($2::bigint[]) returning 1", seqs),
        ("delete from kept_body where team = $1 and handoff_id = $2 returning 1", handoff_id),
    ):
        count += len(await connection.fetch(sql, team, which))
    return count


async def _batches_at(
    connection: Connection, team: str, seqs: Sequence[int], *, lock: str = ""
) -> list[Batch]:
    found: list[Batch] = []
    for seq in sorted(set(seqs)):
        if found and seq <= found[-1].last_seq:
            continue
        row = await connection.fetchrow(
            f"select {EVERYTHING} from journal"  # noqa: S608  # constants
            f" where team = $1 and last_seq >= $2 order by last_seq limit 1 {lock}",
            team,
            seq,
        )
        if row is not None:
            batch = value_of(Batch, tuple(row))
            if batch.first_seq <= seq:
                found.append(batch)
    return found


# --- pruning -------------------------------------------------------------------------------------


async def current_horizon(connection: Connection, team: str) -> Horizon | None:
    """Return where a team's log begins, if it was pruned."""
    json = await connection.fetchval("select json from horizon where team = $1", team)
    return None if json is None else read_horizon(json)


async def keep_bodies(connection: Connection, team: str, seqs: Sequence[int]) -> int:
    """Copy the bodies of entries that go on to where they do not depend on the journal.

    Before the horizon hides the entries: their bodies are needed all the time. Under the lock that
    erasing takes, so that no body comes back.
    """
    wanted = set(seqs)
    for batch in await _batches_at(connection, team, seqs, lock="for no key update"):
        entries = {e.seq: e for e in journal.entries(batch, wanted) if e.version is not None}
        bodies = [body for body in journal.bodies(batch) if body.seq in entries]
        large = await connection.fetch(
            "select seq, salt, body from large_body where team = $1 and seq = any($2::bigint[])",
            team,
            list(entries),
        )
        bodies += [PackedBody(*row) for row in large]
        rows: list[tuple[Any, ...]] = [
            (
                team,
                entries[body.seq].handoff_id,
                entries[body.seq].version,
                body.salt,
                body.body,
            )
            for body in bodies
        ]
        await connection.execute(
            "insert into kept_body (team, handoff_id, version, salt, body)"
            " select * from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bytea[])"
            " on conflict do nothing",
            *transposed(rows, 5),
        )
    return len(wanted)


async def prune(step: Step, horizon: Horizon, *, forget_before: int) -> int:
    """Cut a team's log at `horizon`; return how many entries went.

    Rows are written up to the horizon, and the bodies of what goes on are kept.
    """
    if not await step(lambda connection: _set(connection, horizon)):
        return 0  # another node has cut further, and deletes what is left
    kept = [handoff.id for handoff in horizon.snapshots]
    count = 0
    while gone := await step(lambda connection: _cut(connection, horizon)):
        count += gone
    for table in ("large_body", "mention"):
        while await step(partial(_delete_below, table=table, horizon=horizon)):
            pass
    await step(lambda connection: _drop_bodies(connection, horizon.team, kept))
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
    found = [
        entry
        for batch in await _batches_at(connection, team, [seq])
        for entry in journal.entries(batch, {seq})
        if entry.hash == hash_
    ]
    assert known or found, "a horizon names the last entry that goes"
    await connection.execute(
        "insert into horizon (team, seq, json) values ($1, $2, $3)"
        " on conflict (team) do update set seq = excluded.seq, json = excluded.json",
        *horizon_columns(horizon),
    )
    return 1


async def _cut(connection: Connection, horizon: Horizon) -> int:
    """Delete some of the batches before the horizon, with the commands that wrote nothing after it."""
    rows = await connection.fetch(
        f"select {EVERYTHING} from journal"  # noqa: S608  # constants
        " where team = $1 and first_seq <= $2 order by last_seq limit $3 for update",
        horizon.team,
        horizon.seq,
        STEP_BATCHES,
    )
    count = 0
    for row in rows:
        batch = value_of(Batch, tuple(row))
        went = [entry for entry in journal.entries(batch) if entry.seq <= horizon.seq]
        names = {(e.actor, e.command_id) for e in went if e.command_id is not None}
        await connection.execute(
            _FORGET_COMMANDS, horizon.team, horizon.seq, *transposed(sorted(names), 2)
        )
        await _shorten(connection, batch, horizon.seq)
        count += len(went)
        if count >= STEP_ENTRIES:
            break
    return count


async def _shorten(connection: Connection, batch: Batch, seq: int) -> None:
    place = (batch.team, batch.last_seq)
    if batch.last_seq <= seq:
        await connection.execute("delete from journal where team = $1 and last_seq = $2", *place)
        return
    left = journal.cut(batch, seq)
    await connection.execute(
        "update journal set first_seq = $3, first_at = $4, last_at = $5, types = $6,"
        " prev_hash = $7, entries = $8, hashes = $9, bodies = $10, mail = $11"
        " where team = $1 and last_seq = $2",
        *columns_of(left),
    )


_FORGET_COMMANDS: Final = """
    delete from command c using unnest($3::text[], $4::text[]) u(actor, id)
    where c.team = $1 and c.actor = u.actor and c.id = u.id and not exists (
        select 1 from unnest(string_to_array(rtrim(c.seqs), ' ')::bigint[]) s(seq) where s.seq > $2
    )
"""


async def _delete_below(connection: Connection, *, table: str, horizon: Horizon) -> int:
    rows = await connection.fetch(
        f"delete from {table} where team = $1 and seq in ("  # noqa: S608  # names from above
        f"select seq from {table} where team = $1 and seq <= $2 limit $3) returning 1",
        horizon.team,
        horizon.seq,
        STEP_HANDOFFS,
    )
    return len(rows)


async def _drop_bodies(connection: Connection, team: str, kept: Collection[str]) -> int:
    """Delete the bodies of handoffs that went on at an earlier horizon, and no longer do."""
    rows = await connection.fetch(
        "delete from kept_body where team = $1 and not (handoff_id = any($2::text[])) returning 1",
        team,
        list(kept),
    )
    return len(rows)


async def _forget(connection: Connection, horizon: Horizon, forget_before: int) -> int:
    """Drop some of the handoffs that are over and that the log tells nothing of any more."""
    rows = await connection.fetch(
        """
        select json from handoff h
        where team = $1 and not open and settled_at < $2 and applied_seq <= $3 and not exists (
            select 1 from mention m where m.team = h.team and m.about = 'handoff ' || h.id
        )
        limit $4 for update skip locked
        """,
        horizon.team,
        forget_before,
        horizon.seq,
        STEP_HANDOFFS,
    )
    over = [read_handoff(json) for (json,) in rows]
    ids = [handoff.id for handoff in over]
    await connection.executemany(
        "delete from party where team = $1 and agent = $2 and handoff_id = $3",
        [row[:3] for handoff in over for row in party_columns(handoff)],
    )
    for table, column in (
        ("idempotency_key", "handoff_id"),
        ("trail", "handoff_id"),
        ("handoff", "id"),
    ):
        sql = f"delete from {table} where team = $1 and {column} = any($2::text[])"  # noqa: S608  # names from above
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
