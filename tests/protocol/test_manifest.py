"""The published schema of a manifest, held against what the relay takes and refuses."""

import json
from typing import Any

import jsonschema_rs
import pytest

from nodrop import app
from nodrop.model.errors import InvalidRequestError
from nodrop.model.limits import DEFAULT
from nodrop.protocol import manifest
from nodrop.relay.directory.manifests import read_manifest

VALIDATOR = jsonschema_rs.Draft202012Validator(manifest.document(), offline=True)
SEED = """{
  "agent_id": "research-agent-001",
  "capabilities": [
    {
      "name": "web_research",
      "input_schema": {"query": "string", "depth": "int"},
      "output_schema": {"sources": "array", "summary": "string"},
      "timeout_seconds": 300,
      "reliability_sla": 0.95
    }
  ],
  "discovery_endpoint": "https://agent-registry.example.com/research-agent-001"
}"""


def one(**capability: Any) -> dict[str, Any]:
    return {"agent_id": "a", "capabilities": [{"name": "c", **capability}]}


GOOD: list[dict[str, Any]] = [
    {"agent_id": "a"},
    one(),
    one(tags=["eu", "fast lane"], concurrency=4, description="does it"),
    one(input_schema={"type": "object", "properties": {"a": {"type": "string"}}}),
    one(output_schema={"a": "any", "b": "list", "c": "dict"}),
    {"agent_id": "a", "availability": {"mode": "on_demand"}},
    {
        "agent_id": "a",
        "availability": {
            "mode": "scheduled",
            "next_active_at": "2026-11-16T08:00:00Z",
            "heartbeat_seconds": 3600,
        },
    },
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "agent_id"),
    ({"agent_id": "a", "mood": "fine"}, "mood"),
    ({"agent_id": "a", "concurrency": 0}, "concurrency"),
    ({"agent_id": "a", "tags": ["a,b"]}, "tags[0]"),
    ({"agent_id": "a", "tags": ["x" * 65]}, "tags[0]"),
    ({"agent_id": "a", "tags": ["x"] * 65}, "tags"),
    ({"agent_id": "a", "availability": {"mode": "sometimes"}}, "availability.mode"),
    ({"agent_id": "a", "availability": {"heartbeat_seconds": 0}}, "availability.heartbeat_seconds"),
    (one(timeout_seconds=0), "capabilities[0].timeout_seconds"),
    (one(reliability_sla=1.5), "capabilities[0].reliability_sla"),
    (one(input_schema={"type": "nonsense"}), "capabilities[0].input_schema"),
    (one(description="x" * 10_001), "capabilities[0].description"),
]
REFUSED_BY_THE_RELAY: list[tuple[dict[str, Any], str]] = [
    (
        {"agent_id": "a", "availability": {"next_active_at": "tomorrow"}},
        "availability.next_active_at",
    ),
    (one(input_schema={"$ref": "https://elsewhere.example/s"}), "capabilities[0].input_schema"),
    (one(output_schema={"$ref": "file:///etc/passwd"}), "capabilities[0].output_schema"),
    (
        one(input_schema={"type": "string", "pattern": "(a{1000}){1000}"}),
        "capabilities[0].input_schema",
    ),
    (
        one(input_schema={"type": "string", "pattern": "(?=a)b"}),
        "capabilities[0].input_schema",
    ),
    (one(output_schema={"description": "x" * 70_000}), "capabilities[0].output_schema"),
    (
        {"agent_id": "a", "capabilities": [{"name": "c"}, {"name": "c"}]},
        "capabilities[1].name",
    ),
]
"""What a schema cannot say, or should not be trusted with."""


def test_the_seeds_manifest_is_one() -> None:
    VALIDATOR.validate(json.loads(SEED))
    read = read_manifest(SEED.encode(), "research-agent-001", DEFAULT)
    assert read.capabilities[0].timeout_ms == 300_000


@pytest.mark.parametrize("good", GOOD)
def test_what_the_schema_takes_the_relay_takes(good: dict[str, Any]) -> None:
    VALIDATOR.validate(good)
    assert read_manifest(json.dumps(good).encode(), "a", DEFAULT).agent_id == "a"


@pytest.mark.parametrize(("bad", "path"), BAD)
def test_what_the_schema_refuses_the_relay_refuses(bad: dict[str, Any], path: str) -> None:
    assert not VALIDATOR.is_valid(bad)
    with pytest.raises(InvalidRequestError) as refused:
        read_manifest(json.dumps(bad).encode(), "a", DEFAULT)
    assert [problem.path for problem in refused.value.errors] == [path]


@pytest.mark.parametrize(("bad", "path"), REFUSED_BY_THE_RELAY)
def test_the_relay_refuses_more_than_a_schema_can(bad: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        read_manifest(json.dumps(bad).encode(), "a", DEFAULT)
    assert [problem.path for problem in refused.value.errors] == [path]


def test_a_schema_nested_without_end_is_refused() -> None:
    deep = '{"items":' * 100 + "{}" + "}" * 100
    sent = '{"agent_id":"a","capabilities":[{"name":"c","input_schema":' + deep + "}]}"
    with pytest.raises(Exception, match="nested deeper") as refused:
        read_manifest(sent.encode(), "a", DEFAULT)
    assert getattr(refused.value, "code", None) == "too_large"


def test_what_is_checked_in_is_what_is_made() -> None:
    assert json.loads(app.schemas()["manifest.json"]) == manifest.document()
