"""One type hint: the JSON Schema it stands for, and the value of that type from plain JSON.

msgspec knows dataclasses, structs, typed dicts, enums, dates and the rest of the standard types.
A pydantic model, or anything else with `model_json_schema` and `model_validate`, speaks for
itself; bounds in an `Annotated` are kept, pydantic's among them. No schema refers to anything outside of itself.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, cast, get_args, get_origin

import msgspec

from nodrop.client.working.constraints import UNIONS, understood

DEFS: Final = "$defs"
_LOCAL: Final = f"#/{DEFS}/"
Mode = Literal["validation", "serialization"]
_EXACT: Final = (str, int, bool)
"""Types whose values in plain JSON are what they are."""


class Hint:
    """A type hint of a parameter or of what is returned."""

    def __init__(self, kind: Any, *, mode: Mode = "validation") -> None:
        """Read a hint.

        Args:
            kind: the type.
            mode: whether values come in or go out; models may look different then.

        Raises:
            TypeError: it has no JSON form.
        """
        self.kind = Any if kind is object else understood(kind)
        self.anything = self.kind is Any
        self.exact = self.kind if self.kind in _EXACT else None
        """A type whose values in plain JSON are what they are."""
        self._members = _members(self.kind, mode)
        self._mode: Mode = mode
        self._models: dict[str, Any] = {}
        self.schema, self.defs = self._schema()

    def convert(self, value: Any) -> Any:
        """Return plain `value` as this type.

        Raises:
            msgspec.ValidationError: it does not fit; the message says where.
        """
        if type(value) is self.exact:
            return value
        if not self._members:
            return msgspec.convert(value, self.kind, dec_hook=_validated, str_keys=True)
        failure: msgspec.ValidationError | None = None
        for member in self._members:
            try:
                return member.convert(value)
            except msgspec.ValidationError as error:
                failure = failure or error
        assert failure is not None, "a union has members"
        raise failure

    @property
    def is_object(self) -> bool:
        """Whether every value of this type is a JSON object."""
        return self._unfolded().get("type") == "object"

    @property
    def properties(self) -> dict[str, Any]:
        """The keys that values of this type are known to have."""
        return self._unfolded().get("properties", {})

    def _unfolded(self) -> dict[str, Any]:
        reference = self.schema.get("$ref")
        return self.schema if reference is None else self.defs[reference.removeprefix(_LOCAL)]

    def _schema(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if self._members:
            defs: dict[str, Any] = {}
            for member in self._members:
                defs |= member.defs
            return {"anyOf": [member.schema for member in self._members]}, defs
        (schema,), defs = msgspec.json.schema_components(
            [self.kind], schema_hook=self._model, ref_template=f"{_LOCAL}{{name}}"
        )
        return schema, defs | self._models

    def _model(self, kind: type[Any]) -> dict[str, Any]:
        """Return the schema of a type that msgspec does not know; its parts join ours."""
        if kind is object:
            return {"description": "anything"}
        describe = getattr(kind, "model_json_schema", None)
        if describe is None:
            raise TypeError(f"{kind.__name__} has no JSON form")
        # Parts of different models may have the same name.
        prefix = kind.__name__
        schema: dict[str, Any] = describe(
            mode=self._mode, ref_template=f"{_LOCAL}{prefix}.{{model}}"
        )
        parts: dict[str, Any] = schema.pop(DEFS, {})
        self._models |= {f"{prefix}.{name}": part for name, part in parts.items()}
        reference = schema.get("$ref")  # a model that holds itself
        return schema if reference is None else {"$ref": reference}


def document(schema: dict[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Return `schema` with the definitions it needs; one that is only a reference is unfolded."""
    if not defs:
        return schema
    reference = schema.get("$ref")
    if reference is not None and len(schema) == 1:
        name = reference.removeprefix(_LOCAL)
        rest = {key: part for key, part in defs.items() if key != name}
        if not _mentions([defs[name], *rest.values()], reference):
            return document(defs[name], rest)
    return {**schema, DEFS: dict(defs)}


def shape(said: Any, *, mode: Mode) -> dict[str, Any] | None:
    """Return a shape: names and short types, a JSON Schema, or the one that a type stands for.

    Raises:
        TypeError: the type has no JSON form.
    """
    if said is None:
        return None
    if isinstance(said, Mapping):
        return dict(cast("Mapping[str, Any]", said))
    hint = Hint(said, mode=mode)
    return document(hint.schema, hint.defs)


def _members(kind: Any, mode: Mode) -> tuple[Hint, ...]:
    """Return the members of a union that msgspec does not take as one, such as two dataclasses."""
    if get_origin(kind) not in UNIONS:
        return ()
    try:
        msgspec.json.schema_components([kind], schema_hook=lambda _: {})
    except TypeError:
        return tuple(Hint(member, mode=mode) for member in get_args(kind))
    return ()


def _mentions(value: Any, reference: str) -> bool:
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        return found.get("$ref") == reference or _mentions(list(found.values()), reference)
    if isinstance(value, list):
        return any(_mentions(item, reference) for item in cast("list[Any]", value))
    return False


def _validated(kind: type[Any], value: Any) -> Any:
    """Return `value` as a type that msgspec does not know."""
    if isinstance(value, kind):
        return value
    return cast("Any", kind).model_validate(value)
