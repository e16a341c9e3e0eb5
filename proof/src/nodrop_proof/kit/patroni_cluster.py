"""Two PostgreSQL servers under Patroni, and the etcd that they agree through, on loopback.

The programs are the system's: Debian's packages `patroni` and `etcd-server`. Times are shorter than
Patroni's own, so that a run is: a primary that is lost is replaced within seconds.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from nodrop.model.errors import NotInstalledError, UnavailableError
from nodrop_proof.kit.postgres_server import free_port

START_SECONDS_MAX: Final = 60.0
CHANGE_SECONDS_MAX: Final = 120.0
STOP_SECONDS_MAX: Final = 20.0
TTL_SECONDS: Final = 5
"""How long a primary that says nothing is waited for. Patroni's own default is 30."""
DEBIAN: Final = Path("/usr/lib/postgresql")


class PatroniCluster:
    """A primary and a synchronous standby; which of the two is which, they decide."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="nodrop-patroni-"))
        # PostgreSQL refuses to run as root; whoever is root can be somebody else.
        self._user = "nobody" if sys.platform != "win32" and os.geteuid() == 0 else None
        self._etcd_port = free_port()
        self._etcd: subprocess.Popen[bytes] | None = None
        self._members = [_Member(self._folder, name, self._user) for name in ("a", "b")]
        self._dead: _Member | None = None

    @property
    def address(self) -> str:
        """Both of them; whoever connects takes the one that takes writes."""
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in self._members)
        return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(self._start)
            await self.recover()
        except BaseException:
            await asyncio.to_thread(self._end)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self._end)

    async def fail_over(self) -> None:
        """Kill the primary and its Patroni, as when their machine is lost; the other takes over."""
        [primary] = [member for member in self._members if member.is_primary()]
        [other] = [member for member in self._members if member is not primary]
        self._dead = primary
        await asyncio.to_thread(primary.kill)
        await asyncio.to_thread(_until, other.is_primary, "new primary", self._log)

    async def recover(self) -> None:
        """Return when there is a standby again, and commits wait for it."""
        if self._dead is not None:
            dead, self._dead = self._dead, None
            await asyncio.to_thread(dead.start, self._etcd_port)
        await asyncio.to_thread(_until, self._is_whole, "a synchronous standby", self._log)

    def _is_whole(self) -> bool:
        roles = {m["role"]: m["state"] for m in self._told()}
        return (
            roles.get("leader") == "running"
            and roles.get("sync_standby") in {"running", "streaming"}
            and sum(member.is_primary() for member in self._members) == 1
        )

    def _told(self) -> list[dict[str, Any]]:
        for member in self._members:
            told = member.ask("cluster")
            if told:
                return json.loads(told)["members"]
        return []

    def _start(self) -> None:
        found = [name for name in ("etcd", "patroni") if shutil.which(name) is None]
        if found:
            raise NotInstalledError(
                f"{' and '.join(found)} cannot be found",
                next_step="Install them: apt-get install patroni etcd-server",
            )
        self._folder.chmod(0o755)
        peers = f"http://127.0.0.1:{free_port()}"
        clients = f"http://127.0.0.1:{self._etcd_port}"
        data = self._folder / "etcd"
        _made(data, self._user)
        self._etcd = _run(
            [
                *("etcd", "--data-dir", str(data), "--name", "etcd"),
                *("--listen-client-urls", clients, "--advertise-client-urls", clients),
                *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
                *("--initial-cluster", f"etcd={peers}", "--enable-v2=false"),
            ],
            log=self._folder / "etcd.log",
            user=self._user,
        )
        _until(lambda: _answers(f"{clients}/health") is not None, "etcd", self._log)
        for member in self._members:
            member.start(self._etcd_port)

    def _end(self) -> None:
        for member in self._members:
            member.kill()
        if self._etcd is not None:
            _killed(self._etcd)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _log(self) -> str:
        logs = sorted(self._folder.glob("*.log"))
        return "\n".join(log.read_text(errors="replace")[-1_000:] for log in logs)


class _Member:
    """One server with its Patroni."""

    def __init__(self, folder: Path, name: str, user: str | None) -> None:
        self.port = free_port()
        self._rest = free_port()
        self._name = name
        self._user = user
        self._folder = folder / name
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, etcd_port: int) -> None:
        if not self._folder.exists():
            _made(self._folder, self._user)
            settings = self._folder / "patroni.json"  # which is YAML too
            settings.write_text(json.dumps(self._settings(etcd_port)))
        command = ["patroni", str(self._folder / "patroni.json")]
        self._process = _run(command, log=self._log, user=self._user)

    def kill(self) -> None:
        if self._process is not None:
            _killed(self._process)
        self._process = None
        with suppress(OSError, ValueError, IndexError):
            pid = int((self._folder / "data" / "postmaster.pid").read_text().splitlines()[0])
            os.kill(pid, signal.SIGKILL)

    def is_primary(self) -> bool:
        """Whether it is the leader, as it says itself."""
        return self._process is not None and self.ask("primary") is not None

    def ask(self, page: str) -> str | None:
        return _answers(f"http://127.0.0.1:{self._rest}/{page}")

    def _settings(self, etcd_port: int) -> dict[str, Any]:
        return {
            "scope": "nodrop",
            "name": self._name,
            "restapi": {
                "listen": f"127.0.0.1:{self._rest}",
                "connect_address": f"127.0.0.1:{self._rest}",
            },
            "etcd3": {"host": f"127.0.0.1:{etcd_port}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_SECONDS,
                    "loop_wait": 1,
                    "retry_timeout": 3,
                    "synchronous_mode": True,
                    "postgresql": {
                        "use_pg_rewind": True,
                        "parameters": {"wal_log_hints": "on", "max_connections": 100},
                    },
                },
                "initdb": [{"encoding": "UTF8"}, {"auth": "trust"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self._folder / "data"),
                "bin_dir": str(_programs()),
                "pgpass": str(self._folder / "pgpass"),
                "authentication": {
                    "superuser": {"username": "postgres", "password": "p"},
                    "replication": {"username": "replicator", "password": "p"},
                },
                "parameters": {"unix_socket_directories": str(self._folder)},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
                "remove_data_directory_on_rewind_failure": True,
                "remove_data_directory_on_diverged_timelines": True,
            },
        }


def _programs() -> Path:
    """Return the folder with the system's PostgreSQL, the latest of those that there are."""
    found = sorted(DEBIAN.glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if found:
        return found[-1]
    path = shutil.which("postgres")
    if path is None:
        raise NotInstalledError(
            "PostgreSQL cannot be found", next_step="Install it: apt-get install postgresql"
        )
    return Path(path).parent


def _made(folder: Path, user: str | None) -> None:
    folder.mkdir(mode=0o700)
    if user is not None:
        shutil.chown(folder, user)


def _run(command: list[str], *, log: Path, user: str | None) -> subprocess.Popen[bytes]:
    with log.open("ab") as words:
        return subprocess.Popen(  # noqa: S603  # programs of the system
            command,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=words,
            user=user,
            cwd=log.parent,
            start_new_session=True,
        )


def _killed(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(STOP_SECONDS_MAX)


def _answers(url: str) -> str | None:
    """Return what is said there, if it is said with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  # of ours, on loopback
            return answer.read().decode()
    except (OSError, urllib.error.URLError):
        return None


def _until(holds: Callable[[], bool], what: str, log: Callable[[], str]) -> None:
    until = time.monotonic() + CHANGE_SECONDS_MAX
    while not holds():
        if time.monotonic() > until:
            raise UnavailableError(f"there was no {what}: {log()}")
        time.sleep(0.1)  # other programs change: there is nothing to be woken by
