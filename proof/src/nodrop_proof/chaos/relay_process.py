"""A relay as a user runs it: a process of its own, killed and started again on the same home."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from nodrop.client.auth.credentials import CredentialsFile
from nodrop.client.auth.tokens import OPERATOR, FixedToken
from nodrop.client.client import Client
from nodrop.client.transports.http import HttpTransport
from nodrop.model.errors import UnavailableError

READY_SECONDS_MAX: Final = 60.0
END_SECONDS_MAX: Final = 20.0


def environment(home: Path) -> dict[str, str]:
    """Return an environment in which the relay at `home` is the only one there is."""
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
    return inherited | {"NODROP_HOME": str(home)}


class ServedRelay:
    """A relay that somebody serves."""

    def __init__(self, home: Path, url: str) -> None:
        self.home = home
        self.url = url

    @asynccontextmanager
    async def operator(self) -> AsyncGenerator[Client]:
        """Connect as its operator, over HTTP: one request, one answer."""
        token = CredentialsFile(self.home).read().operator
        transport = HttpTransport(f"{self.url}/v1", FixedToken(token), first_seconds_max=None)
        try:
            yield Client(transport, agent=OPERATOR)
        finally:
            await transport.close()


class RelayProcess(ServedRelay):
    """`nodrop up` on one home directory, on one port from the first start on."""

    def __init__(
        self,
        home: Path,
        *,
        log: Path | None = None,
        store: str | None = None,
        source: Path | None = None,
        program: str = "nodrop.cli",
    ) -> None:
        """Describe it.

        Args:
            home: its home directory.
            log: where it complains, if not there.
            store: the address of the database that it serves, if that is not there either.
            source: the folder with the code that it runs, if that is not ours.
            program: the module that is run, if that is not the command line.
        """
        super().__init__(home, url="")
        self._store = ("--store", store) if store else ()
        self._log = log or home / "relay.log"
        self._source = {"PYTHONPATH": str(source)} if source else {}
        self._program = (sys.executable, "-m", program)
        self._process: Process | None = None
        self._starts = 0

    @property
    def pid(self) -> int:
        """The id of the process that serves now."""
        assert self._process is not None, "the relay is down"
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process that was started is gone."""
        return self._process is None or self._process.returncode is not None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()  # nobody leaves what was never entered
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> float:
        """Start it; return how many milliseconds passed until it had carried out a command."""
        began = time.monotonic()
        process = await self.spawn()
        told = b""
        assert process.stdout is not None, "a pipe"
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                told = await process.stdout.readline()
                self.url = msgspec.json.decode(told, type=_Told).url
                await self._carry_out_something()
        except (TimeoutError, msgspec.MsgspecError) as error:
            complaints = told.decode() + self._log.read_text(encoding="utf-8", errors="replace")
            raise UnavailableError(f"the relay did not start: {complaints[-2_000:]}") from error
        return (time.monotonic() - began) * 1_000

    async def spawn(self) -> Process:
        """Start the process and return at once; it may not serve yet."""
        self.home.mkdir(parents=True, exist_ok=True)
        port = self.url.rpartition(":")[2] or "0"
        with self._log.open("ab") as complaints:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._program, "up", "--json", "--port", port, *self._store),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=complaints,
                env=environment(self.home) | self._source,
                cwd=self.home,
                start_new_session=True,  # Ctrl-C is ours to hear; we end it
            )
        return self._process

    async def kill(self) -> None:
        """Kill it as the kernel would when memory runs out."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def stop(self) -> None:
        """Ask it to end, and kill it if it does not."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS_MAX):
                    await self._process.wait()
        await self.kill()

    async def _carry_out_something(self) -> None:
        """Have it commit something: a relay that only listens does not serve yet."""
        self._starts += 1
        async with self.operator() as me:
            await me.note(f"start {self._starts}")


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What `nodrop up --json` says once it listens."""

    url: str


def rss_mb(pid: int) -> float | None:
    """Return the memory that a process has in use, in MiB, where the system shows it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return None
    kib = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")), None)
    return None if kib is None else int(kib) / 1_024
