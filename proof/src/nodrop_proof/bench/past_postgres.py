"""A past on PostgreSQL: that of a file, copied as `nodrop migrate` copies it, then vacuumed.

What a server does in its own time after so many inserts is done here before anything is measured.
"""

import shutil
from pathlib import Path
from typing import Final

from nodrop.log.postgres import PostgresStore
from nodrop.log.postgres.connection import connect
from nodrop.log.sqlite import SQLiteTables
from nodrop_proof.bench import postgres
from nodrop_proof.bench.past import DATABASE

_MADE: Final = "filled-postgres"
_HURRIED: Final = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "maintenance_work_mem": "512MB",
}
"""While the past is written. Measured is what comes after, on a server that syncs."""


async def filled(folder: Path) -> None:
    """Copy the past of the file in `folder` to a server in it, unless that was done before."""
    if (folder / _MADE).exists():
        return
    shutil.rmtree(folder / "postgres", ignore_errors=True)  # of a copy that was not finished
    async with (
        postgres.server(folder, settings=_HURRIED) as address,
        await PostgresStore.open(address) as store,
    ):
        with SQLiteTables(folder / "home" / DATABASE) as tables:
            await store.take_in(tables)
        connection = await connect(address, answer_seconds_max=None)
        try:
            await connection.execute("set statement_timeout = 0")
            await connection.execute("vacuum (freeze, analyze)")
            await connection.execute("checkpoint")
        finally:
            connection.terminate()
    (folder / _MADE).touch()


def megabytes(folder: Path) -> int:
    """Return how much of the disk the server in `folder` takes."""
    files = (file for file in (folder / "postgres").rglob("*") if file.is_file())
    return sum(file.stat().st_size for file in files) // 1_000_000
