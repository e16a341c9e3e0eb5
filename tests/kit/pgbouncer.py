"""A PgBouncer of one's own before a PostgreSQL server, in transaction mode, on loopback.

The program is the system's: Debian's package `pgbouncer`. It refuses to run as root; whoever is root
can be somebody else.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from nodrop.model.errors import NotInstalledError
from nodrop_proof.kit.postgres_server import PostgresServer, free_port

SERVER_CONNECTIONS: Final = 3
"""Few, so that clients share them and each transaction may be on another one."""
START_SECONDS_MAX: Final = 20.0
STOP_SECONDS_MAX: Final = 10.0


class PgBouncer:
    """A pooler before `server`, in a folder of its own that goes with it."""

    def __init__(self, server: PostgresServer) -> None:
        """Describe it; entering starts it."""
        self.port = free_port()
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="nodrop-pgbouncer-"))
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, *, direct: bool) -> str:
        """Return where the database is behind it, with or without the way past it."""
        said = f"direct=127.0.0.1:{self._server.port}" if direct else "pooled=1"
        return f"{self._server.address(port=self.port)}?{said}"

    def __enter__(self) -> Self:
        program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            raise NotInstalledError(
                "pgbouncer cannot be found", next_step="Install it: apt-get install pgbouncer"
            )
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(_SETTINGS.format(to=self._server.port, port=self.port))
        user = "nobody" if sys.platform != "win32" and os.geteuid() == 0 else None
        self._folder.chmod(0o755)
        with (self._folder / "pgbouncer.log").open("ab") as log:
            self._process = subprocess.Popen(  # a program of the system
                [program, str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=user,
                cwd=self._folder,
            )
        until = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                said = (self._folder / "pgbouncer.log").read_text()[-2_000:]
                self.__exit__()
                raise RuntimeError(f"PgBouncer did not start: {said}")
            time.sleep(0.05)  # it does not tell when it is ready
        return self

    def __exit__(self, *exc_info: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()  # at once: its clients find out
            process.wait(STOP_SECONDS_MAX)
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False


_SETTINGS: Final = f"""
[databases]
* = host=127.0.0.1 port={{to}} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {{port}}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {SERVER_CONNECTIONS}
max_client_conn = 500
"""
