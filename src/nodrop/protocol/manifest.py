"""The manifest as a JSON Schema: what agents publish about themselves, for tools in any language.

Pure: nothing is written here. `nodrop.app.write_schemas` puts it into `schema/`, and a test fails
when what is there is not what this makes. The relay checks more than a schema can say: that names
are not repeated, that the schemas in it compile and that they refer to nothing outside.
"""

from typing import Any, Final

import msgspec

from nodrop.model.contract import SHORT_TYPES, Manifest
from nodrop.protocol import fields

_SCHEMAS: Final = ("input_schema", "output_schema")
_MEANING: Final = (
    "What it takes or returns: names and short types, all required and others welcome; "
    "or a JSON Schema 2020-12 that refers to nothing outside of itself."
)


def document() -> dict[str, Any]:
    """Return the schema."""
    _, parts = msgspec.json.schema_components([Manifest], ref_template="#/$defs/{name}")
    # Defaults are Python values still, tuples among them.
    parts = fields.plain(msgspec.json.decode(msgspec.json.encode(parts)))
    fields.describe(parts, list(parts))
    for name in fields.SHARED:  # which no manifest refers to
        del parts[name]
    for name in _SCHEMAS:
        parts["Capability"]["properties"][name] = {
            "description": _MEANING,
            "anyOf": [
                {
                    "type": "object",
                    "minProperties": 1,
                    "additionalProperties": {"enum": sorted(SHORT_TYPES)},
                },
                {"$ref": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
                {"type": "null"},
            ],
            "default": None,
        }
    whole = parts.pop("Manifest")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Made from `nodrop.model.contract`; not edited by hand.",
        **whole,
        "$defs": dict(sorted(parts.items())),
    }
