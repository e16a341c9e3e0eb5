"""Strict JSON: bytes to structs, or a problem that names its path.

Every door reads requests through `decode_strict`, so that all of them refuse the same things with
the same words. msgspec checks while it decodes; what it lets pass is refused here: a key twice in
one object, integers over 64 bits, nesting over the bound. Sizes are the doors' business, because
they can refuse before they read.
"""

import contextlib
import difflib
import functools
import itertools
import json
import math
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from nodrop.model.errors import InvalidRequestError, Problem, TooLargeError
from nodrop.model.limits import Limits
from nodrop.protocol.canonical import EXTREME_BYTES_MIN, has_extremes

T = TypeVar("T")

INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1
_INTEGER_DIGITS_SAFE: Final = 18
"""So many digits always fit."""
_QUERY_FIELDS_MAX: Final = 64
_QUERY_BYTES_KEPT: Final = 128
"""Longer ones are not asked often."""
_SHOWN_CHARS_MAX: Final = 200
"""How much of what the caller sent a problem repeats."""

_encode: Final = msgspec.json.Encoder().encode
_format: Final = msgspec.json.format
_PLAIN: Final = msgspec.json.Decoder(float_hook=float)
"""Takes no longer over numbers near 1e308 than over others (`canonical.has_extremes`)."""
_NOTHING: Final = object()


def decode_strict(data: bytes, kind: type[T], limits: Limits) -> T:
    """Return `data`, a JSON object, as a `kind`.

    Raises:
        InvalidRequestError: it is no JSON, or no `kind`; `errors` says where.
        TooLargeError: a field of it nests too deep.
    """
    most = limits.json_levels_max + 1  # the object itself, and the levels of each of its fields
    if data.count(b"{") + data.count(b"[") > most and _deeper(data, most):
        raise _too_deep(_deep_field(data, most), limits.json_levels_max)
    hook = float if len(data) >= EXTREME_BYTES_MIN and has_extremes(data) else None
    try:
        value: T = _decoder(kind, hook).decode(data)
        plain = _decoder(object, hook).decode(data)  # also looks into fields that `kind` keeps raw
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _why(error, kind, data) from None
    # What is written has every key once, and so has what came if it is the same, spaces apart. Other
    # spellings of a value (`1e3`, `\u00e9`) need a closer look, and long numbers.
    written = _encode(plain)
    if (written != data and written != _format(data, indent=-1)) or (
        _LONG_NUMBER in data.translate(_DIGITS) and _has_long_number(data)
    ):
        problem = examine(data)
        if problem is not None:
            raise _invalid(problem)
    return value


def decode_plainly(data: bytes, decoder: msgspec.json.Decoder[T], limits: Limits) -> T | None:
    """Return `data`, an array of objects or one of them, as `decoder` reads the array.

    None: a cheap look finds something that msgspec might let pass, or it is no such array. Each object
    is to be decoded strictly, which may still find nothing wrong.
    """
    try:
        value = _PLAIN.decode(data)
        written = _encode(value)
        if written != data and written != _format(data, indent=-1):
            return None
        if _LONG_NUMBER in data.translate(_DIGITS) and _has_long_number(data):
            return None
        most = limits.json_levels_max + 1  # an object itself, and the levels of each of its fields
        brackets = data.count(b"{") + data.count(b"[")
        if brackets > most:
            if not isinstance(value, list):
                return None
            values = _elements(value)  # one bracket for the array, and one for each other object
            if brackets > most + len(values) and any(
                each.count(b"{") + each.count(b"[") > most for each in map(_encode, values)
            ):
                return None
        return decoder.decode(data if data.startswith(b"[") else b"[%b]" % data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def peek(data: bytes, kind: type[T], limits: Limits) -> T:
    """Return the fields of `data` that a `kind` has. The rest is still to be decoded strictly.

    Raises:
        InvalidRequestError: it is no JSON, or one of these fields is wrong.
        TooLargeError: a field of it nests too deep to be passed over.
    """
    hook = float if len(data) >= EXTREME_BYTES_MIN and has_extremes(data) else None
    try:
        return _decoder(kind, hook).decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _why(error, kind, data) from None
    except RecursionError:
        path = _deep_field(data, limits.json_levels_max + 1)
        raise _too_deep(path, limits.json_levels_max) from None


def decode_query(query: bytes, kind: type[T]) -> T:
    """Return a query string as a `kind`.

    Raises:
        InvalidRequestError: it is none; `errors` says where.
    """
    return (_read_query_once if len(query) <= _QUERY_BYTES_KEPT else _read_query)(query, kind)


def _read_query(query: bytes, kind: type[T]) -> T:
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_QUERY_FIELDS_MAX,
        )
    except ValueError:  # not ASCII, not UTF-8 once unquoted, or too many fields
        problem = Problem(path="", message="the query string cannot be read")
        raise _invalid(problem) from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        name = _repeated(pairs)
        raise _invalid(Problem(path=_shown(name), message="given more than once"))
    try:
        request = msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(_explain(str(error), kind, b"{}")) from None
    for name in fields:
        value = getattr(request, name, _NOTHING)
        if isinstance(value, int) and not INTEGER_MIN <= value <= INTEGER_MAX:
            raise _invalid(Problem(path=name, message=_OVER_64_BITS))
        if value is None:  # which is how msgspec reads the word "null"
            raise _invalid(Problem(path=name, message="leave it out to say nothing"))
    return request


_read_query_once: Final = functools.lru_cache(maxsize=1_024)(_read_query)
"""For the same few that are asked over and over. What they are read as is frozen."""


def encode_strict(fields: Mapping[str, Any]) -> bytes:
    """Return the JSON object that a caller in this process means by `fields`.

    Raises:
        InvalidRequestError: JSON has no way to write one of them; `errors` says which.
        TooLargeError: one of them nests without end.
    """
    try:
        data = _encode(fields)
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise _unwritable(fields) from None
    if b"null" in data:  # which is how msgspec writes a number that JSON does not have
        problem = next(_not_finite(fields, ""), None)
        if problem is not None:
            raise _invalid(problem)
    return data


@functools.cache
def _decoder(kind: type[Any], float_hook: type[float] | None) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, float_hook=float_hook)


def _why(
    error: msgspec.DecodeError | UnicodeDecodeError, kind: type[Any], data: bytes
) -> InvalidRequestError:
    """Return what is wrong with `data`, which is no `kind`."""
    if isinstance(error, msgspec.ValidationError):
        return _invalid(_explain(str(error), kind, data))
    not_text = isinstance(error, UnicodeDecodeError)
    message = "the text is not valid UTF-8" if not_text else str(error)
    return _invalid(Problem(path="", message=message))


def _invalid(problem: Problem) -> InvalidRequestError:
    where = f"{problem.path}: " if problem.path else ""
    return InvalidRequestError(f"{where}{problem.message}", errors=(problem,))


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


def _member(path: str, name: str) -> str:
    return f"{path}.{_shown(name)}" if path else _shown(name)


# --- what msgspec refused ------------------------------------------------------------------------

# msgspec tells where only in the text of its errors; `tests/protocol` pins the forms relied on here.
_PLACE: Final = re.compile(r"(?s)(.*?)(?: - at (?:`key` in )?`\$([^`]*)`)?")
_UNKNOWN: Final = re.compile(r"(?s)Object contains unknown field `(.*)`")
_MISSING: Final = re.compile(r"(?s)Object missing required field `(.*)`")
_STEP: Final = re.compile(r"\.([^.\[]+)|(\[)")
_SOMEWHERE: Final = "[...]"
"""How msgspec writes a step into an object of unknown keys."""


def _explain(text: str, kind: type[Any], data: bytes) -> Problem:
    parts = _PLACE.fullmatch(text)
    message, place = (parts[1], parts[2] or "") if parts else (text, "")
    if _SOMEWHERE in place:  # inside a payload: name the place in full, or the field at least
        with contextlib.suppress(ValueError):  # what comes after it need not be JSON
            problem = examine(data)
            if problem is not None:
                return problem
        place = place.split(_SOMEWHERE, 1)[0]
    path = place.removeprefix(".")
    if unknown := _UNKNOWN.fullmatch(message):
        close = difflib.get_close_matches(unknown[1][:64], _fields_at(kind, place), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return Problem(path=_member(path, unknown[1]), message=f"unknown field{hint}")
    if missing := _MISSING.fullmatch(message):
        return Problem(path=_member(path, missing[1]), message="required, and missing")
    return Problem(path=path, message=_shown(message.replace("`", "")))


def _fields_at(kind: type[Any], place: str) -> list[str]:
    """Return the names of the fields of the struct at `place` within a `kind`."""
    here = _of_interest(msgspec.inspect.type_info(kind))
    for step in _STEP.finditer(place):
        match here:
            case msgspec.inspect.StructType(fields=fields):
                here = next((f.type for f in fields if f.encode_name == step[1]), None)
            case (
                msgspec.inspect.VarTupleType(item_type=item)
                | msgspec.inspect.ListType(item_type=item)
            ):
                here = item
            case _:
                return []
        here = _of_interest(here)
    if isinstance(here, msgspec.inspect.StructType):
        return [field.encode_name for field in here.fields]
    return []


def _of_interest(info: msgspec.inspect.Type | None) -> msgspec.inspect.Type | None:
    """Return the member of `X | None` that can hold fields."""
    if not isinstance(info, msgspec.inspect.UnionType):
        return info
    holders = (
        msgspec.inspect.StructType,
        msgspec.inspect.VarTupleType,
        msgspec.inspect.ListType,
    )
    return next((member for member in info.types if isinstance(member, holders)), None)


# --- what msgspec lets pass ----------------------------------------------------------------------

_DIGITS: Final = bytes(ord("0") if chr(byte).isdigit() else ord(" ") for byte in range(128)).ljust(
    256
)
_LONG_NUMBER: Final = b"0" * (_INTEGER_DIGITS_SAFE + 1)


def _has_long_number(data: bytes) -> bool:
    """Whether a number is so long that it need not fit. Keys and ids are full of digits: they do not count."""
    return _LONG_NUMBER in _STRINGS.sub(b"", data).translate(_DIGITS)


class _Wrong:
    """Stands where something wrong was found."""

    def __init__(self, message: str, key: str | None = None) -> None:
        self.message = message
        self.key = key


def examine(data: bytes) -> Problem | None:
    """Return the first thing wrong that msgspec does not see, or does not place."""
    found: list[_Wrong] = []

    def wrong(message: str, key: str | None = None) -> _Wrong:
        found.append(_Wrong(message, key))
        return found[-1]

    def members(pairs: list[tuple[str, Any]]) -> Any:
        once = dict(pairs)
        if len(once) == len(pairs):
            return once
        return wrong("the key is there more than once", _repeated(pairs))

    def integer(digits: str) -> Any:
        if len(digits) > _INTEGER_DIGITS_SAFE and (
            len(digits) > len(str(INTEGER_MIN)) or not INTEGER_MIN <= int(digits) <= INTEGER_MAX
        ):
            return wrong(_OVER_64_BITS)
        return None

    def number(digits: str) -> Any:
        return None if math.isfinite(float(digits)) else wrong(_OUT_OF_RANGE)

    value = json.loads(data, object_pairs_hook=members, parse_int=integer, parse_float=number)
    return next(_places(value, ""), None) if found else None


def _places(value: Any, path: str) -> Iterator[Problem]:
    match value:
        case _Wrong():
            place = path if value.key is None else _member(path, value.key)
            yield Problem(path=place, message=value.message)
        case dict():
            for name, item in _items(value):
                yield from _places(item, _member(path, name))
        case list():
            for index, item in enumerate(_elements(value)):
                yield from _places(item, f"{path}[{index}]")
        case _:
            pass


def _repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(name for name, _ in pairs if name in seen or seen.add(name))


# --- depth ---------------------------------------------------------------------------------------

# Possessive, and content with a string that never ends: linear whatever the caller sends.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_STRINGS: Final = re.compile(_STRING, re.DOTALL)
_TOKEN: Final = re.compile(rb"(" + _STRING + rb")(\s*:)?|[\[{]|[\]}]", re.DOTALL)
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"[]{}")
_UP, _DOWN = b"\x01", b"\xff"
_STEPS: Final = bytes.maketrans(b"[{]}", _UP * 2 + _DOWN * 2)
"""Each bracket as the signed byte that it adds to the depth."""
_LEVELS_USUAL: Final = 8


def _too_deep(path: str, levels_max: int | None) -> TooLargeError:
    message = f"nested deeper than {levels_max} levels" if levels_max else "nested without end"
    where = f"{path}: " if path else ""
    return TooLargeError(f"{where}{message}", errors=(Problem(path=path, message=message),))


def _deeper(data: bytes, most: int) -> bool:
    """Whether brackets nest deeper than `most`."""
    steps = _STRINGS.sub(b"", data).translate(_STEPS, _NO_BRACKETS)
    left = steps
    for _ in range(min(most, _LEVELS_USUAL)):  # the innermost go first: soon done with most data
        left = left.replace(_UP + _DOWN, b"")
        if not left:
            return False
    return max(itertools.accumulate(array("b", steps))) > most


def _deep_field(data: bytes, most: int) -> str:
    """Return the field of the outermost object in which brackets nest deeper than `most`."""
    depth, field = 0, b'""'
    for token in _TOKEN.finditer(data):
        if token[1] is not None:
            if depth == 1 and token[2] is not None:
                field = token[1]
        elif token[0] in b"[{":
            depth += 1
            if depth > most:
                break
        else:
            depth -= 1
    try:
        return _shown(msgspec.json.decode(field, type=str))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


# --- values of this process ----------------------------------------------------------------------

_OUT_OF_RANGE: Final = "the number is out of range"
_OVER_64_BITS: Final = "the integer does not fit into 64 bits"


def _unwritable(fields: Mapping[str, Any]) -> InvalidRequestError | TooLargeError:
    for name, value in fields.items():
        try:
            _encode(value)
        except RecursionError:
            return _too_deep(_shown(name), None)
        except UnicodeEncodeError:
            break  # as over a wire, where such a text cannot be read at all
        except (TypeError, ValueError, OverflowError) as error:
            return _invalid(Problem(path=_shown(name), message=_shown(str(error))))
    return _invalid(Problem(path="", message="the text is not valid UTF-8"))


def _not_finite(value: Any, path: str) -> Iterator[Problem]:
    match value:
        case float():
            if not math.isfinite(value):
                yield Problem(path=path, message=_OUT_OF_RANGE)
        case Mapping():
            for name, item in _items(value):
                yield from _not_finite(item, _member(path, str(name)))
        case list() | tuple():
            for index, item in enumerate(_elements(value)):
                yield from _not_finite(item, f"{path}[{index}]")
        case _:
            pass


def _items(value: Any) -> list[tuple[Any, Any]]:
    return list(value.items())


def _elements(value: Any) -> list[Any]:
    return list(value)
