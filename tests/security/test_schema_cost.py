"""Schemas and payloads that would take a relay's time: refused before they do; and each bound, taken away, lets one through."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock
from urllib.parse import quote

import msgspec
import pytest
from msgspec.structs import replace

from kit.fortress import Attack, Control, Fortress, let_in
from nodrop.model.limits import DEFAULT
from nodrop.protocol import requests
from nodrop.relay.directory import manifests
from nodrop.relay.directory.schema_cost import SchemaCost


def chain(levels: int, link: Callable[[dict[str, str]], Any], **more: Any) -> dict[str, Any]:
    """Return definitions each of which is made from the next, and a schema that is the first."""
    made = {f"d{n}": link({"$ref": f"#/$defs/d{n + 1}"}) for n in range(levels)}
    return {"$defs": {**made, f"d{levels}": {}}, "$ref": "#/$defs/d0", **more}


EXPANDING: dict[str, Any] = {
    "allOf twice": chain(14, lambda ref: {"allOf": [ref, ref]}),
    "allOf twice, for long": chain(90, lambda ref: {"allOf": [ref, ref]}),
    "anyOf twice": chain(14, lambda ref: {"anyOf": [ref, ref]}),
    "oneOf thrice": chain(10, lambda ref: {"oneOf": [ref, ref, ref]}),
    "if and else": chain(14, lambda ref: {"if": ref, "then": ref, "else": ref}),
    "not and $ref": chain(14, lambda ref: {"not": ref, **ref}),
    "dependentSchemas": chain(14, lambda ref: {"dependentSchemas": {"a": ref, "b": ref}}),
    "for names": {
        "propertyNames": {"$ref": "#/$defs/d0"},
        **chain(14, lambda r: {"allOf": [r, r]}),
    },
    "unevaluated beside much": chain(
        9, lambda ref: {"allOf": [ref, ref]}, unevaluatedProperties=False
    ),
    "unevaluated in unevaluated": chain(
        8, lambda ref: {"anyOf": [ref], "unevaluatedProperties": False}
    ),
    "unevaluated items": chain(8, lambda ref: {"anyOf": [ref], "unevaluatedItems": False}),
    "itself": {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"},
    "a meta-schema": {"$ref": "https://json-schema.org/draft/2020-12/schema"},
}
"""Schemas that are more than they look: no value may be checked against them."""


def expanding(_: Fortress) -> list[Attack]:
    refused: dict[str, Any] = {"status": 422, "code": "invalid_request", "reason": "schema"}
    attacks: list[Attack] = []
    for trick, schema in EXPANDING.items():
        for side in ("input", "output"):
            can = [{"name": "x", f"{side}_schema": schema}]
            published = Attack(
                name=f"register: {side}: {trick}",
                method="PUT",
                path="/v1/agents/code_agent",
                body={"agent_id": "code_agent", "capabilities": can},
                token="token-code_agent",
                **refused,
            )
            asked = Attack(
                name=f"contract: {side}: {trick}",
                path="/v1/contracts",
                body={"capability": "bug_triage", side: schema},
                token="token-bystander",
                **refused,
            )
            found = Attack(
                name=f"agents: {side}: {trick}",
                method="GET",
                path=f"/v1/agents?{side}={quote(msgspec.json.encode(schema))}",
                body=msgspec.UNSET,
                token="token-bystander",
                **refused,
            )
            attacks += [published, asked, found]
    return attacks


def nested(levels: int, innermost: Any = 1.5, **beside: Any) -> Any:
    value = innermost
    for _ in range(levels):
        value = {"x": value, **beside}
    return value


def either(word: str) -> dict[str, Any]:
    """Return a tree whose two kinds of nodes both have `x`."""
    nodes = [
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "required": ["x", name]}
        for name in "yz"
    ]
    return {"$defs": {"n": {word: [*nodes, {"type": "integer"}]}}, "$ref": "#/$defs/n"}


DOUBLING = chain(
    40, lambda ref: {"allOf": [{"properties": {"x": ref}}, {"properties": {"x": ref}}]}
)

COSTLY: dict[str, tuple[Any, Any]] = {
    "a tree of anyOf": (either("anyOf"), nested(60, y=1)),
    "a tree of oneOf": (either("oneOf"), nested(60, y=1)),
    "a tree of oneOf, 17 levels": (either("oneOf"), nested(17, y=1)),
    "doubled at every level": (DOUBLING, nested(19)),
    "doubled at every level, for long": (DOUBLING, nested(60)),
    "a pattern that reads again and again": (
        {"pattern": "^[01]*1[01]{500}$"},
        "01" * 50_000,
    ),
    "many patterns for many names": (
        {"patternProperties": {f"x{n}[ab]": {} for n in range(1_000)}},
        {f"x1a{n}": n for n in range(5_000)},
    ),
    "values of many types": (
        {"items": {"anyOf": [{"enum": [*range(2_000), "a"]}, {}]}},
        [-1] * 10_000,
    ),
    "many alternatives, many items": (
        {"items": {"anyOf": [*({"minimum": n} for n in range(10, 1_000)), {}]}},
        [1] * 10_000,
    ),
    "unevaluated at every level": (
        chain(
            30, lambda ref: {"anyOf": [{"properties": {"x": ref}}], "unevaluatedProperties": False}
        ),
        nested(30, {}),
    ),
    "different items, in different items": (
        {
            "$defs": {"n": {"uniqueItems": True, "items": {"$ref": "#/$defs/n"}}},
            "$ref": "#/$defs/n",
        },
        [[[[[[[[[[[[*range(100_000)], 1], 1], 1], 1], 1], 1], 1], 1], 1], 1], 1],
    ),
}
"""Schemas that may be published, each with a payload that would take long to check or to explain."""


async def costly(fortress: Fortress) -> list[Attack]:
    """Publish the schemas; return offers of the payloads."""
    can = [{"name": name, "input_schema": schema} for name, (schema, _) in COSTLY.items()]
    manifest = msgspec.json.encode({"agent_id": "code_agent", "capabilities": can})
    published = requests.Register(agent="code_agent", manifest=msgspec.Raw(manifest))
    await fortress.ask("code_agent", "register", published)
    return [
        Attack(
            name=trick,
            path="/v1/handoffs",
            body={"to": "code_agent", "capability": trick, "payload": payload},
            token="token-bystander",
            status=422,
            code="payload_invalid",
            reason=None,
        )
        for trick, (_, payload) in COSTLY.items()
    ]


async def test_no_schema_that_expands_is_published_or_asked_for(fortress: Fortress) -> None:
    assert await fortress.withstand(expanding(fortress)) == []


async def test_no_payload_that_is_costly_to_check_is_checked(fortress: Fortress) -> None:
    assert await fortress.withstand(await costly(fortress)) == []


# --- controls ------------------------------------------------------------------------------------


@contextmanager
def ten_times_the_steps() -> Generator[None]:
    """Check payloads that take ten times as long: without any bound, some would never be done."""
    steps = SchemaCost.steps

    def patient(self: SchemaCost, value: Any, data: bytes) -> int | None:
        limits = replace(DEFAULT, schema_steps_max=10 * DEFAULT.schema_steps_max)
        with mock.patch.object(self, "_limits", limits):
            return steps(self, value, data)

    with mock.patch.object(SchemaCost, "steps", patient):
        yield


@pytest.mark.parametrize(
    "attack", [f"{asked}: input: allOf twice" for asked in ("register", "agents")]
)
async def test_without_the_bound_on_its_expansion_a_schema_gets_through(
    fortress: Fortress, attack: str
) -> None:
    def unread(*_: Any) -> None:
        return None

    control = Control(
        check="what a schema expands to",
        family="expanding",
        disabled=lambda: mock.patch.object(manifests, "SchemaCost", unread),
        attack=attack,
        effect=let_in,
    )
    assert await fortress.without(control, expanding(fortress)) == []


async def test_without_the_bound_on_its_steps_a_payload_gets_through(fortress: Fortress) -> None:
    control = Control(
        check="what a payload costs",
        family="costly",
        disabled=ten_times_the_steps,
        attack="doubled at every level",
    )
    assert await fortress.without(control, await costly(fortress)) == []
