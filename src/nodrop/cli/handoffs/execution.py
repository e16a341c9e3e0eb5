"""One run of somebody's command for one handoff: JSON in, result out, and no process left behind.

The contract of `nodrop work NAME --exec 'CMD'`: the delivery comes on stdin as JSON and its ids in
the environment; stdout is the result (JSON if the relay takes it, else text); exit 75 means try
again, another non-zero exit means it failed, and the last lines of stderr say why.
"""

import asyncio
import os
import signal
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, Self

import msgspec

from nodrop.cli.values import parse_json
from nodrop.client.endings import Fail
from nodrop.client.tracing import current_traceparent
from nodrop.model.errors import CallerError, UnavailableError
from nodrop.model.limits import DEFAULT, SECOND
from nodrop.protocol.decoding import decode_strict, encode_strict
from nodrop.protocol.errors import EXIT_TRY_AGAIN
from nodrop.protocol.text import spell_duration
from nodrop.protocol.times import parse_duration

GRACE_SECONDS: Final = 5.0
"""Between SIGTERM and SIGKILL for a command whose work is no longer wanted."""
DRAIN_SECONDS: Final = 2.0
"""How long output may still come after the command ended, before the pipes are let go."""
UPDATES_PER_PROMISE: Final = 3
"""An update this often within `update_every`: early enough that a slow one still keeps it."""
UPDATE_SECONDS_MIN: Final = 0.2

_REASON_BYTES: Final = 2_000
"""Of stderr, from its end: what a failure is explained with."""


class Delivery(Protocol):
    """What a run needs of the SDK's task."""

    @property
    def view(self) -> Mapping[str, Any]:
        """The handoff."""
        ...

    @property
    def attempt(self) -> int:
        """The number of this delivery."""
        ...

    @property
    def last_checkpoint(self) -> Any:
        """What an earlier attempt had learnt."""
        ...

    @property
    def steps(self) -> Mapping[str, Any]:
        """Recorded steps."""
        ...

    @property
    def answers(self) -> Mapping[str, Any]:
        """Answers so far."""
        ...

    async def update(self, status: str | None = None) -> None:
        """Say how it goes."""
        ...


GIVEN: Final = {
    "NODROP_HANDOFF_ID": "id of the handoff",
    "NODROP_REF": "what people call it: its sender and key, or its id",
    "NODROP_CORRELATION_ID": "id of its chain",
    "NODROP_ATTEMPT": "which delivery this is; `nodrop update`, `done` and so on mean this one",
    "NODROP_AGENT": "the agent that the command works as",
    "NODROP_URL": "address of the relay",
    "NODROP_HOME": "directory of the credentials",
    "TRACEPARENT": "span of the handoff, for tools that trace",
}
"""The variables of a command that works as an agent. `docs/configuration.md` is made from this."""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """How a command is run."""

    command: str
    agent: str
    url: str
    home: str
    timeout_seconds: float | None = None
    grace_seconds: float = GRACE_SECONDS
    environment: Mapping[str, str]
    now: Callable[[], float] = time.monotonic

    async def run(self, task: Delivery) -> Any:
        """Run the command for a delivery and return its result.

        Raises:
            Fail: the command failed, ran too long or printed too much.
        """
        try:
            async with (
                asyncio.timeout(self.timeout_seconds),
                _Pipe() as out,
                _Pipe() as err,
                self._process(task, out, err) as process,
            ):
                return await self._talk(process, task, out, err)
        except TimeoutError:
            assert self.timeout_seconds is not None, "nothing else runs out"
            length = spell_duration(round(self.timeout_seconds * SECOND))
            reason = f"the command ran longer than {length}"
            raise Fail(reason, code="timed_out", retryable=True) from None

    @asynccontextmanager
    async def _process(self, task: Delivery, out: "_Pipe", err: "_Pipe") -> AsyncGenerator[Process]:
        """Start the command in a process group of its own; leave nothing of the group behind."""
        with tempfile.TemporaryFile() as delivery:
            delivery.write(_encoded(task))
            delivery.seek(0)
            process = await asyncio.create_subprocess_shell(
                self.command,
                stdin=delivery,
                stdout=out.give_away(),
                stderr=err.give_away(),
                start_new_session=True,
                env={**self.environment, **self._ids(task)},
            )
        out.given_away()
        err.given_away()
        try:
            yield process
        finally:
            await _end(process, self.grace_seconds)

    def _ids(self, task: Delivery) -> dict[str, str]:
        """Return the variables that a command is given; `GIVEN` says what each is."""
        return {
            "NODROP_HANDOFF_ID": task.view["id"],
            "NODROP_ATTEMPT": str(task.attempt),
            "NODROP_REF": task.view["ref"],
            "NODROP_CORRELATION_ID": task.view["correlation_id"],
            "NODROP_AGENT": self.agent,
            "NODROP_URL": self.url,
            "NODROP_HOME": self.home,
            # What tools that trace look for: work on it is part of the handoff's trace.
            "TRACEPARENT": current_traceparent() or task.view.get("traceparent") or "",
        }

    async def _talk(self, process: Process, task: Delivery, out: "_Pipe", err: "_Pipe") -> Any:
        said, complaints = _Kept(DEFAULT.body_bytes_max), _Tail()
        try:
            async with asyncio.TaskGroup() as group:
                promise = group.create_task(self._keep_promise(task, complaints))
                reading = [
                    group.create_task(said.read(out.reader)),
                    group.create_task(complaints.read(err.reader)),
                ]
                code = await process.wait()
                promise.cancel()
                _signal_group(process, signal.SIGKILL)  # what it left running holds the pipes
                _, late = await asyncio.wait(reading, timeout=DRAIN_SECONDS)
                for one in late:
                    one.cancel()
        except ExceptionGroup as several:
            # Too much output, or the delivery is somebody else's now: one is reason enough.
            raise several.exceptions[0] from None
        return _result(code, said.text(), complaints.text())

    async def _keep_promise(self, task: Delivery, complaints: "_Tail") -> None:
        """Report well before each report is due; the command's last words say how it goes."""
        began = self.now()
        every = parse_duration(task.view["update_every"]) / SECOND / UPDATES_PER_PROMISE
        while True:
            await asyncio.sleep(max(every, UPDATE_SECONDS_MIN))
            length = spell_duration(round((self.now() - began) * SECOND))
            last = complaints.text().rpartition("\n")[2]
            # A relay that cannot be told now is told next time; the work goes on.
            with suppress(UnavailableError):
                await task.update(f"running for {length}" + (f": {last}" if last else ""))


def _encoded(task: Delivery) -> bytes:
    return msgspec.json.encode(
        {
            "handoff": task.view,
            "attempt": task.attempt,
            "checkpoint": task.last_checkpoint,
            "steps": task.steps,
            "answers": task.answers,
        }
    )


def _result(code: int, said: str, complaints: str) -> Any:
    if code == 0:
        return _value(said) if said else None
    how = f"exit {code}" if code > 0 else _signal_name(-code)
    raise Fail(complaints or how, code="command_failed", retryable=code == EXIT_TRY_AGAIN)


def _value(said: str) -> Any:
    """Return what a command printed: JSON that the relay takes, else text, such as a long number."""
    try:
        value = parse_json(said)
        decode_strict(encode_strict({"result": value}), dict, DEFAULT)
    except (ValueError, CallerError):
        return said
    return value


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those for real time have no names
        return f"signal {number}"


class _Pipe:
    """What a command writes, read here.

    Not `asyncio.subprocess.PIPE`: whoever inherits that one can keep it open for ever, and waiting
    for the command would then mean waiting for them too.
    """

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self._read_end, self._write_end = os.pipe()
        self._transport: asyncio.ReadTransport | None = None

    async def __aenter__(self) -> Self:
        protocol = asyncio.StreamReaderProtocol(self.reader)
        file = os.fdopen(self._read_end, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.connect_read_pipe(lambda: protocol, file)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.given_away()
        if self._transport is not None:
            self._transport.close()

    def give_away(self) -> int:
        """Return the end to write to."""
        return self._write_end

    def given_away(self) -> None:
        """Let go of the end to write to: the command has its own copy, and its exit ends it."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1


class _Kept:
    """Everything a command prints, up to a bound."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._content = bytearray()

    async def read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(65_536):
            self._content += chunk
            if len(self._content) > self._bytes_max:
                reason = f"the command printed more than {self._bytes_max} bytes"
                raise Fail(reason, code="too_large")

    def text(self) -> str:
        return self._content.decode(errors="replace").strip()


class _Tail:
    """The end of what a command complains about."""

    def __init__(self) -> None:
        self._content = b""

    async def read(self, stream: asyncio.StreamReader) -> None:
        while chunk := await stream.read(65_536):
            self._content = (self._content + chunk)[-_REASON_BYTES:]

    def text(self) -> str:
        return self._content.decode(errors="replace").strip()


async def _end(process: Process, grace_seconds: float) -> None:
    """End the command and whatever it started: politely, then not, however impatient the caller."""
    try:
        if process.returncode is None:
            _signal_group(process, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await process.wait()
    finally:
        _signal_group(process, signal.SIGKILL)
    await process.wait()


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
