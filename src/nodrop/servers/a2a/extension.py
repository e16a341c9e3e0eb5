"""Our fields in A2A: one extension, under one versioned URI. A breaking change is another URI."""

import re
from collections.abc import Sequence
from typing import Any, Final

from a2a.types import Message, Part, SendMessageRequest

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.requests import Offer
from nodrop.servers.a2a.parts import is_list, is_object, read

URI: Final = "urn:nodrop:a2a:handoff:v1"
ABOUT: Final = (
    "Terms of a handoff in the metadata of a message (capability, deadline, idempotencyKey and "
    "so on); receipts, clocks and attempts in the metadata of a task."
)

_OURS: Final = frozenset(
    {
        "to",
        "from_",
        "payload",
        "correlation_id",
        "metadata",
        "signature",
        "turn_based",
        "command_id",
    }
)
"""What A2A itself says, or cannot say."""
TERMS: Final = frozenset(Offer.__struct_fields__) - _OURS
"""The fields of an offer that a message may name."""
DECISION: Final = "decision"
"""How a message answers other terms: `agree` or `decline`."""
_WORDS: Final = "words"
"""Marks a part that says the others in words, for whoever reads only those."""
_NESTED: Final = frozenset({"backoff", "escalation", "then"})
"""Terms that have fields of ours in them; what is in the others is the agents' own."""


def in_words(part: Part) -> Part:
    """Return a part marked as one that only says the others in words."""
    part.metadata.update({URI: {_WORDS: True}})
    return part


def meant(parts: Sequence[Part]) -> list[Part]:
    """Return the parts of a message without those that only say the others in words."""
    kept = [part for part in parts if not _is_in_words(part)]
    return kept or list(parts)


def _is_in_words(part: Part) -> bool:
    said = read(part.metadata).get(URI)
    return is_object(said) and said.get(_WORDS) is True


def terms(request: SendMessageRequest) -> dict[str, Any]:
    """Return what a request says under our URI, in its message or beside it.

    Raises:
        InvalidRequestError: it says something that is no term.
    """
    said: dict[str, Any] = {}
    for place in (request.metadata, request.message.metadata):
        if URI not in place:
            continue
        found = read(place)[URI]
        if not is_object(found):
            problem = Problem(path=f"metadata.{URI}", message="expected an object")
            raise InvalidRequestError("the extension's fields are no object", errors=(problem,))
        said |= {_snake(name): _ours(_snake(name), value) for name, value in found.items()}
    unknown = sorted(said.keys() - TERMS - {DECISION})
    if unknown:
        problems = tuple(
            Problem(path=f"metadata.{URI}.{name}", message="no such field") for name in unknown
        )
        raise InvalidRequestError(f"no such field: {', '.join(unknown)}", errors=problems)
    return said


def without(message: Message) -> dict[str, Any]:
    """Return the metadata of a message that is not ours."""
    return {name: v for name, v in read(message.metadata).items() if name != URI}


def shown(fields: Any) -> Any:
    """Return fields of ours as A2A spells names."""
    if is_object(fields):
        return {_camel(name): shown(value) for name, value in fields.items()}
    return [shown(value) for value in fields] if is_list(fields) else fields


def _ours(name: str, value: Any) -> Any:
    """Return what a term says with names as we spell them, where they are ours."""
    if name not in _NESTED:
        return value
    if is_object(value):
        return {_snake(field): _ours(name, held) for field, held in value.items()}
    return [_ours(name, held) for held in value] if is_list(value) else value


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)
