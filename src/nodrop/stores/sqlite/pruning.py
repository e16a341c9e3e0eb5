"""Cutting a log at its horizon, and forgetting what nobody will ask for again."""

from collections.abc import Iterable

import msgspec

from nodrop.store import Horizon
from nodrop.stores.sqlite.driver import Connection
from nodrop.stores.sqlite.records import (
    horizon_columns,
    party_columns,
    read_handoff,
    read_horizon,
)


def prune(connection: Connection, horizon: Horizon, *, forget_before: int) -> int:
    """Cut a team's log at `horizon`; return how many entries went."""
    _check(connection, horizon)
    loose = _handoffs_cut(connection, horizon) - {handoff.id for handoff in horizon.snapshots}
    connection.execute("delete from entry where team = ? and seq <= ?", (horizon.team, horizon.seq))
    count = connection.changes()
    _delete_bodies(connection, horizon, loose)
    _forget(connection, horizon, forget_before)
    connection.execute("insert or replace into horizon values (?, ?, ?)", horizon_columns(horizon))
    return count


def current_horizon(connection: Connection, team: str) -> Horizon | None:
    """Return where a team's log begins, if it was pruned."""
    row = connection.execute("select json from horizon where team = ?", (team,)).fetchone()
    return read_horizon(row[0]) if row else None


def _check(connection: Connection, horizon: Horizon) -> None:
    """Hold the horizon against the log: what is cut cannot be checked afterwards."""
    before = current_horizon(connection, horizon.team)
    known = before is not None and (before.seq, before.hash) == (horizon.seq, horizon.hash)
    found = connection.execute(
        "select 1 from entry where team = ? and seq = ? and hash = ?",
        (horizon.team, horizon.seq, horizon.hash),
    ).fetchone()
    assert known or found, "a horizon names the last entry that goes"


def _handoffs_cut(connection: Connection, horizon: Horizon) -> set[str]:
    rows = connection.execute(
        "select distinct handoff_id from entry"
        " where team = ? and seq <= ? and handoff_id is not null",
        (horizon.team, horizon.seq),
    )
    return {handoff_id for (handoff_id,) in rows}


def _delete_bodies(connection: Connection, horizon: Horizon, handoffs: Iterable[str]) -> None:
    connection.executemany(
        """
        delete from body where team = ? and handoff_id = ? and not exists (
            select 1 from entry e
            where e.team = body.team and e.handoff_id = body.handoff_id and e.version = body.number
        )
        """,
        ((horizon.team, handoff_id) for handoff_id in handoffs),
    )
    connection.execute(
        "delete from body where team = ? and handoff_id = '' and number <= ?",
        (horizon.team, horizon.seq),
    )


def _forget(connection: Connection, horizon: Horizon, forget_before: int) -> None:
    """Drop the handoffs that are over and that the log tells nothing of any more."""
    rows = connection.execute(
        """
        select json from handoff h
        where team = ? and not open and settled_at < ? and not exists (
            select 1 from entry e where e.team = h.team and e.handoff_id = h.id
        )
        """,
        (horizon.team, forget_before),
    )
    forgotten = [read_handoff(json) for (json,) in rows]
    connection.executemany(
        "delete from party where team = ? and agent = ? and handoff_id = ?",
        [row for handoff in forgotten for row in party_columns(handoff)],
    )
    connection.executemany(
        "delete from handoff where team = ? and id = ?",
        [(handoff.team, handoff.id) for handoff in forgotten],
    )
    ids = msgspec.json.encode([handoff.id for handoff in forgotten]).decode()
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
