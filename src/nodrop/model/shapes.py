"""Whether one JSON shape fits another: structural subtyping on a small part of JSON Schema.

`fits(given, wanted)` asks whether every value that `given` describes is one that `wanted` takes.
Compared are `type`, `properties`, `required`, `items`, `additionalProperties`, `enum`, `const`,
`anyOf`, `allOf` and references within a schema. Whatever else a schema says is not guessed at: the
answer is then that nobody can tell, with the keyword that is to blame. "Fits" is never wrong.

One thing is read as people mean it and not as JSON Schema has it: a property that `given` does not
mention, and that `wanted` does not need, is not sent.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, cast

from nodrop.model.handoff import Value

Schema = Mapping[str, Any]


class Verdict(StrEnum):
    """What is known about whether a shape fits."""

    FITS = "fits"
    UNCLEAR = "cannot tell"
    MISFIT = "does not fit"


class Fit(Value, frozen=True, kw_only=True):
    """A verdict, and what it hangs on where it is not that it fits."""

    verdict: Verdict
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason}" if self.reason else self.verdict


FITS: Final = Fit(verdict=Verdict.FITS)

COMPARISONS_MAX: Final = 2_000
"""Comparisons of two schemas within one question; whoever needs more gets no answer."""
STEPS_MAX: Final = 100_000
"""Keywords, names and values that are looked at within one question."""
_LEVELS_MAX: Final = 32
_LOCAL: Final = "#/"

_NOTES: Final = frozenset(
    [
        "$schema",
        "$id",
        "$anchor",
        "$comment",
        "$defs",
        "definitions",
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
    ]
)
"""Keywords that take nothing away from what a schema describes."""
_COMPARED: Final = frozenset(
    [
        "type",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
    ]
)
_ABOUT: Final[dict[str, str]] = {
    **dict.fromkeys(("minLength", "maxLength", "pattern"), "string"),
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"
    ),
    **dict.fromkeys(
        (
            *("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
            *("contains", "minContains", "maxContains", "unevaluatedItems"),
        ),
        "array",
    ),
    **dict.fromkeys(
        (
            *("properties", "required", "additionalProperties", "minProperties", "maxProperties"),
            *("patternProperties", "propertyNames", "dependentRequired", "dependentSchemas"),
            "unevaluatedProperties",
        ),
        "object",
    ),
}
"""Keywords that are about one type of value only."""


def fits(given: Schema, wanted: Schema) -> Fit:
    """Return whether every value of `given` is one that `wanted` takes."""
    return _Comparison(given, wanted).compare(given, wanted, "", 0)


class _Comparison:
    """One question. Bounded, because schemas come from strangers."""

    def __init__(self, given: Schema, wanted: Schema) -> None:
        self._given = given
        self._wanted = wanted
        self._left = COMPARISONS_MAX
        self._steps = STEPS_MAX

    def compare(self, given: Any, wanted: Any, path: str, level: int) -> Fit:
        self._left -= 1
        self._steps -= _width(given) + _width(wanted)
        if self._left < 0 or self._steps < 0 or level > _LEVELS_MAX:
            return _unclear(path, "too much to compare")
        given = _followed(given, self._given)
        wanted = _followed(wanted, self._wanted)
        if given is None or wanted is None:
            return _unclear(path, "a reference leads nowhere")
        self._steps -= _width(given) + _width(wanted)
        if not _said(wanted):
            return FITS
        union = next((word for word in ("anyOf", "oneOf") if word in given), None)
        if union is not None:
            exact = union == "anyOf" and not _said(given) - {union}
            ways = (self.compare(way, wanted, path, level + 1) for way in given[union])
            found = _worst(ways)
        else:
            cases, exact = _cases(given)
            found = _worst(self._one(case, wanted, path, level) for case in cases)
        # What stands beside a union narrows it: the part that does not fit may not exist.
        if found.verdict is Verdict.MISFIT and not exact:
            return Fit(verdict=Verdict.UNCLEAR, reason=found.reason)
        return found

    def _one(self, given: Schema, wanted: Schema, path: str, level: int) -> Fit:
        """Compare a `given` of one type, or of one value, with all that `wanted` says."""
        self._steps -= _width(given) + _width(wanted)
        if self._steps < 0:
            return _unclear(path, "too much to compare")
        if "const" in given:
            given = {"type": _type_of(given["const"]), **given}
        of_type = self._type(given, wanted, path)
        if of_type.verdict is Verdict.MISFIT:
            return of_type
        kind = given.get("type")
        parts = [of_type, self._values(given, wanted, path)]
        if kind in {None, "object"}:
            parts += self._members(given, wanted, path, level)
        if kind in {None, "array"} and "items" in wanted:
            parts.append(self._items(given, wanted, path, level))
        if "anyOf" in wanted:
            ways = [self.compare(given, way, path, level + 1) for way in wanted["anyOf"]]
            parts.append(min(ways, key=_badness, default=_misfit(path, "nothing is taken")))
        parts += [self.compare(given, part, path, level + 1) for part in wanted.get("allOf", ())]
        parts += [
            _unclear(path, f"{word} is not compared")
            for word in sorted(_said(wanted) - _COMPARED)
            if _concerns(word, kind) and given.get(word, _NOTHING) != wanted[word]
        ]
        return _worst(parts)

    def _type(self, given: Schema, wanted: Schema, path: str) -> Fit:
        taken, kind = _types(wanted), given.get("type")
        if not taken or kind in taken or (kind == "integer" and "number" in taken):
            return FITS
        named = " or ".join(taken)
        if kind is None:
            return _unclear(path, f"{named} is taken, and its type is not said")
        return _misfit(path, f"{kind}, where {named} is taken")

    def _values(self, given: Schema, wanted: Schema, path: str) -> Fit:
        taken = wanted.get("enum")
        if "const" in wanted:
            taken = [wanted["const"]]
        if taken is None:
            return FITS
        if "const" in given:
            known = any(_same(given["const"], value) for value in taken)
            return FITS if known else _misfit(path, f"{given['const']!r} is not taken"[:100])
        # What else narrows it may leave just these values.
        narrowed = bool(_said(given) - {"type"})
        return (_unclear if narrowed else _misfit)(path, "only some values are taken")

    def _members(self, given: Schema, wanted: Schema, path: str, level: int) -> Iterable[Fit]:
        if "const" in given:
            if _said(wanted) & {"properties", "required", "additionalProperties"}:
                yield _unclear(path, "a fixed object is not compared")
            return
        here, there = _mapping(given, "properties"), _mapping(wanted, "properties")
        promised, said = set(given.get("required", ())), given.get("additionalProperties")
        # A keyword that is not compared may promise or close what `required` does not.
        silent = bool(_said(given) - _COMPARED) or "allOf" in given or "type" not in given
        for name in wanted.get("required", ()):
            if name not in promised:
                yield (_unclear if silent else _misfit)(
                    _at(path, name), "required, and not promised"
                )
            elif name not in here and name in there and not isinstance(said, Mapping):
                yield _unclear(_at(path, name), "what it is is not said")
        for name in here.keys() & there.keys():
            yield self.compare(here[name], there[name], _at(path, name), level + 1)
        if isinstance(said, Mapping):  # which is what the others are, if there are any
            for name in there.keys() - here.keys():
                yield self.compare(said, there[name], _at(path, name), level + 1)
        others = wanted.get("additionalProperties", True)
        for name in here.keys() - there.keys():
            if others is False:
                yield _misfit(_at(path, name), "not taken")
            elif others is not True:
                yield self.compare(here[name], others, _at(path, name), level + 1)
        if others is not True and said is not False:
            if others is False or not isinstance(said, Mapping):
                yield _unclear(path, "there may be more in it than is taken")
            else:
                yield self.compare(said, others, _at(path, "*"), level + 1)

    def _items(self, given: Schema, wanted: Schema, path: str, level: int) -> Fit:
        if "const" in given or "items" not in given:
            return _unclear(f"{path}[]", "what its items are is not said")
        return self.compare(given["items"], wanted["items"], f"{path}[]", level + 1)


_NOTHING: Final = object()
_BADNESS: Final = {Verdict.FITS: 0, Verdict.UNCLEAR: 1, Verdict.MISFIT: 2}


def _badness(fit: Fit) -> int:
    return _BADNESS[fit.verdict]


def _worst(parts: Iterable[Fit]) -> Fit:
    return max(parts, key=_badness, default=FITS)


def _unclear(path: str, reason: str) -> Fit:
    return Fit(verdict=Verdict.UNCLEAR, reason=f"{path}: {reason}" if path else reason)


def _misfit(path: str, reason: str) -> Fit:
    return Fit(verdict=Verdict.MISFIT, reason=f"{path}: {reason}" if path else reason)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _followed(schema: Any, root: Schema) -> Schema | None:
    """Return what a schema says once its reference is followed; None if that leads nowhere."""
    for _ in range(_LEVELS_MAX):
        if isinstance(schema, bool):
            return {} if schema else {"enum": []}
        if not isinstance(schema, Mapping):
            return None
        schema = cast("Schema", schema)
        reference = schema.get("$ref")
        if reference is None:
            return schema
        if _said(schema) - {"$ref"} or not str(reference).startswith(_LOCAL):
            return None
        schema = root
        for step in str(reference).removeprefix(_LOCAL).split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            schema = cast("Any", schema).get(name) if isinstance(schema, Mapping) else None
    return None


def _width(schema: Any) -> int:
    """Return how much one look at a schema takes in: its keywords, and the names and values in them."""
    if not isinstance(schema, Mapping):
        return 1
    words = cast("Schema", schema)
    return len(words) + sum(len(v) for v in words.values() if isinstance(v, list | dict))  # pyright: ignore[reportUnknownArgumentType]  # of anything


def _said(schema: Schema) -> frozenset[str]:
    """Return the keywords of a schema that take something away."""
    return frozenset(schema) - _NOTES


def _cases(given: Schema) -> tuple[list[Schema], bool]:
    """Return `given` as alternatives of one type each, and whether they are all it says."""
    if "enum" in given:
        return [{"const": value} for value in given["enum"]], not _said(given) - {"enum", "type"}
    types = _types(given)
    if len(types) > 1:
        return [{**given, "type": kind} for kind in types], True
    return [{**given, "type": types[0]} if types else given], True


def _types(schema: Schema) -> tuple[str, ...]:
    said = schema.get("type", ())
    return (said,) if isinstance(said, str) else tuple(said)


def _concerns(word: str, kind: str | None) -> bool:
    about = _ABOUT.get(word)
    same = about == kind or (about == "number" and kind == "integer")
    return kind is None or about is None or same


def _mapping(schema: Schema, word: str) -> Schema:
    said = schema.get(word)
    return cast("Schema", said) if isinstance(said, Mapping) else {}


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: `true` is not 1."""
    return _type_of(one) == _type_of(other) and one == other
