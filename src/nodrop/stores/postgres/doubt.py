"""Commits in doubt: the answer was lost, or the commit was. Which of the two the database knows."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from nodrop.core.errors import StoreUnavailableError
from nodrop.stores.postgres.connection import Broken, connect
from nodrop.stores.postgres.driver import Connection
from nodrop.stores.postgres.transaction import PostgresTransaction

DOUBT_SECONDS_MAX: Final = 8.0
"""For how long a commit whose answer was lost is looked for while the server may still make it, or is
not to be reached; then it is the caller's to repeat."""


async def was_kept(
    work: PostgresTransaction,
    dsn: str,
    *,
    backend: int | None,
    ends: Mapping[str, int],
    closed: Callable[[], bool],
) -> bool:
    """Whether a unit of work was kept after all.

    What is not there yet may still come, for as long as the server's process that was asked for it
    goes on.

    Args:
        work: what was to be kept.
        dsn: where.
        backend: that process; None where a pooler hides it.
        ends: the last entry of each team that was written here before.
        closed: whether nobody wants to know any longer.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(DOUBT_SECONDS_MAX):
            while work.drafts and not closed():
                with suppress(StoreUnavailableError, *Broken):
                    connection = await connect(dsn)
                    try:
                        over = await _has_ended(connection, backend)
                        if await _found(connection, work, ends):
                            return True
                    finally:
                        connection.terminate()
                    if over:
                        return False
                await asyncio.sleep(0.1)
    return False


async def _found(
    connection: Connection, work: PostgresTransaction, ends: Mapping[str, int]
) -> bool:
    """Look for what `work` wrote: all of it is there if the last entry of a team is."""
    for team, draft in {draft.team: draft for draft in work.drafts}.items():
        last = await connection.fetchval(
            "select max(seq) from entry where team = $1 and seq > $2 and node = $3"
            " and at = $4 and type = $5 and actor = $6"
            " and handoff_id is not distinct from $7 and version is not distinct from $8"
            " and command_id is not distinct from $9",
            *(team, ends.get(team, 0), work.node, draft.at, draft.type, draft.actor),
            *(draft.handoff_id, draft.version, draft.command_id),
        )
        if last is None:
            return False
        work.found(team, last)
    return True


async def _has_ended(connection: Connection, backend: int | None) -> bool:
    """Whether a process of the server will certainly do nothing more.

    It is not stopped here: one that waits for a standby would then keep what the standby never got.
    A server that was promoted meanwhile has no such process either, and gets no more of the old one.
    """
    if backend is None:
        return False
    asked = "select not exists (select from pg_stat_activity where pid = $1)"
    return bool(await connection.fetchval(asked, backend))
