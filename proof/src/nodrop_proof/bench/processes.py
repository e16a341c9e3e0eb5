"""Servers that a system's own process starts: on a free port, ended with whoever started them."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

READY_SECONDS_MAX: Final = 60.0
END_SECONDS_MAX: Final = 15.0
_LOOK_SECONDS: Final = 0.02


def free_port() -> int:
    """Return a port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(*command: str | Path, log: Path, user: str | None = None) -> None:
    """Run a program to its end.

    Raises:
        RuntimeError: it failed; says what it said.
    """
    with _started(command, log=log, user=user) as process:
        if process.wait() != 0:
            raise RuntimeError(log.read_text(encoding="utf-8", errors="replace"))


@asynccontextmanager
async def program(
    *command: str | Path,
    log: Path,
    user: str | None = None,
    environment: Mapping[str, str] | None = None,
    end_signal: int = signal.SIGTERM,
) -> AsyncGenerator[int]:
    """Run a program, what it says goes to `log`; yields its process id."""
    with _started(command, log=log, user=user, environment=environment) as process:
        try:
            yield process.pid
        finally:
            await asyncio.to_thread(_end, process, end_signal)


def _started(
    command: tuple[str | Path, ...],
    *,
    log: Path,
    user: str | None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    with log.open("ab") as words:
        # Not asyncio's: uvloop cannot start a process as another user.
        return subprocess.Popen(  # noqa: S603  # spelled out by the systems
            command,
            stdin=subprocess.DEVNULL,
            stdout=words,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            user=user,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes], end_signal: int) -> None:
    process.send_signal(end_signal)
    try:
        process.wait(END_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def listening(port: int) -> None:
    """Return when somebody listens on the port."""

    async def connects() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    await until(connects)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return when something holds that another process brings about."""
    async with asyncio.timeout(READY_SECONDS_MAX):
        while not await holds():  # noqa: ASYNC110  # it is another process's doing
            await asyncio.sleep(_LOOK_SECONDS)
