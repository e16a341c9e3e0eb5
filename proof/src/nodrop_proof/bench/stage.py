"""The processes of one system under test, as whoever measures them sees them."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from nodrop.model.errors import UnavailableError
from nodrop_proof.bench import part
from nodrop_proof.bench.driving import DRAIN_SECONDS_MAX, FIRST_SECONDS_MAX, Measure, Window
from nodrop_proof.bench.part import Order
from nodrop_proof.bench.system import Load, State, load, state

READY_SECONDS_MAX: Final = 90.0
END_SECONDS_MAX: Final = 30.0
_SLACK_SECONDS: Final = 60.0

T = TypeVar("T")


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """An interpreter and what is installed beside it."""

    python: str

    async def state(self, system: str) -> State:
        """Return whether a system can run here."""
        if self.python == sys.executable:
            return state(load(system).ABOUT)
        order = Order(system=system)
        async with self.process(part.STATE, order, folder=Path.cwd(), log=os.devnull) as process:
            try:
                return await _told(process, State, READY_SECONDS_MAX)
            except UnavailableError as error:
                raise UnavailableError(
                    f"Nodrop does not run with {self.python}",
                    next_step="`make bench` sets up an environment for the peers.",
                ) from error

    @asynccontextmanager
    async def process(
        self, role: str, order: Order, *, folder: Path, log: str
    ) -> AsyncGenerator[Process]:
        """Run one part of a system. It ends when its input does, or is killed."""
        with open(log, "ab") as words:  # noqa: ASYNC230, PTH123  # at once; may be the null device
            process = await asyncio.create_subprocess_exec(
                *(self.python, "-m", part.__name__, role, msgspec.json.encode(order).decode()),
                stdin=PIPE,
                stdout=PIPE,
                stderr=words,
                cwd=folder,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is ours to hear; we end it
            )
        try:
            yield process
        finally:
            assert process.stdin is not None, "a pipe"
            process.stdin.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS_MAX):
                    await process.wait()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


OURS: Final = Environment(python=sys.executable)


class Stage:
    """A system whose server and worker run."""

    def __init__(
        self, environment: Environment, order: Order, folder: Path, others: tuple[int, ...]
    ) -> None:
        self._environment = environment
        self._order = order
        self._folder = folder
        self._others = others

    async def measure(self, load: Load, window: Window) -> Measure:
        """Have a requester process repeat the cycle under `load`."""
        order = msgspec.structs.replace(self._order, load=load, window=window, others=self._others)
        limit = (
            FIRST_SECONDS_MAX
            + window.warm_up_seconds
            + window.seconds
            + DRAIN_SECONDS_MAX
            + _SLACK_SECONDS
        )
        log = self._folder / "requester.log"
        async with self._environment.process(
            part.REQUESTER, order, folder=self._folder, log=str(log)
        ) as process:
            try:
                return await _told(process, Measure, limit)
            except UnavailableError:
                return Measure(failure=f"the requester ended: {_last_words(log)}")


@asynccontextmanager
async def staged(system: str, *, environment: Environment, folder: Path) -> AsyncGenerator[Stage]:
    """Run the server and the worker of a system, with everything it keeps in `folder`.

    Raises:
        UnavailableError: the server did not start; says why.
    """
    async with AsyncExitStack() as stack:
        parts: list[int] = []

        async def start(role: str, order: Order) -> Process:
            log = str(folder / f"{role}.log")
            starting = environment.process(role, order, folder=folder, log=log)
            process = await stack.enter_async_context(starting)
            parts.append(process.pid)
            return process

        order = Order(system=system, folder=str(folder))
        server = await start(part.SERVER, order)
        try:
            address = await _told(server, str, READY_SECONDS_MAX)
        except UnavailableError as error:
            words = _last_words(folder / f"{part.SERVER}.log")
            raise UnavailableError(f"{system} did not start: {words}") from error
        order = msgspec.structs.replace(order, address=address)
        await start(part.WORKER, order)
        yield Stage(environment, order, folder, tuple(parts))


async def _told(process: Process, kind: type[T], seconds_max: float) -> T:
    """Return the one line that a part says."""
    assert process.stdout is not None, "a pipe"
    try:
        async with asyncio.timeout(seconds_max):
            return msgspec.json.decode(await process.stdout.readline(), type=kind)
    except (TimeoutError, msgspec.MsgspecError) as error:
        raise UnavailableError("a part of the benchmark said nothing") from error


def _last_words(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return " / ".join(lines[-3:])[-300:] or "without a word"


def _environment() -> dict[str, Any]:
    return {name: v for name, v in os.environ.items() if not name.startswith("NODROP_")}
