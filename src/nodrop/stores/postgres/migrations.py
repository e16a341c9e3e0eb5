"""The schema's versions: numbered SQL files, each applied once, in one transaction.

A file that was released is never edited; a change is a new file. Nodes of two versions serve one
database while they are replaced one after the other, so a file that the version before cannot live
with says so in its first line, `-- readable from N`, and is released one version after the nodes
that can.
"""

import re
from importlib.resources import files
from typing import Final

from nodrop.core.errors import StoreUnavailableError
from nodrop.stores.postgres.driver import Connection

_STEPS: Final = sorted(
    (file for file in files("nodrop.stores.postgres").joinpath("schema").iterdir()),
    key=lambda file: file.name,
)
VERSION: Final = len(_STEPS)
"""Of the schema this code reads and writes."""
_LOCK: Final = int.from_bytes(b"Ndrp")
"""Held while the schema changes: of many nodes that start at once, one changes it."""
_READABLE: Final = re.compile(r"-- readable from (\d+)\n")


async def migrate(connection: Connection, *, steps_max: int = VERSION) -> None:
    """Bring the schema up to `VERSION`, step by step; one that is newer stays as it is.

    `steps_max` is for tests, which start nodes of an older version.

    Raises:
        StoreUnavailableError: the database is a later Nodrop's, which this one cannot serve.
    """
    async with connection.transaction():
        await connection.execute("select pg_advisory_xact_lock($1)", _LOCK)
        await connection.execute(
            "create table if not exists nodrop_schema"
            " (version bigint primary key, readable_from bigint not null)"
        )
        found = await connection.fetchrow(
            "select coalesce(max(version), 0), coalesce(max(readable_from), 1) from nodrop_schema"
        )
        assert found is not None, "an aggregate has one row"
        version, readable_from = found[0], found[1]
        if readable_from > VERSION:
            raise StoreUnavailableError(
                f"the database has schema {version}, this Nodrop knows {VERSION}",
                next_step="Serve it with the version of Nodrop that wrote it, or a later one.",
            )
        for number, step in enumerate(_STEPS[version:steps_max], start=version + 1):
            text = step.read_text(encoding="utf-8")
            readable = _READABLE.match(text)
            await connection.execute(text)
            await connection.execute(
                "insert into nodrop_schema values ($1, $2)",
                number,
                int(readable[1]) if readable else 1,
            )
