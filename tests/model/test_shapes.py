"""Which shapes fit which, as told by hand; and that "fits" holds, as told by a JSON Schema checker."""

import random
from typing import Any, cast

import jsonschema_rs
import pytest

from nodrop.model import shapes
from nodrop.model.contract import json_schema
from nodrop.model.shapes import Fit, Verdict, fits

SEED = json_schema({"sources": "array", "summary": "string"})
STRINGS = {"type": "array", "items": {"type": "string"}}
CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}


def an(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": sorted(properties)}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}

FIT: list[tuple[Any, Any]] = [
    (SEED, SEED),
    (SEED, json_schema({"summary": "string"})),
    (SEED, {}),
    (an(a=WHOLE), an(a=NUMBER)),
    (an(a=TEXT, b=WHOLE), {"type": "object", "properties": {"c": TEXT}}),
    (STRINGS, {"type": "array"}),
    (STRINGS, {"type": "array", "items": {"type": ["string", "null"]}}),
    ({"enum": ["a", "b"]}, {"type": "string"}),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}),
    ({"const": 1}, {"enum": [1, 2]}),
    ({"type": ["string", "null"]}, {"anyOf": [TEXT, {"type": "null"}]}),
    ({"anyOf": [TEXT, WHOLE]}, {"type": ["string", "number"]}),
    ({"type": "string", "minLength": 3}, TEXT),
    ({"type": "string", "minLength": 3}, {"type": "string", "minLength": 3}),
    (an(a=TEXT), {"allOf": [an(a=TEXT), {"type": "object"}]}),
    ({"$ref": "#/$defs/A", "$defs": {"A": an(a=TEXT)}}, an(a=TEXT)),
    ({**CLOSED, "title": "ignored"}, CLOSED),
    (an(a=an(b=STRINGS)), an(a=an(b={"type": "array"}))),
    (TEXT, True),
]
MISFIT: list[tuple[Any, Any, str]] = [
    (json_schema({"query": "string"}), json_schema({"query": "string", "depth": "int"}), "depth"),
    (an(a=NUMBER), an(a=WHOLE), "a"),
    (an(a=an(b=TEXT)), an(a=an(b=WHOLE)), "a.b"),
    (STRINGS, {"type": "array", "items": WHOLE}, "[]"),
    ({"type": ["string", "null"]}, TEXT, "null"),
    ({"enum": ["a", "c"]}, {"enum": ["a", "b"]}, "'c'"),
    ({"const": True}, {"const": 1}, "True"),
    ({"anyOf": [TEXT, WHOLE]}, TEXT, "integer"),
    (TEXT, {"enum": ["a"]}, "only some values"),
    ({**an(z=TEXT), "additionalProperties": False}, CLOSED, "z: not taken"),
    (TEXT, False, "values"),
    (TEXT, {"anyOf": [WHOLE, {"type": "null"}]}, "string"),
]
MANY = {f"word{n}": n for n in range(3_000)}
EXPENSIVE: list[tuple[Any, Any]] = [
    ({"enum": list(range(1_500))}, {"enum": [str(n) for n in range(8_000)]}),
    ({"type": "object"}, {"anyOf": [{"$ref": "#/$defs/a"}] * 1_500, "$defs": {"a": MANY}}),
    ({"type": "object"}, {"anyOf": [{"$ref": "#/$defs/a", **MANY}] * 1_500}),
]
"""Few comparisons, each of much."""
UNCLEAR: list[tuple[Any, Any, str]] = [
    (TEXT, {"type": "string", "minLength": 3}, "minLength"),
    (WHOLE, {"type": "integer", "minimum": 1}, "minimum"),
    ({}, TEXT, "not said"),
    ({"type": "array"}, STRINGS, "items"),
    ({"type": "string", "pattern": "^[ab]$"}, {"enum": ["a", "b"]}, "values"),
    ({"type": "object", "minProperties": 1}, an(a=TEXT), "a: required"),
    (an(a=TEXT), CLOSED, "more"),
    (TEXT, {"not": {"type": "null"}}, "not is not compared"),
    ({"$ref": "https://elsewhere.example/schema"}, TEXT, "nowhere"),
    ({"anyOf": [TEXT, WHOLE], "minLength": 1}, TEXT, "integer"),
    ({"oneOf": [TEXT, WHOLE]}, TEXT, "integer"),
]


@pytest.mark.parametrize(("given_", "wanted"), FIT)
def test_what_fits(given_: Any, wanted: Any) -> None:
    assert fits(given_, wanted).verdict is Verdict.FITS, fits(given_, wanted).reason


@pytest.mark.parametrize(("given_", "wanted", "reason"), MISFIT)
def test_what_does_not_fit_and_why(given_: Any, wanted: Any, reason: str) -> None:
    fit = fits(given_, wanted)
    assert fit.verdict is Verdict.MISFIT
    assert reason in str(fit)


@pytest.mark.parametrize(("given_", "wanted", "reason"), UNCLEAR)
def test_what_nobody_can_tell_and_why(given_: Any, wanted: Any, reason: str) -> None:
    fit = fits(given_, wanted)
    assert fit.verdict is Verdict.UNCLEAR
    assert reason in str(fit)


def test_a_schema_that_refers_to_itself_is_not_followed_without_end() -> None:
    tree: dict[str, Any] = {
        "$ref": "#/$defs/T",
        "$defs": {
            "T": an(children={"type": "array", "items": {"$ref": "#/$defs/T"}}, a=TEXT),
            "L": {"$ref": "#/$defs/L"},
        },
    }
    assert fits(tree, tree).verdict is Verdict.UNCLEAR
    assert fits(TEXT, {"$ref": "#/$defs/L", "$defs": tree["$defs"]}).verdict is Verdict.UNCLEAR


def test_a_schema_made_to_be_slow_is_given_up_on() -> None:
    deep: dict[str, Any] = TEXT
    for _ in range(12):
        deep = {"anyOf": [deep] * 4}
    assert fits(deep, {"allOf": [deep] * 4}).verdict is Verdict.UNCLEAR


TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
SCALARS = (None, True, False, 0, 1, 1.5, "", "a", "b")
LEAVES: list[dict[str, Any]] = [
    {},
    *({"type": kind} for kind in TYPES),
    {"type": ["string", "null"]},
    {"type": ["integer", "object"]},
    {"enum": ["a", 1, None]},
    {"enum": [0, 1.5]},
    {"const": "a"},
    {"const": 1},
    {"type": "string", "minLength": 1},
    {"type": "number", "minimum": 1},
]


def a_schema(rng: random.Random, levels: int = 2) -> dict[str, Any]:
    if not levels or rng.random() < 0.3:
        return dict(rng.choice(LEAVES))

    def part() -> dict[str, Any]:
        return a_schema(rng, levels - 1)

    match rng.choice(("object", "object", "items", "anyOf", "oneOf", "allOf")):
        case "object":
            made: dict[str, Any] = {"type": "object"}
            made["properties"] = {name: part() for name in "abc" if rng.random() < 0.5}
            if rng.random() < 0.6:
                made["required"] = [name for name in "abc" if rng.random() < 0.4]
            if rng.random() < 0.4:
                made["additionalProperties"] = rng.choice((True, False, part()))
            return made
        case "items":
            return {"type": "array", "items": part()}
        case union:
            return {union: [part() for _ in range(rng.randint(1, 2))]}


def closed(schema: Any) -> Any:
    """A shape that holds what it mentions and no more, which is how people mean one."""
    if isinstance(schema, list):
        return [closed(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    said = cast("dict[str, Any]", schema)
    parts = {word: closed(part) for word, part in said.items()}
    if "object" in str(said.get("type")) and parts.get("additionalProperties", True) is True:
        parts["additionalProperties"] = False
    return parts


def a_value(rng: random.Random, levels: int = 2) -> Any:
    roll = rng.random()
    if not levels or roll < 0.4:
        return rng.choice(SCALARS)
    if roll < 0.6:
        return [a_value(rng, levels - 1) for _ in range(rng.randint(0, 2))]
    return {name: a_value(rng, levels - 1) for name in "abc" if rng.random() < 0.5}


def test_whatever_is_of_a_shape_that_fits_is_taken() -> None:
    rng = random.Random(20261115)
    tried = 0
    for _ in range(8_000):
        have, need = closed(a_schema(rng)), a_schema(rng)
        if fits(have, need).verdict is not Verdict.FITS:
            continue
        given_, wanted = (jsonschema_rs.Draft202012Validator(schema) for schema in (have, need))
        for value in (a_value(rng) for _ in range(30)):
            if given_.is_valid(value):
                tried += 1
                assert wanted.is_valid(value), (have, need, value)
    assert tried > 1_000, "the shapes that fit and their values must come up"


def test_the_check_of_shapes_finds_a_comparison_that_is_too_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kind(path: str, reason: str) -> Fit:
        del path, reason
        return Fit(verdict=Verdict.FITS)

    monkeypatch.setattr(shapes, "_misfit", kind)
    with pytest.raises(AssertionError):
        test_whatever_is_of_a_shape_that_fits_is_taken()


@pytest.mark.parametrize(("given", "wanted"), EXPENSIVE)
def test_a_question_looks_at_a_bounded_number_of_keywords_and_values(
    monkeypatch: pytest.MonkeyPatch, given: Any, wanted: Any
) -> None:
    seen = 0

    class Counted(dict[str, Any]):
        def __iter__(self) -> Any:
            nonlocal seen
            seen += len(self)
            return super().__iter__()

    def counted(value: Any) -> Any:
        if isinstance(value, dict):
            return Counted((k, counted(v)) for k, v in cast("dict[str, Any]", value).items())
        if isinstance(value, list):
            return [counted(v) for v in cast("list[Any]", value)]
        return value

    compared = 0
    same = vars(shapes)["_same"]

    def counting(one: Any, other: Any) -> bool:
        nonlocal compared
        compared += 1
        return same(one, other)

    monkeypatch.setattr(shapes, "_same", counting)
    assert fits(counted(given), counted(wanted)).verdict is not Verdict.FITS
    assert seen + compared <= 4 * shapes.STEPS_MAX
