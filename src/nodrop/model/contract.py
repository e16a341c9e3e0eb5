"""What agents publish about themselves, and how a request meets it.

A manifest is kept as it was sent, byte for byte; this is the relay's reading of it.
"""

from typing import Any, Final

import msgspec

from nodrop.model.handoff import Value
from nodrop.model.limits import SECOND

SHORT_TYPES: Final[dict[str, dict[str, str]]] = {
    "string": {"type": "string"},
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "integer": {"type": "integer"},
    "float": {"type": "number"},
    "number": {"type": "number"},
    "bool": {"type": "boolean"},
    "boolean": {"type": "boolean"},
    "array": {"type": "array"},
    "list": {"type": "array"},
    "object": {"type": "object"},
    "dict": {"type": "object"},
    "any": {},
}
"""The seeds' shorthand: `{"query": "string", "depth": "int"}`."""

MODES: Final = ("always", "scheduled", "on_demand")
"""Always there; there from `next_active_at` on; there when somebody starts it."""

_SCHEMA_WORDS: Final = frozenset(
    {"$schema", "type", "properties", "$ref", "$defs", "anyOf", "oneOf", "allOf", "items", "enum"}
)


class Capability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing an agent can do."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    output_schema: dict[str, Any] | None = None
    timeout_seconds: float | None = None
    """Active time per attempt."""
    reliability_sla: float | None = None
    tags: tuple[str, ...] = ()
    concurrency: int | None = None

    @property
    def timeout_ms(self) -> int | None:
        """The active time per attempt, as the clocks count it."""
        return None if self.timeout_seconds is None else round(self.timeout_seconds * SECOND)


class Availability(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When an agent is to be expected."""

    mode: str = "always"
    """One of `MODES`."""
    next_active_at: str | None = None
    heartbeat_seconds: float | None = None
    """How often it gives a sign of life; missing three makes it a ghost."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent says it can do."""

    agent_id: str
    capabilities: tuple[Capability, ...] = ()
    discovery_endpoint: str | None = None
    description: str | None = None
    tags: tuple[str, ...] = ()
    concurrency: int | None = None
    availability: Availability | None = None

    def capability(self, name: str) -> Capability | None:
        """Return the capability called `name`."""
        return next((c for c in self.capabilities if c.name == name), None)


class Agent(Value, frozen=True, kw_only=True):
    """An agent of a team as the relay knows it."""

    team: str
    id: str
    version: int
    """Of its manifest; 0 while it has published none."""
    manifest: Manifest
    registered_at: int
    removed_at: int | None = None


def json_schema(declared: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema a manifest means by `declared`.

    A mapping of names to short types is an object with those properties, all required, others
    welcome; anything else is taken as JSON Schema 2020-12 already.
    """
    if is_shorthand(declared):
        return {
            "type": "object",
            "properties": {name: SHORT_TYPES[kind] for name, kind in declared.items()},
            "required": sorted(declared),
        }
    return declared


def is_shorthand(declared: dict[str, Any]) -> bool:
    """Whether `declared` maps names to short types rather than being a schema itself."""
    if not all(isinstance(kind, str) and kind in SHORT_TYPES for kind in declared.values()):
        return False
    # {"type": "object"} is a schema; {"type": "string", "query": "string"} is shorthand.
    return bool(declared) and not set(declared) <= _SCHEMA_WORDS
