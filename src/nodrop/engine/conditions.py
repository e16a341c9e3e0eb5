"""Conditions of triggers, in CEL: compiled once, with what they may cost bounded beforehand.

CEL has no loops but its macros over lists. One inside another would cost the square of an event's
size, so they may stand beside each other and not inside. Everything else is linear in the event.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from nodrop.core.errors import InvalidRequestError, NotInstalledError, Problem

CHARS_MAX: Final = 1_000
MACROS_MAX: Final = 8
ROOT: Final = "event"
"""What a condition, and a template, may refer to."""
_STRINGS: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_MACRO: Final = re.compile(r"\.\s*(?:all|exists|exists_one|map|filter)\s*\(")
_PLACE: Final = re.compile(r"<input>:(\d+):(\d+): (.*)")
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
    """A condition could not be evaluated: the event lacks what it asks about."""


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
            raise NotInstalledError(
                "conditions need CEL", next_step="Install it: pip install 'nodrop[triggers]'"
            ) from error
        problems = tuple(Problem(path=path, message=why) for why in _too_much(source))
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
        bare = _STRINGS.sub("''", source)
        if not _MACRO.search(bare):  # else the names of its variables are among them
            for name in self._program.variables():
                if name != ROOT:
                    yield _at(source, name, f"{name} is not known here; what is, is {ROOT}")
        for name in self._program.functions():
            if name.isidentifier() and name not in _FUNCTIONS:
                yield _at(source, name, f"there is no function {name}")

    def met(self, event: dict[str, Any]) -> bool:
        """Whether an event meets it.

        Raises:
            UnmetError: the event lacks what it asks about.
        """
        try:
            return self._program.execute({ROOT: event}) is True
        except (KeyError, ValueError, TypeError, RuntimeError, ArithmeticError) as error:
            raise UnmetError(f"{type(error).__name__}: {error}"[:200]) from error


def _too_much(source: str) -> Iterator[str]:
    """Yield what would make a condition cost too much."""
    if not source.strip():
        yield "must say something; `true` is always met"
    if len(source) > CHARS_MAX:
        yield f"at most {CHARS_MAX} characters"
        return
    bare = _STRINGS.sub(lambda found: "'" * len(found.group()), source)
    found = list(_MACRO.finditer(bare))
    if len(found) > MACROS_MAX:
        yield f"at most {MACROS_MAX} of all, exists, exists_one, map and filter"
    for macro in found:
        end = _closed(bare, macro.end())
        inner = _MACRO.search(bare, macro.end(), end)
        if inner is not None:
            yield f"column {inner.start() + 1}: one macro inside another costs too much"
            return


def _closed(bare: str, start: int) -> int:
    depth = 1
    for place in range(start, len(bare)):
        depth += {"(": 1, ")": -1}.get(bare[place], 0)
        if depth == 0:
            return place
    return len(bare)


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
