"""What people pass and return, as plain JSON values.

Dataclasses, msgspec structs, enums, dates and the like become what JSON has; a pydantic model, or
anything else with `model_dump`, dumps itself, so that no framework has to be imported here.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from nodrop.core.errors import TooLargeError


def plain(value: Any) -> Any:
    """Return `value` in the terms of JSON.

    Raises:
        TypeError: something in it has no JSON form.
        TooLargeError: it is nested too deep, or without end.
    """
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=_dumped)
    except RecursionError:
        raise TooLargeError("the value is nested too deep, or without end") from None


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None: only what was said is sent."""
    return {name: value for name, value in fields.items() if value is not None}


def listed(words: Iterable[str]) -> list[str]:
    """Return `words` as a list. A text alone is one of them, not a row of letters."""
    return [words] if isinstance(words, str) else list(words)


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return dump(mode="json")
