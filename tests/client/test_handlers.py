"""Type hints become schemas, and payloads become arguments."""

import functools
import math
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, TypedDict, cast

import jsonschema_rs
import msgspec
import pydantic
import pytest

import nodrop
from nodrop.client.endings import Fail
from nodrop.client.working.blocking_task import BlockingTask
from nodrop.client.working.handlers import Handler
from nodrop.client.working.task import Task
from nodrop.model.contract import json_schema

if TYPE_CHECKING:
    from decimal import Decimal


class Severity(StrEnum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Step:
    text: str
    screenshots: list[str] = field(default_factory=list[str])


class Report(msgspec.Struct):
    email_id: str
    steps: list[Step] = []


class Customer(TypedDict):
    name: str
    plan: NotRequired[str]


class Address(pydantic.BaseModel):
    city: str


class Person(pydantic.BaseModel):
    name: str
    home: Address | None = None


class Tree(pydantic.BaseModel):
    children: list["Tree"] = []


@dataclass
class Found:
    where: str


@dataclass
class NotFound:
    why: str


TASK = cast("Task", object())
STRING = {"type": "string"}
STEP = {
    "title": "Step",
    "type": "object",
    "properties": {
        "text": STRING,
        "screenshots": {"type": "array", "items": STRING},
    },
    "required": ["text"],
}


async def names(task: Task, email_id: str, depth: int = 1) -> None: ...
async def task_last(email_id: str, task: Task) -> None: ...
async def task_by_name(task, email_id: str) -> None: ...  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]  # the hint is missing on purpose
async def task_only(task: Task) -> None: ...
async def anything(task: Task, a, b=None) -> None: ...  # pyright: ignore[reportUnknownParameterType, reportMissingParameterType]  # the hints are missing on purpose
async def optional(a: str | None, b: list[int] | None = None) -> None: ...
async def enums(
    a: Severity, b: Literal["x", "y"], c: Annotated[int, msgspec.Meta(ge=1)]
) -> None: ...
async def nested(step: Step, others: list[Step]) -> None: ...
async def typed_dict(customer: Customer, when: datetime) -> None: ...
async def models(person: Person, n: int) -> None: ...
async def others(a: str, **rest: int) -> None: ...
async def others_of_any_kind(a: str, **rest: Any) -> None: ...
async def lone_struct(task: Task, report: Report) -> None: ...
async def lone_model(person: Person) -> None: ...
async def lone_dict(payload: dict[str, Any]) -> None: ...
async def lone_anything(payload: Any) -> None: ...
async def lone_string(text: str) -> None: ...
def plain(task: BlockingTask, a: int) -> None: ...


ADDRESS = {
    "title": "Address",
    "type": "object",
    "properties": {"city": {"title": "City", "type": "string"}},
    "required": ["city"],
}
PERSON: dict[str, Any] = {
    "title": "Person",
    "type": "object",
    "properties": {
        "name": {"title": "Name", "type": "string"},
        "home": {"anyOf": [{"$ref": "#/$defs/Person.Address"}, {"type": "null"}], "default": None},
    },
    "required": ["name"],
}

INPUTS: list[tuple[Callable[..., Any], dict[str, Any] | None]] = [
    (
        names,
        {
            "type": "object",
            "properties": {"email_id": STRING, "depth": {"type": "integer", "default": 1}},
            "required": ["email_id"],
        },
    ),
    (
        task_last,
        {"type": "object", "properties": {"email_id": STRING}, "required": ["email_id"]},
    ),
    (
        task_by_name,
        {"type": "object", "properties": {"email_id": STRING}, "required": ["email_id"]},
    ),
    (task_only, None),
    (
        anything,
        {"type": "object", "properties": {"a": {}, "b": {"default": None}}, "required": ["a"]},
    ),
    (
        optional,
        {
            "type": "object",
            "properties": {
                "a": {"anyOf": [STRING, {"type": "null"}]},
                "b": {
                    "anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}],
                    "default": None,
                },
            },
            "required": ["a"],
        },
    ),
    (
        enums,
        {
            "type": "object",
            "properties": {
                "a": {"$ref": "#/$defs/Severity"},
                "b": {"enum": ["x", "y"]},
                "c": {"type": "integer", "minimum": 1},
            },
            "required": ["a", "b", "c"],
            "$defs": {"Severity": {"title": "Severity", "enum": ["high", "low"]}},
        },
    ),
    (
        nested,
        {
            "type": "object",
            "properties": {
                "step": {"$ref": "#/$defs/Step"},
                "others": {"type": "array", "items": {"$ref": "#/$defs/Step"}},
            },
            "required": ["step", "others"],
            "$defs": {"Step": STEP},
        },
    ),
    (
        typed_dict,
        {
            "type": "object",
            "properties": {
                "customer": {"$ref": "#/$defs/Customer"},
                "when": STRING,
            },
            "required": ["customer", "when"],
            "$defs": {
                "Customer": {
                    "title": "Customer",
                    "type": "object",
                    "properties": {"name": STRING, "plan": STRING},
                    "required": ["name"],
                }
            },
        },
    ),
    (
        models,
        {
            "type": "object",
            "properties": {"person": PERSON, "n": {"type": "integer"}},
            "required": ["person", "n"],
            "$defs": {"Person.Address": ADDRESS},
        },
    ),
    (
        others,
        {
            "type": "object",
            "properties": {"a": STRING},
            "required": ["a"],
            "additionalProperties": {"type": "integer"},
        },
    ),
    (
        others_of_any_kind,
        {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
    ),
    (
        lone_struct,
        {
            "title": "Report",
            "type": "object",
            "properties": {
                "email_id": STRING,
                "steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}, "default": []},
            },
            "required": ["email_id"],
            "$defs": {"Step": STEP},
        },
    ),
    (lone_model, {**PERSON, "$defs": {"Person.Address": ADDRESS}}),
    (lone_dict, {"type": "object"}),
    (lone_anything, None),
    (lone_string, {"type": "object", "properties": {"text": STRING}, "required": ["text"]}),
    (plain, {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}),
]


@pytest.mark.parametrize(("function", "schema"), INPUTS, ids=lambda x: getattr(x, "__name__", ""))
def test_hints_become_the_input_schema(
    function: Callable[..., Any], schema: dict[str, Any] | None
) -> None:
    assert Handler(function).input_schema() == schema


@pytest.mark.parametrize("function", [function for function, _ in INPUTS])
def test_a_schema_is_one_that_the_relay_takes_as_it_is(function: Callable[..., Any]) -> None:
    schema = Handler(function).input_schema() or {}
    assert json_schema(schema) == schema  # not mistaken for shorthand
    jsonschema_rs.validator_for(schema)


def test_a_model_that_holds_itself_stays_local() -> None:
    async def handle(tree: Tree, n: int) -> None: ...

    schema = Handler(handle).input_schema()
    assert schema is not None
    assert schema["properties"]["tree"] == {"$ref": "#/$defs/Tree.Tree"}
    valid = jsonschema_rs.validator_for(schema)
    assert valid.is_valid({"n": 1, "tree": {"children": [{"children": []}]}})
    assert not valid.is_valid({"n": 1, "tree": {"children": [{"children": 3}]}})


async def no_hint(): ...
async def returns_any() -> Any: ...
async def returns_none() -> None: ...
async def returns_number() -> float: ...
async def returns_step() -> Step: ...
async def returns_either() -> Found | NotFound: ...
async def returns_steps() -> list[Step]: ...


@pytest.mark.parametrize(
    ("function", "schema"),
    [
        (no_hint, None),
        (returns_any, None),
        (returns_none, {"type": "null"}),
        (returns_number, {"type": "number"}),
        (returns_step, STEP),
        (
            returns_steps,
            {"type": "array", "items": {"$ref": "#/$defs/Step"}, "$defs": {"Step": STEP}},
        ),
        (
            returns_either,
            {
                "anyOf": [{"$ref": "#/$defs/Found"}, {"$ref": "#/$defs/NotFound"}],
                "$defs": {
                    "Found": {
                        "title": "Found",
                        "type": "object",
                        "properties": {"where": STRING},
                        "required": ["where"],
                    },
                    "NotFound": {
                        "title": "NotFound",
                        "type": "object",
                        "properties": {"why": STRING},
                        "required": ["why"],
                    },
                },
            },
        ),
    ],
)
def test_the_return_hint_becomes_the_output_schema(
    function: Callable[..., Any], schema: dict[str, Any] | None
) -> None:
    assert Handler(function).output_schema() == schema


def test_a_hint_without_a_json_form_is_refused_at_once() -> None:
    class Connection: ...

    async def handle(connection: Connection) -> None: ...

    with pytest.raises(TypeError, match="handle: connection: Connection has no JSON form"):
        Handler(handle)


def test_a_parameter_for_many_positions_is_refused_at_once() -> None:
    async def handle(*items: str) -> None: ...

    with pytest.raises(TypeError, match=r"a payload cannot fill \*items"):
        Handler(handle)


async def yields() -> AsyncIterator[int]:
    yield 1


def yields_in_a_thread() -> Iterator[int]:
    yield 1


async def for_type_checkers(price: "Decimal") -> None: ...


async def two_tasks(task: nodrop.Task, other: nodrop.Task) -> None: ...


async def blocks(task: nodrop.BlockingTask) -> None: ...


async def makes_a_connection() -> "Connection":
    return Connection()


class Connection:
    async def method(self, n: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (yields, "yields: a handler returns its result"),
        (yields_in_a_thread, "yields_in_a_thread: a handler returns its result"),
        (for_type_checkers, "for_type_checkers: a hint cannot be read: name 'Decimal'"),
        (two_tasks, "two_tasks: task and other are both the task"),
        (blocks, "blocks: task: an async function gets a Task"),
        (makes_a_connection, "makes_a_connection: what it returns: Connection has no JSON form"),
        (Connection, "Connection: a class handles nothing"),
        (Connection.method, "Connection.method: self is not there yet"),
    ],
)
def test_what_could_never_handle_anything_is_refused_at_once(
    function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(TypeError, match=said):
        Handler(function)


# --- arguments -----------------------------------------------------------------------------------


def bound(function: Callable[..., Any], payload: Any) -> dict[str, Any]:
    args, kwargs = Handler(function).bind(TASK, payload)
    assert args == []
    return kwargs


BOUND: list[tuple[Callable[..., Any], Any, dict[str, Any]]] = [
    (names, {"email_id": "m", "more": 1}, {"task": TASK, "email_id": "m"}),
    (names, {"email_id": "m", "depth": 2}, {"task": TASK, "email_id": "m", "depth": 2}),
    (task_only, ["whatever"], {"task": TASK}),
    (anything, {"a": [1]}, {"task": TASK, "a": [1]}),
    (enums, {"a": "low", "b": "x", "c": 2}, {"a": Severity.LOW, "b": "x", "c": 2}),
    (
        nested,
        {"step": {"text": "t"}, "others": [{"text": "u", "screenshots": ["s"]}]},
        {"step": Step("t"), "others": [Step("u", ["s"])]},
    ),
    (
        typed_dict,
        {"customer": {"name": "Jane"}, "when": "2026-11-15T18:00:00Z"},
        {"customer": {"name": "Jane"}, "when": datetime(2026, 11, 15, 18, tzinfo=UTC)},
    ),
    (
        models,
        {"person": {"name": "Jane", "home": {"city": "Bonn"}}, "n": 1},
        {"person": Person(name="Jane", home=Address(city="Bonn")), "n": 1},
    ),
    (others, {"a": "x", "b": 1, "c": 2}, {"a": "x", "b": 1, "c": 2}),
    (lone_struct, {"email_id": "m"}, {"task": TASK, "report": Report("m")}),
    (lone_struct, {"report": {"email_id": "m"}}, {"task": TASK, "report": Report("m")}),
    (lone_model, {"name": "Jane"}, {"person": Person(name="Jane")}),
    (lone_dict, {"a": 1}, {"payload": {"a": 1}}),
    (lone_anything, {"a": 1}, {"payload": {"a": 1}}),
    (lone_anything, {"payload": 1}, {"payload": 1}),
    (lone_anything, None, {"payload": None}),
    (lone_string, {"text": "hi"}, {"text": "hi"}),
    (lone_string, "hi", {"text": "hi"}),
]


@pytest.mark.parametrize(("function", "payload", "arguments"), BOUND)
def test_a_payload_becomes_arguments(
    function: Callable[..., Any], payload: Any, arguments: dict[str, Any]
) -> None:
    assert bound(function, payload) == arguments


@pytest.mark.parametrize(
    ("function", "payload", "reason"),
    [
        (names, {"email_id": 7}, "email_id: Expected `str`, got `int`"),
        (names, {}, "the payload lacks email_id"),
        (names, ["m"], "the payload is not an object"),
        (names, None, "the payload is not an object"),
        (lone_string, 7, "text: Expected `str`, got `int`"),
        (lone_string, {"txt": "hi"}, "the payload lacks text"),
        (lone_struct, {"email": "m"}, "report: Object missing required field `email_id`"),
        (nested, {"step": {"text": 1}, "others": []}, r"step: .* at `\$.text`"),
    ],
)
def test_a_payload_that_does_not_fit_fails_for_good(
    function: Callable[..., Any], payload: Any, reason: str
) -> None:
    with pytest.raises(Fail, match=reason) as failure:
        bound(function, payload)
    assert (failure.value.code, failure.value.retryable) == ("payload_invalid", False)


def test_no_payload_will_do_where_everything_has_a_default() -> None:
    async def handle(a: int = 1, b: int = 2) -> None: ...

    assert bound(handle, None) == {}
    validator = jsonschema_rs.validator_for(Handler(handle).input_schema() or False)
    assert validator.is_valid(None)  # else the relay would refuse it
    assert not validator.is_valid([])


def test_a_lone_model_with_a_field_of_its_own_name_takes_the_whole_payload() -> None:
    class Text(msgspec.Struct):
        text: str

    async def handle(text: Text) -> None: ...

    assert bound(handle, {"text": "hi"}) == {"text": Text("hi")}


def test_either_of_two_types_is_taken() -> None:
    async def handle(n: int, found: Found | NotFound) -> None: ...

    assert bound(handle, {"n": 1, "found": {"why": "x"}}) == {"n": 1, "found": NotFound("x")}
    with pytest.raises(Fail):
        bound(handle, {"n": 1, "found": {}})


def test_positional_parameters_are_filled_in_order() -> None:
    async def handle(a: int, task: Task, /, b: int) -> None: ...

    assert Handler(handle).bind(TASK, {"b": 2, "a": 1}) == ([1, TASK], {"b": 2})


def test_a_positional_parameter_that_is_left_out_keeps_its_place() -> None:
    async def handle(a: int = 1, b: int = 2, /) -> None: ...

    assert Handler(handle).bind(TASK, {"b": 5}) == ([1, 5], {})


def test_a_task_may_be_one_that_is_missing_elsewhere() -> None:
    async def handle(n: int, task: Task | None = None) -> None: ...

    assert bound(handle, {"n": 1}) == {"n": 1, "task": TASK}


def test_an_object_is_anything() -> None:
    async def handle(extra: object, more: dict[str, object]) -> object: ...

    handler = Handler(handle)
    assert handler.bind(TASK, {"extra": [1], "more": {"a": None}})[1] == {
        "extra": [1],
        "more": {"a": None},
    }
    assert handler.output_schema() is None
    jsonschema_rs.validator_for(handler.input_schema() or False)


def test_a_default_that_json_cannot_say_is_not_published() -> None:
    async def handle(limit: float = math.inf, other: int = 1) -> None: ...

    schema = Handler(handle).input_schema()
    assert schema is not None
    assert schema["properties"]["limit"] == {"type": "number"}


def test_whatever_can_be_called_can_handle() -> None:
    class Handles:
        async def __call__(self, task: Task, a: int) -> None: ...

    async def configured(a: int, model: str, n: int) -> None: ...

    assert Handler(Handles()).is_async
    assert bound(Handles(), {"a": 1}) == {"task": TASK, "a": 1}
    partial = functools.partial(configured, model="m")
    assert Handler(partial).is_async
    assert bound(partial, {"a": 1, "n": 2}) == {"a": 1, "n": 2}


def test_async_and_plain_functions_are_told_apart() -> None:
    assert Handler(names).is_async
    assert not Handler(plain).is_async


def test_a_schema_may_be_said_outright_or_as_a_type() -> None:
    async def handle(task: nodrop.Task) -> Any:
        return task.payload

    agent = nodrop.Agent("counter")
    agent.capability("count", input_schema={"type": "integer"}, output_schema=list[int])(handle)
    (declared,) = agent.manifest()["capabilities"]
    assert declared["input_schema"] == {"type": "integer"}
    assert declared["output_schema"] == {"type": "array", "items": {"type": "integer"}}


def test_what_is_not_said_outright_comes_from_the_hints() -> None:
    async def handle(n: int) -> str:
        return str(n)

    agent = nodrop.Agent("counter")
    agent.capability("count", output_schema={"type": "string", "maxLength": 3})(handle)
    (declared,) = agent.manifest()["capabilities"]
    assert declared["input_schema"]["properties"] == {"n": {"type": "integer"}}
    assert declared["output_schema"] == {"type": "string", "maxLength": 3}
