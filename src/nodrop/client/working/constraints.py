"""Bounds that `pydantic.Field` and `annotated_types` put on a hint, in the words of msgspec.

msgspec passes over what it does not know in an `Annotated`, and with it over the bounds. Only those
are kept that JSON Schema has too; pydantic's validators are for its models. Nothing is imported: a
bound is known by its name, and by whose it is.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import msgspec

UNIONS: Final = frozenset({Union, UnionType})
"""The origins of a hint with several members."""
_MAKERS: Final = frozenset({"annotated_types", "pydantic"})
_NUMBERS: Final = frozenset({int, float})
_COUNTED: Final = frozenset(
    {str, bytes, bytearray, list, set, frozenset, dict, Sequence, AbstractSet, Mapping}
)
_FOR: Final[dict[str, tuple[frozenset[Any], type | tuple[type, ...]]]] = {
    "gt": (_NUMBERS, (int, float)),
    "ge": (_NUMBERS, (int, float)),
    "lt": (_NUMBERS, (int, float)),
    "le": (_NUMBERS, (int, float)),
    "multiple_of": (_NUMBERS, (int, float)),
    "min_length": (_COUNTED, int),
    "max_length": (_COUNTED, int),
    "pattern": (frozenset({str}), str),
}
"""What each bound is for, and how it is said."""


def understood(kind: Any) -> Any:
    """Return a hint with its bounds said in a way that msgspec understands."""
    parts = get_args(kind)
    if get_origin(kind) is Annotated:
        inner = understood(parts[0])
        bounds = dict(_bounds(parts[1:]))
        kept = [said for said in parts[1:] if isinstance(said, msgspec.Meta)]
        bound = _bounded(inner, bounds) if bounds else inner
        return Annotated[(bound, *kept)] if kept else bound
    made = tuple(understood(part) for part in parts)
    if all(new is old for new, old in zip(made, parts, strict=True)):
        return kind
    return _of_parts(kind, made)


def _bounds(said: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield what somebody else's annotations say about the size of a value."""
    for one in said:
        if type(one).__module__.partition(".")[0] not in _MAKERS:
            continue
        yield from _bounds(getattr(one, "metadata", ()))  # of a `Field`
        for name, (_, spelling) in _FOR.items():
            value: Any = getattr(one, name, None)
            value = getattr(value, "pattern", value)  # one that is compiled
            if isinstance(value, spelling):
                yield name, value


def _bounded(kind: Any, bounds: Mapping[str, Any]) -> Any:
    """Return `kind` within the bounds that are for it; of a union, each member."""
    origin = get_origin(kind) or kind
    if origin is Annotated:
        inner, *said = get_args(kind)
        return Annotated[(_bounded(inner, bounds), *said)]
    if origin in UNIONS:
        return _of_parts(kind, tuple(_bounded(member, bounds) for member in get_args(kind)))
    for name, value in bounds.items():
        if origin in _FOR[name][0]:
            kind = Annotated[kind, msgspec.Meta(**{name: value})]
    return kind


def _of_parts(kind: Any, parts: tuple[Any, ...]) -> Any:
    origin: Any = get_origin(kind)
    return Union[parts] if origin in UNIONS else origin[parts]  # noqa: UP007  # made, not written
