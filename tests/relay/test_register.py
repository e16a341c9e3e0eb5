"""The register bounds the manifests and schemas that it keeps, however often one agent publishes."""

from typing import Any

import msgspec
import pytest

from nodrop.model.commands import Candidate
from nodrop.model.contract import Agent, Manifest
from nodrop.model.limits import DEFAULT
from nodrop.relay.directory import register as module
from nodrop.relay.directory.register import MissingManifestError, Register
from nodrop.relay.directory.schema_cost import SchemaCost

NESTED = {"type": "object", "properties": {"x": {"$ref": "#"}}}


def published(register: Register, version: int, schema: dict[str, Any]) -> None:
    can = [{"name": "add", "input_schema": schema, "description": f"number {version}"}]
    sent = msgspec.json.encode({"agent_id": "code_agent", "capabilities": can})
    manifest = msgspec.json.decode(sent, type=Manifest)
    agent = Agent(
        team="default", id="code_agent", version=version, manifest=manifest, registered_at=0
    )
    register.put(agent, sent)


def problems(register: Register, version: int, payload: Any) -> int:
    held_to = Candidate(agent="code_agent", manifest_version=version)
    return len(register.problems("default", held_to, "add", "input", payload))


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Every schema that was made ready to check with."""
    schemas: list[dict[str, Any]] = []

    class Counted(SchemaCost):
        def __init__(self, schema: Any, limits: Any) -> None:
            super().__init__(schema, limits)
            schemas.append(schema)

    monkeypatch.setattr(module, "SchemaCost", Counted)
    return schemas


def test_schemas_that_were_dropped_are_made_ready_again(compiled: list[dict[str, Any]]) -> None:
    register = Register(DEFAULT)
    published(register, 1, {"type": "integer"})
    assert [problems(register, 1, "x") for _ in range(2)] == [1, 1]
    assert len(compiled) == 1
    register.shed()
    assert [problems(register, 1, payload) for payload in ("x", 1)] == [1, 0]
    assert len(compiled) == 2


def test_older_manifests_are_kept_up_to_a_bound_and_can_be_recalled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "OLDER_BYTES_MAX", 1_000)
    register = Register(DEFAULT)
    for version in range(1, 101):
        published(register, version, {"type": "integer"})
    assert problems(register, 100, "x") == 1
    assert problems(register, 99, "x") == 1
    with pytest.raises(MissingManifestError):
        problems(register, 1, "x")
    can = [{"name": "add", "input_schema": {"type": "string"}}]
    sent = msgspec.json.encode({"agent_id": "code_agent", "capabilities": can})
    register.recall("default", "code_agent", 1, sent)
    assert problems(register, 1, "x") == 0


def test_one_older_manifest_is_kept_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OLDER_BYTES_MAX", 1)
    register = Register(DEFAULT)
    for version in (1, 2, 3):
        published(register, version, {"type": "integer"})
    assert problems(register, 2, "x") == 1


def test_schemas_are_kept_ready_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, compiled: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(module, "CHECKS_WEIGHT_MAX", 500)
    register = Register(DEFAULT)
    for version in range(1, 101):
        published(register, version, {"type": "integer", "minimum": version})
        assert problems(register, version, 0) == 1
    assert len(compiled) == 100
    assert problems(register, 100, 0) == 1
    assert problems(register, 99, 0) == 1
    assert len(compiled) == 100, "those lately used are kept"
    assert problems(register, 1, 0) == 1
    assert len(compiled) == 101, "the first is made ready again"


def test_what_is_remembered_of_checked_values_counts(
    monkeypatch: pytest.MonkeyPatch, compiled: list[dict[str, Any]]
) -> None:
    register = Register(DEFAULT)
    for version in (1, 2):
        published(register, version, NESTED)
        assert problems(register, version, 0) == 1
    deep: Any = 1
    for _ in range(50):
        deep = {"x": deep}
    monkeypatch.setattr(module, "CHECKS_WEIGHT_MAX", 100)
    assert problems(register, 2, deep) == 1
    assert len(compiled) == 2
    assert problems(register, 1, 0) == 1
    assert len(compiled) == 3, "the other one had to go"
