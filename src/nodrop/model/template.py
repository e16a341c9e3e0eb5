"""Templates: JSON in which `${result.cause}` stands for a value that is known later.

A string that is nothing but one reference becomes the value itself, of whatever type; references
inside longer strings are spelled out there. `$${` is a plain `${`. There are no expressions: what
is to be computed is computed by an agent, or by the condition of a trigger.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

_REFERENCE: Final = re.compile(r"(\$?)\$\{([^{}]*)\}")
_PATH: Final = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+|\[\d{1,6}\])*", re.ASCII)
_STEP: Final = re.compile(r"[\w-]+", re.ASCII)


class UnfilledError(Exception):
    """A reference leads nowhere. `reference` says which."""

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self.reference = reference


def problems(template: Any, roots: Sequence[str], path: str) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a template: where, and why. `roots` is what references begin with."""
    if isinstance(template, str):
        for escaped, reference in _REFERENCE.findall(template):
            root = _STEP.match(reference)
            if escaped:
                continue
            if not _PATH.fullmatch(reference):
                yield path, f"${{{reference}}} is no reference"
            elif root is None or root.group() not in roots:
                yield path, f"${{{reference}}} begins with none of {', '.join(roots)}"
    elif isinstance(template, dict):
        for name, inner in cast("dict[str, Any]", template).items():
            yield from problems(inner, roots, f"{path}.{name}")
    elif isinstance(template, list):
        for index, inner in enumerate(cast("list[Any]", template)):
            yield from problems(inner, roots, f"{path}[{index}]")


def filled(template: Any, values: Mapping[str, Any]) -> Any:
    """Return `template` with its references replaced.

    Raises:
        UnfilledError: one of them leads nowhere.
    """
    if isinstance(template, str):
        return _filled_text(template, values)
    if isinstance(template, dict):
        inner = cast("dict[str, Any]", template)
        return {name: filled(value, values) for name, value in inner.items()}
    if isinstance(template, list):
        return [filled(value, values) for value in cast("list[Any]", template)]
    return template


def _filled_text(text: str, values: Mapping[str, Any]) -> Any:
    whole = _REFERENCE.fullmatch(text)
    if whole and not whole.group(1):
        return _looked_up(whole.group(2), values)

    def spelled(found: re.Match[str]) -> str:
        if found.group(1):
            return f"${{{found.group(2)}}}"
        value = _looked_up(found.group(2), values)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return _REFERENCE.sub(spelled, text)


def _looked_up(reference: str, values: Mapping[str, Any]) -> Any:
    value: Any = values
    for step in _STEP.findall(reference):
        if isinstance(value, Mapping) and step in value:
            value = cast("Mapping[str, Any]", value)[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):  # pyright: ignore[reportUnknownArgumentType]  # any JSON
            value = cast("list[Any]", value)[int(step)]
        else:
            raise UnfilledError(reference)
    return value
