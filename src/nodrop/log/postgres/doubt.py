"""Commits in doubt: the answer was lost, or the commit was. Which of the two the database knows."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from nodrop.log.journal import Packed
from nodrop.log.postgres.connection import Broken, connect
from nodrop.log.postgres.driver import Connection
from nodrop.model.errors import StoreUnavailableError

T = TypeVar("T")

DOUBT_SECONDS_MAX: Final = 8.0
"""For how long a commit whose answer was lost is looked for while the server may still make it, or is
not to be reached; then it is the caller's to repeat."""


async def was_kept(
    written: Sequence[Packed], dsn: str, *, backend: int | None, closed: Callable[[], bool]
) -> bool:
    """Whether what was to be appended is in the journal after all.

    What is not there yet may still come, for as long as the server's process that was asked for it
    goes on, and nobody else has taken its place.

    Args:
        written: what was to be kept.
        dsn: where.
        backend: that process; None where a pooler hides it.
        closed: whether nobody wants to know any longer.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(DOUBT_SECONDS_MAX):
            while written and not closed():
                with suppress(StoreUnavailableError, *Broken):
                    connection = await connect(dsn)
                    try:
                        over = await _has_ended(connection, backend)
                        if await _found(connection, written[0]):
                            return True
                    finally:
                        connection.terminate()
                    if over:
                        return False
                await asyncio.sleep(0.1)
    return False


async def _found(connection: Connection, packed: Packed) -> bool:
    """Look for a batch by its place and its hash: all of the commit is there if it is."""
    hashes = await connection.fetchval(
        "select hashes from journal where team = $1 and last_seq = $2",
        packed.batch.team,
        packed.batch.last_seq,
    )
    return hashes == packed.batch.hashes


async def _has_ended(connection: Connection, backend: int | None) -> bool:
    """Whether a process of the server will certainly do nothing more.

    It is not stopped here: one that waits for a standby would then keep what the standby never got.
    A server that was promoted meanwhile has no such process either, and gets no more of the old one.
    """
    if backend is None:
        return False
    asked = "select not exists (select from pg_stat_activity where pid = $1)"
    return bool(await connection.fetchval(asked, backend))


async def to_the_end(future: "asyncio.Future[T]") -> T:
    """Wait until `future` is done even when cancelled meanwhile; then be cancelled.

    The driver bounds the wait. A commit that was given up could still be kept after its caller
    had looked for it.
    """
    cancelled = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:  # noqa: BLE001, S110  # it is the future's, which raises it below
            pass
    if cancelled is not None:
        raise cancelled from future.exception()
    return future.result()
