"""What people pass and return, as plain JSON values.

Dataclasses, msgspec structs, enums, dates and the like become what JSON has; a pydantic model, or
anything else with `model_dump`, dumps itself, so that no framework has to be imported here.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

from nodrop.model.errors import InvalidRequestError, Problem, TooLargeError
from nodrop.protocol.decoding import examine


def plain(value: Any, path: str = "") -> Any:
    """Return `value` in the terms of JSON; `path` is what a complaint calls it.

    Raises:
        TypeError: something in it has no JSON form.
        TooLargeError: it is nested too deep, or without end.
        InvalidRequestError: two keys of a dict are the same in JSON.
    """
    if value is None:  # which is most of what may be given
        return None
    try:
        made = msgspec.to_builtins(value, str_keys=True, enc_hook=_dumped)
        # What is plain already, as most is, has lost nothing. The comparison meets the same
        # objects on both sides, and is much cheaper than looking at every key.
        if made != value:
            _require_all_keys(value, made, path)
    except RecursionError:
        raise TooLargeError("the value is nested too deep, or without end") from None
    return made


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None: only what was said is sent."""
    return {name: value for name, value in fields.items() if value is not None}


def listed(words: Iterable[str], path: str) -> list[str]:
    """Return `words` as a list. A text alone is one of them, not a row of letters.

    Raises:
        InvalidRequestError: they are no words; `path` is what they are called.
    """
    if isinstance(words, str):
        return [words]
    require(path, words, Iterable, "texts")
    found = list(words)
    for index, word in enumerate(found):
        require(f"{path}[{index}]", word, str)
    return found


def fields_of(said: Any, path: str) -> dict[str, Any]:
    """Return a mapping, or anything else that is a JSON object, in plain values.

    Raises:
        InvalidRequestError: it is neither; `path` is what it is called.
    """
    made: Any = plain(dict(cast("Any", said)) if isinstance(said, Mapping) else said, path)
    require(path, made, dict, "object")
    return made


def require(path: str, said: object, kind: type[Any], expected: str = "") -> None:
    """Refuse an argument that is not of its kind: not everybody has types checked."""
    if not isinstance(said, kind):
        raise unexpected(path, expected or kind.__name__, type(said).__name__)


def unexpected(path: str, expected: str, got: str) -> InvalidRequestError:
    """Return the refusal of an argument; `got` says what it was like, and no secret."""
    problem = Problem(path=path, message=f"Expected {expected}, got {got}")
    return InvalidRequestError(f"{path}: {problem.message}", errors=(problem,))


def _require_all_keys(value: Any, made: Any, path: str) -> None:
    """Refuse a `value` of which a key went missing when it was `made` plain: 1 beside "1"."""
    try:
        written = msgspec.json.encode(value, enc_hook=_dumped)  # which has such a key twice
        if len(written) == len(msgspec.json.encode(made)):
            return
        problem = examine(written)
    except (TypeError, ValueError, OverflowError):
        return  # it cannot be written: whoever sends it says what is wrong
    if problem is None:
        return
    between = "." if path and not problem.path.startswith("[") else ""
    problem = Problem(path=f"{path}{between}{problem.path}", message=problem.message)
    raise InvalidRequestError(
        f"{problem.path}: {problem.message}",
        next_step="Make the keys texts that differ: 1 and '1' are one key in JSON.",
        errors=(problem,),
    )


def _dumped(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return dump(mode="json")
