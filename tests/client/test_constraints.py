"""Bounds on type hints: they are in the schema, and hold."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, cast

import msgspec
import pydantic
import pytest

from nodrop.client.endings import Fail
from nodrop.client.working.handlers import Handler
from nodrop.client.working.task import Task

TASK = cast("Task", object())
STRING = {"type": "string"}
Count = Annotated[int, pydantic.Field(ge=1, lt=5, description="how many")]
COUNT = {"type": "integer", "minimum": 1, "exclusiveMaximum": 5}


@pytest.mark.parametrize(
    ("hint", "schema", "good", "bad"),
    [
        (Count, COUNT, 1, 5),
        (Count | None, {"anyOf": [COUNT, {"type": "null"}]}, None, 0),
        (
            Annotated[float | str | None, pydantic.Field(gt=0)],
            {
                "anyOf": [
                    {"type": "number", "exclusiveMinimum": 0},
                    {"type": "string"},
                    {"type": "null"},
                ]
            },
            "0",
            0.0,
        ),
        (list[Count], {"type": "array", "items": COUNT}, [1, 2], [1, 0]),
        (
            dict[str, list[Count]],
            {"type": "object", "additionalProperties": {"type": "array", "items": COUNT}},
            {"a": [4]},
            {"a": [5]},
        ),
        (
            Annotated[list[str], pydantic.Field(min_length=1, max_length=2)],
            {"type": "array", "items": STRING, "minItems": 1, "maxItems": 2},
            ["a"],
            [],
        ),
        (
            Annotated[str, pydantic.Field(pattern="^[a-z]+$"), pydantic.Field(max_length=3)],
            {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3},
            "abc",
            "abcd",
        ),
        (
            Annotated[str, pydantic.StringConstraints(pattern=re.compile("^a"))],
            {"type": "string", "pattern": "^a"},
            "ab",
            "b",
        ),
        (pydantic.PositiveInt, {"type": "integer", "exclusiveMinimum": 0}, 1, 0),
        (
            Annotated[int, msgspec.Meta(le=9), pydantic.Field(multiple_of=3)],
            {"type": "integer", "maximum": 9, "multipleOf": 3},
            9,
            12,
        ),
    ],
)
def test_bounds_of_pydantic_are_in_the_schema_and_hold(
    hint: Any, schema: dict[str, Any], good: Any, bad: Any
) -> None:
    async def handle(a: Any, b: int = 0) -> None: ...

    handle.__annotations__["a"] = hint
    handler = Handler(handle)
    made = handler.input_schema()
    assert made is not None
    assert made["properties"]["a"] == schema
    assert handler.bind(TASK, {"a": good})[1]["a"] == good
    with pytest.raises(Fail, match="a: "):
        handler.bind(TASK, {"a": bad})


def test_what_others_annotate_is_theirs() -> None:
    async def handle(
        a: Annotated[int, "a remark", {"ge": 1}, pydantic.Field(description="no bound")],
        b: Annotated[datetime, pydantic.Field(gt=datetime(2026, 11, 15, tzinfo=UTC))],
    ) -> None: ...

    schema = Handler(handle).input_schema()
    assert schema is not None
    assert schema["properties"]["a"] == {"type": "integer"}
    assert schema["properties"]["b"] == {"type": "string"}
