"""The processes of the demo: started, killed, started again, and all ended in the end."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from nodrop.model.errors import UnavailableError

READY_SECONDS_MAX: Final = 15.0
END_SECONDS_MAX: Final = 3.0


class Stage:
    """A relay and its agents, each a process of its own, in one home directory."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tickets = home / "tickets"
        self.url = ""
        self.sign_in = ""
        """A link that opens the dashboard once; empty where the relay has no dashboard."""
        self._processes: dict[str, Process] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End everything that was started, by its process id; the relay last: agents say goodbye."""
        relay = self._processes.pop("relay", None)
        agents = [self._processes.pop(name) for name in list(self._processes)]
        await asyncio.gather(*map(self._end, agents))
        if relay is not None:
            await self._end(relay)

    async def start_relay(self) -> int:
        """Start the relay, on the port it had before; return its process id once it serves."""
        port = self.url.rpartition(":")[2] or "0"
        process = await self._start("relay", "nodrop.cli", "up", "--json", "--port", port)
        assert process.stdout is not None, "a pipe"
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                told = await process.stdout.readline()
            served = msgspec.json.decode(told)
            self.url, self.sign_in = served["url"], served["open"] or ""
        except (TimeoutError, msgspec.MsgspecError) as error:
            raise UnavailableError(
                f"the relay did not start: {self._complaints('relay')}"
            ) from error
        return process.pid

    async def start_agent(self, name: str) -> int:
        """Start one of the agents of this package; return its process id."""
        return (await self._start(name, f"nodrop.cli.demo.{name}")).pid

    async def kill(self, name: str) -> int:
        """Kill a process as the kernel would when memory runs out; return its process id."""
        process = self._processes.pop(name)
        process.kill()
        await process.wait()
        return process.pid

    async def _start(self, name: str, module: str, *arguments: str) -> Process:
        with (self.home / f"{name}.log").open("ab") as complaints:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=DEVNULL,
                stdout=PIPE if name == "relay" else DEVNULL,
                stderr=complaints,
                env=self.environment(),
                cwd=self.home,
                start_new_session=True,  # Ctrl-C is ours to hear; we end them
            )
        self._processes[name] = process
        return process

    def environment(self) -> dict[str, str]:
        """Return an environment in which this relay is the only one there is."""
        inherited = {n: value for n, value in os.environ.items() if not n.startswith("NODROP_")}
        return inherited | {
            "NODROP_HOME": str(self.home),
            "NODROP_URL": self.url,
            "NODROP_DEMO_TICKETS": str(self.tickets),
        }

    def _complaints(self, name: str) -> str:
        log = self.home / f"{name}.log"
        return log.read_text(encoding="utf-8", errors="replace")[-2_000:].strip()

    async def _end(self, process: Process) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS_MAX):
                await process.wait()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
