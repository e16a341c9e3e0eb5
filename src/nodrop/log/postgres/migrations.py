"""The schema's versions: numbered SQL files, each applied once, in a transaction of its own.

A file that was released is never edited; a change is a new file. Nodes of two versions serve one
database while they are replaced one after the other, so a file that the version before cannot live
with says so in its first line, `-- readable from N`, and is released one version after the nodes
that can. It waits for the last node that cannot.

What a file does must be done at once, because nodes wait for it: no more than `LOCK_SECONDS_MAX` for
the locks that it takes, and no longer than a statement may take.
"""

import asyncio
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Final

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none

from nodrop.log.postgres.driver import Connection
from nodrop.log.postgres.place import GONE_AFTER_MS, NOW
from nodrop.model.errors import SchemaInUseError, SchemaTooNewError, StoreUnavailableError

STEPS: Final = tuple(
    file.read_text(encoding="utf-8")
    for file in sorted(
        files("nodrop.log.postgres").joinpath("schema").iterdir(), key=lambda file: file.name
    )
)
BEFORE: Final = 8
"""Versions that were never released and have no step that leads on from them."""
VERSION: Final = BEFORE + len(STEPS)
"""Of the schema this code reads and writes."""
LOCK_SECONDS_MAX: Final = 1.0
"""How long a step waits for its locks. Whoever else wants them waits behind it."""
TRIES_MAX: Final = 20

_LOCK: Final = int.from_bytes(b"Ndrp")
"""Held while the schema changes: of many nodes that start at once, one changes it."""
_READABLE: Final = re.compile(r"-- readable from (\d+)\n")


async def migrate(connection: Connection, *, steps: Sequence[str] = STEPS) -> None:
    """Bring the schema up to the last of `steps`, one by one; one that is newer stays as it is.

    Raises:
        SchemaTooNewError: the database is a later Nodrop's, which this one cannot serve.
        SchemaInUseError: a step is due that a node which serves now could not live with.
        StoreUnavailableError: the locks that a step needs were not to be had, or the database is
            from before the first release.
    """
    for _ in range(TRIES_MAX):
        try:
            while await _step(connection, steps):
                pass
        except asyncpg.LockNotAvailableError:
            await asyncio.sleep(LOCK_SECONDS_MAX)  # let those go first who waited behind it
        else:
            return
    raise StoreUnavailableError("the schema cannot be changed: its tables are locked all the time")


async def readable_from(connection: Connection) -> int:
    """Return the oldest version of the schema whose nodes may serve the database."""
    return await connection.fetchval("select max(readable_from) from nodrop_schema")


def require(readable: int, version: int = VERSION) -> None:
    """Refuse to serve what a node that speaks `version` would misread.

    Raises:
        SchemaTooNewError: that is so.
    """
    if readable > version:
        raise SchemaTooNewError(f"the database is for schema {readable}, this node has {version}")


async def _step(connection: Connection, steps: Sequence[str]) -> bool:
    """Apply the step that is next; return whether there was one."""
    async with connection.transaction():
        await connection.execute(f"set local lock_timeout = {round(LOCK_SECONDS_MAX * 1_000)}")
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(
            "create table if not exists nodrop_schema"
            " (version bigint primary key, readable_from bigint not null)"
        )
        found = await connection.fetchrow(
            "select coalesce(max(version), 0), coalesce(max(readable_from), 1) from nodrop_schema"
        )
        assert found is not None, "an aggregate has one row"
        version: int = found[0]
        readable: int = found[1]
        require(readable, BEFORE + len(steps))
        if 0 < version <= BEFORE:
            raise StoreUnavailableError(
                f"the database has schema {version}, from before the first release",
                next_step="Name a new database. The Nodrop that wrote this one can still export it "
                "(nodrop export).",
            )
        if version >= BEFORE + len(steps):
            return False
        done = max(version, BEFORE)
        text = steps[done - BEFORE]
        said = _READABLE.match(text)
        if said and version:
            await _require_nobody_before(connection, int(said[1]))
        await connection.execute(text)
        await connection.execute(
            "insert into nodrop_schema (version, readable_from) values ($1, $2)",
            done + 1,
            int(said[1]) if said else 1,
        )
        return True


async def _require_nobody_before(connection: Connection, version: int) -> None:
    """Refuse a step while nodes serve that could not live with it."""
    nodes = await connection.fetch(
        f"select id, schema from node where schema < $1 and seen_at > {NOW} - $2 order by id",  # noqa: S608  # a constant
        version,
        GONE_AFTER_MS,
    )
    if nodes:
        told = ", ".join(f"{node} (schema {schema})" for node, schema in nodes)
        raise SchemaInUseError(f"nodes that are too old for the next schema still serve: {told}")
