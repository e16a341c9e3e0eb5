"""What evaluating a condition may cost: read off its words before it is compiled, and weighed with each event.

The library has no bound of its own, and evaluates on the relay's loop. Its macros loop over lists, `filter` copies
what it has at every step, a name inside a macro is looked up for every element, and a pattern is matched in steps of
its own size. So macros stand beside each other and not inside, nothing makes values grow from one macro to the next,
patterns are written out; and an event is weighed by what the condition does with it, and not evaluated above a bound.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final, NamedTuple, cast

import msgspec

CHARS_MAX: Final = 1_000
MACROS_MAX: Final = 8
SUMS_MAX: Final = 16
"""Additions: of texts and lists they copy."""
PATTERN_STEPS_MAX: Final = 10_000
"""Characters of a pattern, times its repetitions."""
STEPS_MAX: Final = 5_000_000
"""What one evaluation may take; a step is some 20 ns, measured."""
_MATCH_STEPS: Final = 2_000
"""A pattern is compiled anew for every element."""
_ASKING: Final = frozenset(["all", "exists", "exists_one", "existsOne", "filter"])
_MAKING: Final = frozenset(["map"])
MACROS: Final = _ASKING | _MAKING
_TOKEN: Final = re.compile(
    r"""
    (?P<comment> //[^\n]* )
  | (?P<text>
        (?: [rR][bB]? | [bB][rR] ) (?: '''.*?''' | \"\"\".*?\"\"\" | '[^'\n]*' | "[^"\n]*" )
      | [bB]? (?: '''(?:\\.|[^\\])*?''' | \"\"\"(?:\\.|[^\\])*?\"\"\"
                | '(?:\\.|[^'\\\n])*' | "(?:\\.|[^"\\\n])*" ) )
  | (?P<name> [A-Za-z_][A-Za-z0-9_]* )
  | (?P<sign> \S )
    """,
    re.VERBOSE | re.DOTALL,
)
_REPETITION: Final = re.compile(r"\{(\d*)(?:,(\d*))?\}")


class Token(NamedTuple):
    """One word of a condition."""

    kind: str
    text: str
    start: int


class Cost:
    """What a condition does, counted; `problems` says what of it is too much for any event."""

    def __init__(self, source: str, root: str) -> None:
        self.variables: set[str] = set()
        """Names that its macros give to elements."""
        self._inside: list[Token] = []
        """The words inside of macros, which are read once per element."""
        self._filters = 0
        self._patterns: list[str] = []
        tokens = () if len(source) > CHARS_MAX else tuple(_tokens(source))
        self.problems = tuple(self._read(source, tokens))
        self._sums = sum(token.text == "+" for token in tokens)
        self._words = len(tokens)
        self._lookups = sum((t.kind, t.text) == ("name", root) for t in self._inside)
        self._matches = sum((t.kind, t.text) == ("name", "matches") for t in self._inside)

    def _read(self, source: str, tokens: Sequence[Token]) -> Iterator[str]:
        if not source.strip():
            yield "must say something; `true` is always met"
        if len(source) > CHARS_MAX:
            yield f"at most {CHARS_MAX} characters"
        if sum(token.text == "+" for token in tokens) > SUMS_MAX:
            yield f"at most {SUMS_MAX} additions"
        yield from self._macros(tokens)
        yield from self._matched(tokens)

    def _macros(self, tokens: Sequence[Token]) -> Iterator[str]:
        closed, count = 0, 0
        for place in _calls(tokens, MACROS):
            count += 1
            macro, dot = tokens[place], tokens[place - 1]
            if macro.text in _MAKING:
                yield f"{_column(dot)}: a condition asks and makes nothing: filter, exists or all instead of map"
                return
            if place < closed:
                yield f"{_column(dot)}: one macro inside another costs too much"
                return
            closed = _closed(tokens, place + 2)
            self._inside += tokens[place + 2 : closed]
            self.variables |= {token.text for token in tokens[place + 2 : place + 3]}
            self._filters += macro.text == "filter"
        if count > MACROS_MAX:
            yield f"at most {MACROS_MAX} of all, exists, exists_one and filter"

    def _matched(self, tokens: Sequence[Token]) -> Iterator[str]:
        for place in _calls(tokens, frozenset(["matches"])):
            pattern, end = (*tokens[place + 2 : place + 4], None, None)[:2]
            if pattern is None or end is None or (pattern.kind, end.text) != ("text", ")"):
                yield f"{_column(tokens[place - 1])}: matches takes a pattern that is written out"
                return
            if _pattern_steps(pattern.text) > PATTERN_STEPS_MAX:
                yield f"{_column(pattern)}: a pattern with that many repetitions costs too much"
                return
            self._patterns.append(pattern.text)

    def too_much(self, event: dict[str, Any]) -> bool:
        """Whether an event is more than this condition may be asked about."""
        if not (self._inside or self._patterns):
            return False
        size = len(msgspec.json.encode(event))
        elements = max(_longest(event), self._words) * (1 + self._sums)
        each = len(self._inside) + self._lookups * size + self._matches * _MATCH_STEPS
        looping = elements * (each + self._filters * elements) if self._inside else 0
        # Most patterns take a step or so for a character: their size is the worst case.
        matching = sum(map(_pattern_steps, self._patterns)) * size // 4
        return looping + matching > STEPS_MAX


def _tokens(source: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(source):
        if found.lastgroup is not None and found.lastgroup != "comment":
            yield Token(found.lastgroup, found.group(), found.start())


def _calls(tokens: Sequence[Token], names: frozenset[str]) -> Iterator[int]:
    """Yield where one of these is called as `.name(`."""
    for place, (token, after) in enumerate(pairwise(tokens)):
        if token.text in names and after.text == "(" and place and tokens[place - 1].text == ".":
            yield place


def _closed(tokens: Sequence[Token], start: int) -> int:
    depth = 1
    for place in range(start, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[place].text, 0)
        if depth == 0:
            return place
    return len(tokens)


def _column(token: Token) -> str:
    return f"column {token.start + 1}"


def _pattern_steps(pattern: str) -> int:
    numbers = (
        int(n) for found in _REPETITION.findall(pattern) for n in found[-1:] + found[:1] if n
    )
    return len(pattern) * prod(max(number, 1) for number in numbers)


def _longest(value: Any) -> int:
    """Return the length of the longest list or map in a value; nesting is bounded where it came in."""
    inside: Iterable[Any]
    if isinstance(value, dict):
        inside = cast("dict[str, Any]", value).values()
    elif isinstance(value, list):
        inside = cast("list[Any]", value)
    else:
        return 0
    longest = count = 0
    for each in inside:
        count += 1
        longest = max(longest, _longest(each))
    return max(longest, count)
