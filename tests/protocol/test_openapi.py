"""The OpenAPI document: valid, checked in as it is made, and true of what the doors do."""

import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from openapi_spec_validator import validate

from nodrop.app import schemas
from nodrop.model.errors import ALL
from nodrop.protocol.openapi import document
from nodrop.protocol.operations import OPERATIONS
from nodrop.protocol.routes import find
from nodrop.protocol.times import parse_duration

SCHEMAS = Path(__file__).parents[2] / "schema"
DOCUMENT = document()


def operations() -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Every described operation by its name: path, method and description."""
    return {
        described["operationId"]: (path, method, described)
        for path, item in DOCUMENT["paths"].items()
        for method, described in item.items()
        if method != "parameters"
    }


def test_it_is_valid_openapi() -> None:
    validate(DOCUMENT)


@pytest.mark.parametrize("name", schemas())
def test_what_is_checked_in_is_what_is_made(name: str) -> None:
    again = "renew it with nodrop.app.write_schemas"
    assert (SCHEMAS / name).read_bytes() == schemas()[name], again


def test_every_operation_is_described_and_routed() -> None:
    described = operations()
    assert described.keys() == OPERATIONS.keys()
    for name, (path, method, _) in described.items():
        blank = re.sub(r"\{\w+\}", "x", path.removeprefix("/"))
        route = find(blank).methods[OPERATIONS[name].method]
        assert (route.operation.name, route.operation.method.lower()) == (name, method)


def test_every_part_of_a_path_is_a_parameter() -> None:
    for path, item in DOCUMENT["paths"].items():
        declared = [p["name"] for p in item.get("parameters", ())]
        assert declared == re.findall(r"\{(\w+)\}", path)


def test_every_error_code_is_listed() -> None:
    codes = DOCUMENT["components"]["schemas"]["Document"]["properties"]["code"]["enum"]
    assert sorted(codes) == sorted(error.code for error in ALL)


def test_only_redeeming_a_link_takes_no_bearer() -> None:
    assert DOCUMENT["security"] == [{"token": []}]
    assert [name for name, (_, _, d) in operations().items() if d.get("security") == []] == [
        "redeem_link"
    ]


def test_a_name_that_the_path_gives_is_not_asked_for_again() -> None:
    described = operations()
    assert DOCUMENT["components"]["schemas"]["RemoveAgent"]["required"] == []
    assert described["remove_agent"][2]["requestBody"]["required"] is False
    assert [p["name"] for p in described["get_step"][2].get("parameters", ())] == []


def test_a_body_is_required_where_one_of_its_fields_is() -> None:
    required = {
        name for name, (_, _, d) in operations().items() if d.get("requestBody", {}).get("required")
    }
    assert required == {
        *("offer", "counter", "reassign", "block", "answer", "agree", "decline", "checkpoint"),
        *("note", "note_team", "register", "create_token", "contract", "join", "add_key"),
        "redeem_link",
        *("offer_group", "emit", "put_trigger", "put_outlet", "say", "tell_status"),
    }


@pytest.mark.parametrize(
    ("request_", "fields", "fits"),
    [
        ("Offer", {"to": "b"}, True),
        ("Offer", {"title": "x"}, False),
        ("Offer", {"to": None, "capability": None}, False),
        ("Offer", {"to": "b", "accept_within": 0}, False),
        ("Offer", {"to": "b", "then": [{"to": "c", "deadline": 0}]}, False),
        (
            "Offer",
            {"to": "b", "escalation": [{"when": "silent", "notify": "me", "after": 0}]},
            True,
        ),
        ("Offer", {"to": "b", "escalation": [{"when": "silent"}]}, False),
        ("Reassign", {"reason": "x"}, False),
        ("Reassign", {"capability": "c"}, True),
        ("Take", {"wait": 0}, True),
        ("Offer", {"to": "b", "traceparent": f"00-{'0' * 31}1-{'0' * 15}1-00"}, True),
        ("Offer", {"to": "b", "traceparent": f"00-{'0' * 32}-{'0' * 15}1-00"}, False),
        ("Offer", {"to": "b", "traceparent": f"ff-{'0' * 31}1-{'0' * 15}1-00"}, False),
        ("OfferGroup", {"offers": {"a": {"to": "b", "title": "x"}}}, True),
        ("OfferGroup", {"offers": {"a": {"title": "x"}}}, False),
        ("OfferGroup", {"offers": {"a": {"to": "b", "idempotency_key": "k"}}}, False),
        ("OfferGroup", {"offers": {"a": {"to": "b", "from": "c"}}}, False),
        ("PutTrigger", {"on": "x", "offer": {"to": "b", "correlation_id": "c"}}, True),
        ("PutTrigger", {"on": "x", "offer": {"to": "b", "turn_based": False}}, True),
        ("PutTrigger", {"on": "x", "offer": {"to": "b", "turn_based": True}}, False),
        ("PutTrigger", {"on": "x", "offer": {"to": "b", "command_id": "c"}}, False),
        ("TestTrigger", {"rule": {"on": "x", "offer": {"to": "b", "signature": "s"}}}, False),
        ("CreateInvitation", {"expires": 30 * 86_400}, True),
        ("CreateInvitation", {"expires": 30 * 86_400 + 1}, False),
        ("ListHandoffs", {"state": "blocked"}, True),
        ("ListHandoffs", {"state": "asleep"}, False),
        ("GetLog", {"since": 0, "until": 86_400}, True),
        ("GetLog", {"since": -1}, False),
        ("GetLog", {"until": 1e12}, False),
    ],
)
def test_requests_are_described_to_their_bounds(
    request_: str, fields: dict[str, Any], *, fits: bool
) -> None:
    check = validator({"$ref": f"#/components/schemas/{request_}"})
    assert check.is_valid(fields) is fits


def test_what_is_given_as_an_example_of_a_time_is_one() -> None:
    timed = ("Duration", "PositiveDuration", "Due", "DueSoon", "TimeAgo")
    examples = {
        example for name in timed for example in DOCUMENT["components"]["schemas"][name]["examples"]
    }
    assert {example: parse_duration(example) for example in examples} == {
        "4h": 14_400_000,
        "4 hours": 14_400_000,
        "PT4H": 14_400_000,
        "1h 30m": 5_400_000,
        90: 90_000,
    }


def test_the_seeds_manifest_fits_the_schema_of_a_manifest() -> None:
    manifest = {
        "agent_id": "research-agent-001",
        "capabilities": [
            {
                "name": "web_research",
                "input_schema": {"query": "string", "depth": "int"},
                "output_schema": {"sources": "array", "summary": "string"},
                "timeout_seconds": 300,
                "reliability_sla": 0.95,
            }
        ],
        "discovery_endpoint": "https://agent-registry.example.com/research-agent-001",
    }
    check = validator({"$ref": "#/components/schemas/Manifest"})
    assert list(check.iter_errors(manifest)) == []
    assert not check.is_valid(manifest | {"capability": []})


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    components = msgspec.json.decode(msgspec.json.encode(DOCUMENT["components"]))
    return jsonschema_rs.Draft202012Validator(schema | {"components": components})
