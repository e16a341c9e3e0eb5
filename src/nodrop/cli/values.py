"""What people type, as values: JSON or text, from the command line, a file or stdin."""

import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Never

import msgspec

from nodrop.client.durations import Wait
from nodrop.model.errors import InvalidRequestError, NotFoundError, Problem, TooLargeError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol.times import parse_duration


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that were given, so that the relay fills in the rest."""
    return {name.rstrip("_"): value for name, value in fields.items() if value is not None}


def duration_ms(written: str, *, path: str) -> int:
    """Return a duration in milliseconds; `path` names it in the refusal."""
    try:
        return parse_duration(written)
    except ValueError as error:
        problem = Problem(path=path, message=str(error))
        raise InvalidRequestError(f"{path}: {error}", errors=(problem,)) from None


def limits(written: Iterable[str], *, path: str) -> Limits:
    """Return the default bounds with `NAME=VALUE` changed; `path` names it in the refusal."""
    changed = {name: value for name, _, value in (each.partition("=") for each in written)}
    kept = {name: getattr(DEFAULT, name) for name in Limits.__struct_fields__}
    if unknown := sorted(changed.keys() - kept.keys()):
        raise _wrong_bound(path, f"there is no bound called {unknown[0]!r}")
    try:
        read = msgspec.convert(kept | changed, Limits, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong_bound(path, str(error)) from None
    if low := [name for name in changed if getattr(read, name) <= 0]:
        raise _wrong_bound(path, f"{low[0]} must be more than 0")
    return read


def _wrong_bound(path: str, why: str) -> InvalidRequestError:
    problem = Problem(path=path, message=why)
    return InvalidRequestError(f"{path}: {why}", errors=(problem,))


def json_or_text(written: str) -> Any:
    """Return a value: JSON if it parses, else the text; `@file` and `-` say where it is."""
    return _parsed(text_of(written).strip())


def typed(written: str) -> Any:
    """Return what a person typed: as `json_or_text`, but 4.10 is a version and not 4.1."""
    text = text_of(written).strip()
    value = _parsed(text)
    return text if isinstance(value, float) and repr(value) != text else value


def _parsed(text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError:
        return text


def text_of(written: str) -> str:
    """Return `written`, or what the file `@name` or stdin (`-`) holds."""
    if written == "-":
        return _decoded(sys.stdin.buffer.read(DEFAULT.frame_bytes_max + 1), "stdin")
    if written.startswith("@"):
        return file_text(written[1:])
    return written


def file_text(name: str) -> str:
    """Return what the file called `name` holds; `-` is stdin."""
    if name == "-":
        return text_of(name)
    try:
        with Path(name).open("rb") as file:
            return _decoded(file.read(DEFAULT.frame_bytes_max + 1), name)
    except OSError as error:
        raise NotFoundError(
            f"cannot read {name}: {error.strerror}", next_step="Check the name of the file."
        ) from error


def json_of(written: str, *, path: str) -> Any:
    """Return the JSON that `written` is, or where it is; `path` names it in the refusal."""
    return decode(text_of(written), path=path)


def decode(text: str, *, path: str) -> Any:
    """Return the value of JSON text; `path` names it in the refusal."""
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        place = f"{path} line {error.lineno} column {error.colno}"
        problem = Problem(path=place, message=f"is not JSON: {error.msg}")
        raise InvalidRequestError("it cannot be read", errors=(problem,)) from error
    except ValueError as error:
        problem = Problem(path=path, message=str(error))
        raise InvalidRequestError("it cannot be read", errors=(problem,)) from error


def waiting(duration: str, *, option: str) -> Wait:
    """Return a wait as long as `duration`; `option` names it in the refusal."""
    return Wait(duration, path=option)


def parse_json(text: str) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: it is not JSON; a `JSONDecodeError` says where.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_members)
    except RecursionError:
        raise ValueError("is nested too deep") from None


def _no_constant(word: str) -> Never:
    raise ValueError(f"{word} is not JSON")


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):  # one of them would be dropped without a word
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"has the key {twice[:100]!r} more than once")
    return members


def _decoded(content: bytes, name: str) -> str:
    if len(content) > DEFAULT.frame_bytes_max:
        raise TooLargeError(f"{name} is larger than {DEFAULT.frame_bytes_max} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        problem = Problem(path=name, message=f"is not UTF-8 at byte {error.start}")
        raise InvalidRequestError("it cannot be read", errors=(problem,)) from error
