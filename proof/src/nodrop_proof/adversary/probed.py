"""The relay of this proof: `nodrop` that tells how long its event loop was busy without a pause.

A beat on the loop compares the processor time of the loop's thread with the beat before. Time that a busy
machine takes away is not counted, so the figure is about the relay alone. A thread looks what the loop does
when it is busy for long. A line of JSON per second goes to `probe.jsonl` in the relay's home. `limits.json`
there replaces bounds, for a control or a short run.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

from nodrop.model import limits

LIMITS: Final = "limits.json"
PROBE: Final = "probe.jsonl"
_BEAT_SECONDS: Final = 0.005
_LOOK_SECONDS: Final = 0.02
_LONG_SECONDS: Final = 0.06
"""The loop is looked at once it has been busy for so long."""
_FRAMES_MAX: Final = 4


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """The longest that the loop was busy without a pause in about a second."""

    busy_ms: float
    during: str = ""
    """The functions that it was in then, innermost first; empty: it was not busy for long."""


def replace_limits(home: Path) -> None:
    """Replace the bounds that the file names. Before anything has read them."""
    file = home / LIMITS
    if file.exists():
        replaced: dict[str, Any] = msgspec.json.decode(file.read_bytes())
        limits.DEFAULT = msgspec.structs.replace(limits.DEFAULT, **replaced)


class Probed:
    """What the relay of a home has told so far, read as it grows."""

    def __init__(self, home: Path) -> None:
        self._file = home / PROBE
        self._read = 0

    def news(self) -> list[Busy]:
        """Return what it told since it was last asked."""
        if not self._file.exists():
            return []
        with self._file.open("rb") as file:
            file.seek(self._read)
            told = file.read()
        whole = told[: told.rfind(b"\n") + 1]
        self._read += len(whole)
        return [msgspec.json.decode(line, type=Busy) for line in whole.splitlines()]


class _Probe:
    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        self._loop = loop
        self._file = file
        self._used = time.thread_time()
        self._told_at = loop.time()
        self._most = 0.0
        self._during = ""
        self._seen: tuple[float, str] = (0.0, "")
        """Of this time between two beats: how long it was busy when it was looked at, and with what."""
        self._thread = threading.get_ident()
        loop.call_soon(self._beat)
        threading.Thread(target=self._look, name="probe", daemon=True).start()

    def _look(self) -> None:
        """Look, now and then, what keeps the loop busy."""
        clock = time.pthread_getcpuclockid(self._thread)
        while True:
            time.sleep(_LOOK_SECONDS)  # a sampler: a busy loop can tell nobody
            busy = time.clock_gettime(clock) - self._used
            if busy >= _LONG_SECONDS and busy > self._seen[0]:
                frames = sys._current_frames()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # the one way to see another thread
                self._seen = (busy, _functions(frames.get(self._thread)))

    def _beat(self) -> None:
        used = time.thread_time()
        if (busy := used - self._used) > self._most:
            self._most, self._during = busy, self._seen[1]
        self._seen = (0.0, "")
        if self._loop.time() - self._told_at >= 1:
            with self._file.open("ab") as file:
                told = Busy(busy_ms=self._most * 1_000, during=self._during)
                file.write(msgspec.json.encode(told) + b"\n")
            self._told_at, self._most, self._during = self._loop.time(), 0.0, ""
            used = time.thread_time()
        self._used = used
        self._loop.call_later(_BEAT_SECONDS, self._beat)


def _functions(frame: FrameType | None) -> str:
    """Return the innermost functions of a thread."""
    found: list[str] = []
    while frame is not None and len(found) < _FRAMES_MAX:
        found.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(found)


def probed(
    make: Callable[[], asyncio.AbstractEventLoop], file: Path
) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes a loop that is probed."""

    def made() -> asyncio.AbstractEventLoop:
        loop = make()
        _Probe(loop, file)
        return loop

    return made


def _main() -> None:
    home = Path(os.environ["NODROP_HOME"])
    replace_limits(home)

    from nodrop.app import running  # noqa: PLC0415  # reads the bounds
    from nodrop.cli import main  # noqa: PLC0415  # reads the bounds

    fastest = running.fastest_loop() or asyncio.new_event_loop
    running.fastest_loop = lambda: probed(fastest, home / PROBE)
    main()


if __name__ == "__main__":
    _main()
