"""Golden vectors, language-neutral on purpose: an SDK in another language reads the same file."""

import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785

from nodrop.model.events import Event
from nodrop.protocol import events

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "vectors/v1/events.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_a_vector_decodes_and_encodes_back(vector: dict[str, Any]) -> None:
    event = events.decode(vector["name"], json.dumps(vector["data"]).encode())
    assert type(event).__name__ == vector["event"]
    name, data = events.encode(event)
    assert (name, json.loads(data)) == (vector["name"], vector["data"])


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_the_bytes_are_canonical_json(vector: dict[str, Any]) -> None:
    _, data = events.encode(events.decode(vector["name"], json.dumps(vector["data"]).encode()))
    assert data == rfc8785.dumps(vector["data"])


def test_every_event_has_a_name_and_a_vector() -> None:
    assert set(events.NAMES) == set(Event.__args__)
    assert {v["name"] for v in VECTORS} == set(events.NAMES.values())
