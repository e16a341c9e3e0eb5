"""Parts of messages and artifacts, and the JSON that a handoff carries instead.

One plain data part, or one plain text, is the payload a native agent would get; anything richer
keeps its parts as A2A writes them, so that they come out as they went in.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeGuard

import msgspec
from a2a.types import Artifact, Message, Part
from google.protobuf.json_format import Error, MessageToDict, ParseDict, ParseError
from google.protobuf.struct_pb2 import Struct

from nodrop.model.errors import InvalidRequestError
from nodrop.protocol import canonical

_SAFE_INTEGER: Final = 2**53
_INTEGER_MAX: Final = int(sys.float_info.max)
_RICH: Final = ("metadata", "filename", "media_type")
_LEVELS_MAX: Final = 28
"""Levels of JSON that protobuf reads, at three of its hundred each, within the messages of A2A."""


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether a JSON value is a list."""
    return isinstance(value, list)


def read(message: Any) -> Any:
    """Return a message as JSON.

    Raises:
        InvalidRequestError: it holds what JSON cannot, such as a number that is not finite.
    """
    try:
        return plain(MessageToDict(message))
    except (Error, ValueError):
        raise InvalidRequestError(
            "the message holds a value that is no JSON",
            next_step="Send finite numbers, texts, lists and objects.",
        ) from None


def plain(value: Any) -> Any:
    """Return JSON as it was written: protobuf reads every number as a float."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _SAFE_INTEGER:
        return int(value)
    if is_object(value):
        return {name: plain(held) for name, held in value.items()}
    return [plain(held) for held in value] if is_list(value) else value


def struct(values: Mapping[str, Any]) -> Struct:
    """Return an object as protobuf has it; what is nested too deeply for that, as JSON in a text."""
    made = Struct()
    made.update({name: _shallow(value, _LEVELS_MAX) for name, value in values.items()})
    return made


def payload(parts: Sequence[Part], *, typed: bool) -> tuple[Any, str]:
    """Return the payload that parts mean, and the form they had.

    Args:
        parts: of one message.
        typed: whether the recipient takes an object of its own; then a text that is one will do.
    """
    if len(parts) == 1 and not _rich(parts[0]):
        (only,) = parts
        if only.HasField("text"):
            written = _object_in(only.text) if typed else None
            return ({"text": only.text}, "text") if written is None else (written, "json")
        data = read(only.data) if only.HasField("data") else None
        if is_object(data):
            return data, "data"
    texts = [part.text for part in parts if part.HasField("text")]
    return {"text": "\n".join(texts), "parts": [read(part) for part in parts]}, "parts"


def restored(held: Any, form: str | None) -> list[Part]:
    """Return the parts that a payload came from, or would have come from."""
    if is_object(held):
        if form == "text" and isinstance(held.get("text"), str):
            return [Part(text=held["text"])]
        if form == "json":
            return [Part(text=canonical.dumps(held).decode())]
        if form == "parts" and (parts := _parts(held.get("parts"))):
            return parts
    return of_value(held)


def of_value(value: Any) -> list[Part]:
    """Return a JSON value as parts: a text as one, anything else as data.

    What is nested too deeply for A2A is a text that says it in JSON.
    """
    if isinstance(value, str):
        return [Part(text=value)]
    if not _fits(value):
        return [Part(text=canonical.dumps(value).decode(), media_type="application/json")]
    return [ParseDict({"data": value}, Part())]


def answer(parts: Sequence[Part]) -> Any:
    """Return what parts say in answer to a question: a text, or data."""
    held, form = payload(parts, typed=False)
    return held["text"] if form == "text" else held


def artifacts(result: Any, handoff_id: str) -> list[Artifact]:
    """Return a result as artifacts.

    An agent that knows A2A may return `{"artifacts": […]}`, `{"parts": […]}` or `{"message": {…}}`,
    written as A2A writes them; every other result is one artifact.
    """
    if result is None:
        return []
    only, held = _only(result)
    if only == "artifacts" and (found := _artifacts(held, handoff_id)):
        return found
    if only == "message" and is_object(held):
        held = held.get("parts")
    parts = _parts(held) if only in {"parts", "message"} else None
    return [
        Artifact(artifact_id=f"{handoff_id}-result", name="result", parts=parts or of_value(result))
    ]


def message(result: Any, handoff_id: str) -> Message | None:
    """Return the message that a result asks to be answered with instead of a task."""
    only, held = _only(result)
    if only != "message" or not is_object(held) or not (parts := _parts(held.get("parts"))):
        return None
    return Message(message_id=f"{handoff_id}-result", role="ROLE_AGENT", parts=parts)


def _only(result: Any) -> tuple[str | None, Any]:
    """Return the one field of an object that has one, and what it holds."""
    if is_object(result) and len(result) == 1:
        ((name, held),) = result.items()
        return name, held
    return None, None


def _fits(value: Any) -> bool:
    """Whether a value is no deeper than protobuf reads, and has no number that it cannot hold."""
    return _shallow(value, _LEVELS_MAX) == value


def _shallow(value: Any, levels: int) -> Any:
    """Return a value with everything below so many levels as JSON in a text."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _INTEGER_MAX:
        return str(value)
    if not is_object(value) and not is_list(value):
        return value
    if levels == 0:
        return canonical.dumps(value).decode()
    if is_object(value):
        return {name: _shallow(held, levels - 1) for name, held in value.items()}
    return [_shallow(held, levels - 1) for held in value]


def _artifacts(listed: Any, handoff_id: str) -> list[Artifact] | None:
    if not is_list(listed) or not _fits(listed):
        return None
    try:
        found = [ParseDict(one, Artifact()) for one in listed]
    except ParseError:
        return None
    for number, one in enumerate(found, start=1):
        one.artifact_id = one.artifact_id or f"{handoff_id}-{number}"
    return found if all(one.parts for one in found) else None


def _parts(listed: Any) -> list[Part] | None:
    if not is_list(listed) or not listed or not _fits(listed):
        return None
    try:
        return [ParseDict(one, Part()) for one in listed]
    except ParseError:
        return None


def _rich(part: Part) -> bool:
    return any(getattr(part, name) for name in _RICH)


def _object_in(text: str) -> dict[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return None
