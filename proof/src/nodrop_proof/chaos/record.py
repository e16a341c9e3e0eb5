"""What clients write down themselves: what they asked for, what they were answered, what they did.

One file that any number of processes append to. A line is one write, so it survives the kill of its
writer and stands where it happened. A client writes before it asks and after it was answered:
what lies in between is unknown, and counted neither as lost nor as kept.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import msgspec


class Line(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag=str.lower):
    """Base of every line."""


class Asked(Line, frozen=True, kw_only=True):
    """A caller is about to hand something off."""

    ask: str
    """What is asked for: the correlation id of everything that comes of it."""
    legs: int = 1
    """How many handoffs are to come of it."""
    waits: bool = True
    """Whether the caller stays until it has the outcome."""


class Stored(Line, frozen=True, kw_only=True):
    """The relay told the caller that the handoff is stored."""

    ask: str
    handoff_id: str


class Told(Line, frozen=True, kw_only=True):
    """The relay told the caller the outcome, and the caller settled it."""

    ask: str
    state: str
    result: Any = None


class Refused(Line, frozen=True, kw_only=True):
    """The relay refused what the caller asked for, and not because it was down."""

    ask: str
    code: str


class Ran(Line, frozen=True, kw_only=True):
    """A worker did a step: this line is the effect outside the relay."""

    handoff_id: str
    step: str
    attempt: int
    after_seconds: float = 0.0
    """How long ago the worker had asked for the step, by its own clock."""


class Recorded(Line, frozen=True, kw_only=True):
    """The relay told the worker that the step it did is recorded."""

    handoff_id: str
    step: str
    attempt: int


AnyLine = Asked | Stored | Told | Refused | Ran | Recorded

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(AnyLine)


class Record:
    """A file of lines, open for appending."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    def write(self, line: AnyLine) -> None:
        """Append a line. When this returns, no kill can take it back."""
        data = _ENCODER.encode(line) + b"\n"
        written = os.write(self._descriptor, data)
        assert written == len(data), "a line is one write"


def read(path: Path) -> Iterable[AnyLine]:
    """Yield what was written, in order. What a kill cut off in the middle was never said."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield _DECODER.decode(line)
