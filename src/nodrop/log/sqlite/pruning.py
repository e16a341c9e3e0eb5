"""Cutting a log at its horizon, and forgetting handoffs that are over and no longer told of."""

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from nodrop.log import journal
from nodrop.log.journal import Batch, PackedBody
from nodrop.log.port import Horizon
from nodrop.log.records import (
    columns_of,
    horizon_columns,
    party_columns,
    read_handoff,
    read_horizon,
    value_of,
)
from nodrop.log.sqlite.driver import Connection
from nodrop.protocol.entries import Entry

BATCH: str = ", ".join(Batch.__struct_fields__)
"""The columns of `journal`, in the order of a `Batch`."""


def prune(connection: Connection, horizon: Horizon, *, forget_before: int) -> tuple[int, list[str]]:
    """Cut a team's log at `horizon`; return how many entries went, and which handoffs are forgotten.

    Every row of the team is up to date.
    """
    _check(connection, horizon)
    kept = {handoff.id for handoff in horizon.snapshots}
    count = 0
    while (batch := _first_batch(connection, horizon)) is not None:
        cut = [entry for entry in journal.entries(batch) if entry.seq <= horizon.seq]
        _keep_bodies(connection, batch, cut, kept)
        _forget_commands(connection, cut, horizon)
        _cut(connection, batch, horizon)
        count += len(cut)
    below = (horizon.team, horizon.seq)
    connection.execute("delete from large_body where team = ? and seq <= ?", below)
    connection.execute("delete from mention where team = ? and seq <= ?", below)
    connection.execute(
        "delete from kept_body where team = ? and handoff_id not in (select value from json_each(?))",
        (horizon.team, _json(kept)),
    )
    forgotten = _forget(connection, horizon, forget_before)
    connection.execute("insert or replace into horizon values (?, ?, ?)", horizon_columns(horizon))
    return count, forgotten


def current_horizon(connection: Connection, team: str) -> Horizon | None:
    """Return where a team's log begins, if it was pruned."""
    row = connection.execute("select json from horizon where team = ?", (team,)).fetchone()
    return read_horizon(row[0]) if row else None


def batch_at(connection: Connection, team: str, seq: int) -> Batch | None:
    """Return the batch that has the entry at `seq`."""
    row = connection.execute(
        f"select {BATCH} from journal where team = ? and last_seq >= ? order by last_seq limit 1",  # noqa: S608  # constants
        (team, seq),
    ).fetchone()
    batch = value_of(Batch, row) if row else None
    return batch if batch is not None and batch.first_seq <= seq else None


def _check(connection: Connection, horizon: Horizon) -> None:
    """Hold the horizon against the log: what is cut cannot be checked afterwards."""
    before = current_horizon(connection, horizon.team)
    known = before is not None and (before.seq, before.hash) == (horizon.seq, horizon.hash)
    batch = batch_at(connection, horizon.team, horizon.seq)
    found = batch is not None and any(
        (entry.seq, entry.hash) == (horizon.seq, horizon.hash) for entry in journal.entries(batch)
    )
    assert known or found, "a horizon names the last entry that goes"


def _first_batch(connection: Connection, horizon: Horizon) -> Batch | None:
    """Return the first batch, if it has something to be cut."""
    row = connection.execute(
        f"select {BATCH} from journal where team = ? order by last_seq limit 1",  # noqa: S608  # constants
        (horizon.team,),
    ).fetchone()
    batch = value_of(Batch, row) if row else None
    return batch if batch is not None and batch.first_seq <= horizon.seq else None


def _keep_bodies(
    connection: Connection, batch: Batch, cut: Iterable[Entry], kept: set[str]
) -> None:
    """Move the bodies of handoffs that go on to where they do not depend on the journal."""
    needed = {
        entry.seq: entry
        for entry in cut
        if entry.body_digest is not None and entry.version is not None and entry.handoff_id in kept
    }
    bodies = [body for body in journal.bodies(batch) if body.seq in needed]
    rows = connection.executemany(
        "select seq, salt, body from large_body where team = ? and seq = ?",
        [(batch.team, seq) for seq in needed],
    )
    bodies += [PackedBody(*row) for row in rows]
    connection.executemany(
        "insert or replace into kept_body values (?, ?, ?, ?, ?)",
        [
            (
                batch.team,
                needed[body.seq].handoff_id,
                needed[body.seq].version,
                body.salt,
                body.body,
            )
            for body in bodies
        ],
    )


def _forget_commands(connection: Connection, cut: Iterable[Entry], horizon: Horizon) -> None:
    gone: defaultdict[tuple[str, str, str], set[int]] = defaultdict(set)
    for entry in cut:
        if entry.command_id is not None:
            gone[entry.team, entry.actor, entry.command_id].add(entry.seq)
    name = "team = ? and actor = ? and id = ?"
    for command in gone:
        row = connection.execute(f"select seqs from command where {name}", command).fetchone()  # noqa: S608  # constants
        left = [seq for seq in (row[0] if row else "").split() if int(seq) > horizon.seq]
        if left:
            seqs = "".join(f"{seq} " for seq in left)
            connection.execute(f"update command set seqs = ? where {name}", (seqs, *command))  # noqa: S608  # constants
        else:
            connection.execute(f"delete from command where {name}", command)  # noqa: S608  # constants


def _cut(connection: Connection, batch: Batch, horizon: Horizon) -> None:
    connection.execute(
        "delete from journal where team = ? and last_seq = ?", (batch.team, batch.last_seq)
    )
    if batch.last_seq > horizon.seq:
        left = journal.cut(batch, horizon.seq)
        connection.execute(
            "insert into journal values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", columns_of(left)
        )


def _forget(connection: Connection, horizon: Horizon, forget_before: int) -> list[str]:
    """Drop the handoffs that are over and that the log tells nothing of any more."""
    rows = connection.execute(
        """
        select json from handoff h
        where team = ? and not open and settled_at < ? and applied_seq <= ? and not exists (
            select 1 from mention m where m.team = h.team and m.about = 'handoff ' || h.id
        )
        """,
        (horizon.team, forget_before, horizon.seq),
    )
    forgotten = [read_handoff(json) for (json,) in rows]
    connection.executemany(
        "delete from party where team = ? and agent = ? and handoff_id = ?",
        [row for handoff in forgotten for row in party_columns(handoff)],
    )
    keys = [(handoff.team, handoff.id) for handoff in forgotten]
    connection.executemany("delete from handoff where team = ? and id = ?", keys)
    connection.executemany("delete from trail where team = ? and handoff_id = ?", keys)
    ids = _json(handoff.id for handoff in forgotten)
    connection.execute(
        "delete from idempotency_key"
        " where team = ? and handoff_id in (select value from json_each(?))",
        (horizon.team, ids),
    )
    connection.execute(
        "delete from inbox where team = ? and seq <= ?"
        " and (handoff_id is null or handoff_id in (select value from json_each(?)))",
        (horizon.team, horizon.seq, ids),
    )
    return [handoff.id for handoff in forgotten]


def _json(ids: Iterable[str]) -> str:
    return msgspec.json.encode(sorted(ids)).decode()
