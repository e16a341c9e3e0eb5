"""Conditions of triggers, in CEL: compiled once, and evaluated where `condition_cost` lets them."""

import re
from collections.abc import Iterator
from typing import Any, Final

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol import extras
from nodrop.relay.coordination.condition_cost import Cost

ROOT: Final = "event"
"""What a condition, and a template, may refer to."""
_PLACE: Final = re.compile(r"<input>:(\d+):(\d+): (.*)")
_TYPES: Final = frozenset(
    [
        "bool",
        "bytes",
        "double",
        "duration",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "timestamp",
        "uint",
    ]
)
_FUNCTIONS: Final = frozenset(
    [
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "bool",
        "timestamp",
        "duration",
        "type",
        "min",
        "max",
        "getFullYear",
        "getMonth",
        "getDayOfYear",
        "getDayOfMonth",
        "getDate",
        "getDayOfWeek",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    ]
)


class UnmetError(Exception):
    """A condition was not evaluated: the event lacks what it asks about, or is too large for it."""


class Condition:
    """One compiled condition."""

    def __init__(self, source: str, path: str = "when") -> None:
        """Compile `source`.

        Raises:
            InvalidRequestError: it is no condition; with its place in `source`.
            NotInstalledError: this relay has no CEL.
        """
        try:
            import cel  # noqa: PLC0415  # an extra: relays without triggers do without it
        except ImportError as error:
            raise extras.missing_at_relay("CEL, which conditions are written in,") from error
        self._cost = Cost(source, ROOT)
        problems = tuple(Problem(path=path, message=why) for why in self._cost.problems)
        if problems:
            refused = InvalidRequestError(f"{path}: {problems[0].message}", errors=problems)
            if source.strip():
                refused.suspect = "condition"  # what would take for ever is not compiled
            raise refused
        try:
            self._program = cel.compile(source)
        except ValueError as error:
            problem = Problem(path=path, message=_placed(str(error)))
            raise InvalidRequestError(f"{path}: {problem.message}", errors=(problem,)) from error
        for why in self._unknown(source):
            problem = Problem(path=path, message=why)
            raise InvalidRequestError(f"{path}: {why}", errors=(problem,))

    def _unknown(self, source: str) -> Iterator[str]:
        # This also holds what was read as words against what the library read: a macro that only
        # one of them saw has a variable that the other does not know.
        known = {ROOT} | _TYPES | self._cost.variables
        for name in self._program.variables():
            if name not in known:
                yield _at(source, name, f"{name} is not known here; what is, is {ROOT}")
        for name in self._program.functions():
            if name.isidentifier() and name not in _FUNCTIONS:
                yield _at(source, name, f"there is no function {name}")

    def met(self, event: dict[str, Any]) -> bool:
        """Whether an event meets it.

        Raises:
            UnmetError: the event lacks what it asks about, or is too large to be asked.
        """
        if self._cost.too_much(event):
            raise UnmetError("the event is too large for this condition")
        try:
            return self._program.execute({ROOT: event}) is True
        except (LookupError, ValueError, TypeError, RuntimeError, ArithmeticError) as error:
            raise UnmetError(_unmet(error)) from error


def _unmet(error: Exception) -> str:
    """Return the library's reason, without what it says about itself."""
    if isinstance(error, KeyError):
        return f"the event has no {error.args[0]}"[:200]
    return str(error).split(". ", 1)[0][:200]


def _placed(message: str) -> str:
    """Return the library's complaint as `line 1, column 10: …`."""
    found = _PLACE.search(message)
    if found is None:
        return message.split("\n", 1)[0][:200]
    line, column, why = found.groups()
    return f"line {line}, column {column}: {why[:160]}"


def _at(source: str, name: str, why: str) -> str:
    place = re.search(rf"\b{re.escape(name)}\b", source)
    return f"column {place.start() + 1}: {why}" if place else why
