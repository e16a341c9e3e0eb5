"""What checking a value costs, beside a validator that counts every subschema it applies."""

import random
import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from nodrop.model.contract import json_schema
from nodrop.model.limits import DEFAULT
from nodrop.relay.directory import register
from nodrop.relay.directory.manifests import compile_schema, schema_problems
from nodrop.relay.directory.schema_cost import SchemaCost
from nodrop.relay.directory.schema_graph import ExpensiveSchemaError

NODE = {"$ref": "#/$defs/node"}
OPERATIONS = ("add", "sub", "mul", "div", "pow")


def expression() -> dict[str, Any]:
    """Return the schema of an expression: a number, or an operation on two expressions."""
    operations = {
        name: {
            "type": "object",
            "properties": {"op": {"const": name}, "left": NODE, "right": NODE},
            "required": ["op", "left", "right"],
            "additionalProperties": False,
        }
        for name in OPERATIONS
    }
    either = {"oneOf": [{"type": "number"}, *({"$ref": f"#/$defs/{name}"} for name in OPERATIONS)]}
    return {"$defs": {"node": either, **operations}, **NODE}


def terms(levels: int, innermost: Any = 1) -> Any:
    value = innermost
    for level in range(levels):
        value = {"op": OPERATIONS[level % 5], "left": value, "right": 2}
    return value


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


# --- an independent count -------------------------------------------------------------------------


class Counting:
    """Applies every subschema wherever JSON Schema does, never stops early, and counts."""

    def __init__(self, schema: dict[str, Any], most: int) -> None:
        self._root = schema
        self._most = most
        self.count = 0

    def apply(self, schema: Any, value: Any) -> None:
        self.count += 1
        if self.count > self._most or isinstance(schema, bool):
            return
        if "$ref" in schema:
            self.apply(self._root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value)
        for word in ("allOf", "anyOf", "oneOf"):
            for other in schema.get(word, ()):
                self.apply(other, value)
        for word in ("not", "if", "then", "else"):
            if word in schema:
                self.apply(schema[word], value)
        if isinstance(value, dict):
            for other, member in self._members(schema, cast("dict[str, Any]", value)):
                self.apply(other, member)
        if isinstance(value, list):
            for other, item in self._items(schema, cast("list[Any]", value)):
                self.apply(other, item)

    def _members(self, schema: Any, value: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
        for name, member in value.items():
            known = False
            if name in schema.get("properties", {}):
                known = True
                yield schema["properties"][name], member
            for pattern, other in schema.get("patternProperties", {}).items():
                if re.search(pattern, name):
                    known = True
                    yield other, member
            if not known and "additionalProperties" in schema:
                yield schema["additionalProperties"], member
            if "propertyNames" in schema:
                yield schema["propertyNames"], name

    def _items(self, schema: Any, value: list[Any]) -> Iterator[tuple[Any, Any]]:
        prefix = schema.get("prefixItems", [])
        for place, item in enumerate(value):
            if place < len(prefix):
                yield prefix[place], item
            elif "items" in schema:
                yield schema["items"], item
            if "contains" in schema:
                yield schema["contains"], item


NAMES = ("a", "b", "c")


class Strange:
    """Random schemas with references among them, and random values."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._definitions = self._random.randint(1, 5)

    def schema(self) -> dict[str, Any]:
        made = {f"d{n}": self._subschema(3) for n in range(self._definitions)}
        return {"$defs": made, "$ref": "#/$defs/d0"}

    def _subschema(self, levels: int) -> Any:
        pick = self._random.random()
        if levels == 0 or pick < 0.1:
            return self._random.choice([True, {"type": "integer"}, {"type": "object"}])
        if pick < 0.4:
            return {"$ref": f"#/$defs/d{self._random.randrange(self._definitions)}"}
        made: dict[str, Any] = {}
        for _ in range(self._random.randint(1, 3)):
            made |= self._keyword(levels - 1)
        return made

    def _keyword(self, levels: int) -> dict[str, Any]:
        word = self._random.choice(
            [
                *("allOf", "anyOf", "oneOf", "not", "if", "properties", "properties", "items"),
                *("patternProperties", "additionalProperties", "propertyNames", "prefixItems"),
                "contains",
            ]
        )
        if word in {"allOf", "anyOf", "oneOf", "prefixItems"}:
            return {word: [self._subschema(levels) for _ in range(self._random.randint(1, 3))]}
        if word in {"properties", "patternProperties"}:
            names = self._random.sample(NAMES, self._random.randint(1, 3))
            return {word: {name: self._subschema(levels) for name in names}}
        return {word: self._subschema(levels)}

    def value(self, levels: int) -> Any:
        pick = self._random.random()
        if levels == 0 or pick < 0.2:
            return self._random.choice([1, "a", None, 1.5, True])
        if pick < 0.7:
            names = self._random.sample((*NAMES, "ab"), self._random.randint(1, 4))
            return {name: self.value(levels - 1) for name in names}
        return [self.value(levels - 1) for _ in range(self._random.randint(0, 3))]


def test_no_fewer_steps_are_counted_than_a_validator_takes_that_never_stops_early() -> None:
    counted = refused = 0
    for seed in range(1_500):
        strange = Strange(seed)
        schema, value = strange.schema(), strange.value(5)
        try:
            cost = SchemaCost(schema, DEFAULT)
        except ExpensiveSchemaError:
            refused += 1  # it refers to itself for the same value
            continue
        steps = cost.steps_of_errors(value, encoded(value))
        taken = Counting(schema, DEFAULT.schema_steps_max)
        taken.apply(schema, value)
        assert steps is None or steps >= taken.count, seed
        if _acyclic(schema):  # so that there is nothing to remember
            steps = cost.steps(value, encoded(value))
            assert steps is None or steps >= taken.count, seed
        counted += 1
    assert counted > 500
    assert refused > 50


def _acyclic(schema: dict[str, Any]) -> bool:
    text = {name: encoded(made).decode() for name, made in schema["$defs"].items()}
    below = {name: set(re.findall(r"#/\$defs/(d\d)", said)) for name, said in text.items()}
    while below:
        ends = {name for name, others in below.items() if not others & below.keys()}
        if not ends:
            return False
        below = {name: others for name, others in below.items() if name not in ends}
    return True


# --- what is refused, and what is not -------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 5, 20, 60])
def test_an_ordinary_tree_is_published_and_checked_however_deep(levels: int) -> None:
    schema = expression()
    assert list(schema_problems(schema, "input_schema", DEFAULT)) == []
    cost = SchemaCost(schema, DEFAULT)
    fits, does_not = terms(levels), terms(levels, "x")
    validator = compile_schema(schema)
    assert cost.steps(fits, encoded(fits)) is not None
    assert cost.steps(does_not, encoded(does_not)) is not None
    # Without what the validator remembers, 60 levels would take until the end of days.
    assert validator.is_valid(fits)
    assert not validator.is_valid(does_not)


def test_the_errors_of_a_tree_are_bounded_though_deciding_is_not_long() -> None:
    cost = SchemaCost(expression(), DEFAULT)
    small, large = terms(1, "x"), terms(9, "x")
    assert cost.bytes_of_errors(small, encoded(small)) is not None
    assert cost.bytes_of_errors(large, encoded(large)) is None


def test_a_loop_of_doubled_levels_counts_to_its_end() -> None:
    levels = 12
    made: dict[str, Any] = {
        f"d{n}": {"allOf": [{"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}}] * 2}
        for n in range(levels)
    }
    made[f"d{levels}"] = {"properties": {"x": {"$ref": "#/$defs/d0"}}}
    cost = SchemaCost({"$defs": made, "$ref": "#/$defs/d0"}, DEFAULT)
    value: Any = 1
    for _ in range(62):
        value = {"x": value}
    assert cost.steps(value, encoded(value)) is None


def test_a_large_table_of_optional_values_is_checked() -> None:
    optional = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    row = {"type": "object", "properties": {f"f{n}": optional for n in range(50)}}
    rows = [{f"f{n}": n for n in range(50)} for _ in range(2_500)]
    cost = SchemaCost({"type": "array", "items": row}, DEFAULT)
    assert cost.steps(rows, encoded(rows)) is not None


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, ".$defs.a"),
        ({"properties": {"a": {"$ref": "http://elsewhere.example"}}}, ".properties.a"),
        ({"properties": {"a": {"$recursiveRef": "#"}}}, ".properties.a"),
        ({"items": {"anyOf": [True] * 10_001}}, ".items"),
        ({"anyOf": [True] * 300, "unevaluatedProperties": False}, ""),
    ],
)
def test_a_refusal_says_where(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(ExpensiveSchemaError) as refused:
        SchemaCost(schema, DEFAULT)
    assert refused.value.path == path


def test_references_are_followed_by_pointer_anchor_and_address() -> None:
    names = ["#/$defs/a~1b", "#%2F$defs%2Fa~1b", "#there", "thing", "thing#there", "#/x/1"]
    twice: dict[str, Any] = {"allOf": [{}, {}]}
    thing = {"$id": "thing", **twice, "$defs": {"d": {"$anchor": "there", **twice}}}
    schema: dict[str, Any] = {
        "$id": "https://example.com/all",
        "$defs": {"a/b": {**twice, "$anchor": "there"}, "c": thing},
        "x": [0, twice],
    }
    alone = SchemaCost({"allOf": [twice]}, DEFAULT).steps(1, b"1")
    for name in names:
        said = {**schema, "allOf": [{"$ref": name}]}
        steps = SchemaCost(said, DEFAULT).steps(1, b"1")
        assert steps is not None
        assert alone is not None
        assert steps >= alone + 1, name


# --- what a requester is told ----------------------------------------------------------------------


def problems(schema: dict[str, Any], value: Any) -> list[tuple[str, str]]:
    check = vars(register)["_Check"](schema, DEFAULT)
    return [(problem.path, problem.message) for problem in check.problems(value, "payload")]


def test_a_small_payload_is_told_everything_that_is_wrong() -> None:
    schema = json_schema({"a": "string", "b": "int"})
    assert problems(schema, {"a": 1, "b": "x"}) == [
        ("payload.a", '1 is not of type "string"'),
        ("payload.b", '"x" is not of type "integer"'),
    ]


def test_a_large_payload_is_told_the_first_thing_that_is_wrong() -> None:
    schema = {"items": {"items": {"type": "integer"}}}
    rows: list[list[Any]] = [[n] * 10 for n in range(5_000)]
    rows[4_000][3] = "x"
    assert problems(schema, rows) == [("payload[4000][3]", '"x" is not of type "integer"')]


def test_a_payload_with_very_many_alternatives_is_told_that_it_does_not_fit() -> None:
    [(path, message)] = problems(expression(), terms(20, "x"))
    assert (path, message[:12]) == ("payload", "does not fit")


def test_a_manifest_from_before_schemas_were_bounded_takes_nothing() -> None:
    schema: dict[str, Any] = {"$defs": {}, "$ref": "#/$defs/d0"}
    for n in range(20):
        schema["$defs"][f"d{n}"] = {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2}
    schema["$defs"]["d20"] = {}
    [(path, message)] = problems(schema, {})
    assert path == "payload"
    assert "must be published anew" in message
