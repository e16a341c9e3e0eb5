"""The relay of this proof: `nodrop` that tells how long its event loop was busy without a pause.

A beat on the loop compares the processor time of the loop's thread with the beat before. Time that a busy
machine takes away is not counted, so the figure is about the relay alone. A line of JSON per second goes to
`probe.jsonl` in the relay's home. `limits.json` there replaces bounds, for a control or a short run.
"""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop.model import limits

LIMITS: Final = "limits.json"
PROBE: Final = "probe.jsonl"
_BEAT_SECONDS: Final = 0.005


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """The longest that the loop was busy without a pause in about a second."""

    busy_ms: float


def replace_limits(home: Path) -> None:
    """Replace the bounds that the file names. Before anything has read them."""
    file = home / LIMITS
    if file.exists():
        replaced: dict[str, Any] = msgspec.json.decode(file.read_bytes())
        limits.DEFAULT = msgspec.structs.replace(limits.DEFAULT, **replaced)


def busy_ms_max(home: Path) -> float:
    """Return the longest that the relay of a home was busy without a pause so far."""
    file = home / PROBE
    lines = file.read_bytes().splitlines() if file.exists() else ()
    return max((msgspec.json.decode(line, type=Busy).busy_ms for line in lines), default=0.0)


class _Probe:
    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        self._loop = loop
        self._file = file
        self._used = time.thread_time()
        self._told_at = loop.time()
        self._most = 0.0
        loop.call_soon(self._beat)

    def _beat(self) -> None:
        used = time.thread_time()
        self._most = max(self._most, used - self._used)
        if self._loop.time() - self._told_at >= 1:
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(Busy(busy_ms=self._most * 1_000)) + b"\n")
            self._told_at, self._most = self._loop.time(), 0.0
            used = time.thread_time()
        self._used = used
        self._loop.call_later(_BEAT_SECONDS, self._beat)


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
