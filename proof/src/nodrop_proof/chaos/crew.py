"""Worker processes, as whoever kills them sees them."""

import asyncio
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from nodrop_proof.chaos import worker
from nodrop_proof.chaos.relay_process import ServedRelay, environment

HEARTBEAT_SECONDS: Final = 0.2
"""Short, so that leases are: six tenths of a second once acknowledged."""
STALL_SECONDS: Final = (0.4, 2.0)
"""Some wake in time, some while another worker has their work, some when it is done."""


class Crew:
    """A number of workers, each a process of its own."""

    def __init__(
        self,
        relay: ServedRelay,
        record: Path,
        *,
        size: int = 0,
        module: str = worker.__name__,
        roles: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Describe them; entering starts them.

        Args:
            relay: whom they work for.
            record: what they write down.
            size: how many, where all do the same.
            module: what each of them runs.
            roles: the further arguments of each, where they differ.
        """
        self.kills = 0
        self.stalls = 0
        self._workers = [
            WorkerProcess(
                relay,
                record=record,
                heartbeat_seconds=HEARTBEAT_SECONDS,
                module=module,
                arguments=role,
            )
            for role in roles or [dict[str, str]()] * size
        ]
        self._stalled: dict[WorkerProcess, asyncio.Task[None]] = {}

    async def __aenter__(self) -> Self:
        try:
            for each in self._workers:
                await each.start()
        except BaseException:
            await self._end()  # nobody leaves what was never entered
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.recover()
        await self._end()

    async def kill_one(self, chance: random.Random) -> None:
        """Kill one of them, and start another in its place."""
        self.kills += 1
        unlucky = chance.choice(self._awake())
        await unlucky.kill()
        await unlucky.start()

    def stall_one(self, chance: random.Random) -> None:
        """Let one of them stand still for about its lease, unless all others do already."""
        awake = self._awake()
        if len(awake) > 1:
            self.stalls += 1
            stalled = chance.choice(awake)
            stalled.stall()
            seconds = chance.uniform(*STALL_SECONDS)
            self._stalled[stalled] = asyncio.create_task(self._wake(stalled, seconds))

    async def recover(self) -> None:
        """Return when nobody stands still any more."""
        await asyncio.gather(*self._stalled.values())

    async def _end(self) -> None:
        for each in self._workers:
            await each.kill()

    def _awake(self) -> list["WorkerProcess"]:
        return [each for each in self._workers if each not in self._stalled]

    async def _wake(self, stalled: "WorkerProcess", seconds: float) -> None:
        try:
            await asyncio.sleep(seconds)
        finally:
            stalled.go_on()
            del self._stalled[stalled]


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(
        self,
        relay: ServedRelay,
        *,
        record: Path,
        heartbeat_seconds: float,
        module: str = worker.__name__,
        arguments: Mapping[str, str] | None = None,
    ) -> None:
        self._module = module
        self._arguments = {
            "--url": relay.url,
            "--record": str(record),
            "--heartbeat-seconds": str(heartbeat_seconds),
            **(arguments or {}),
        }
        self._home = relay.home
        self._process: Process | None = None

    async def start(self) -> None:
        """Start it. It connects by itself, and says so to nobody but the relay."""
        arguments = [part for option in self._arguments.items() for part in option]
        with (self._home / "workers.log").open("ab") as complaints:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module, *arguments),
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=complaints,
                env=environment(self._home),
                cwd=self._home,
                start_new_session=True,  # Ctrl-C is for whoever started us
            )

    async def kill(self) -> None:
        """Kill it as the kernel would when memory runs out."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def stall(self) -> None:
        """Let it stand still."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on, as if nothing had been."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
