"""Bodies: the words and data that live beside the log, one JSON document per event.

Kept apart so that they can be erased, and so that the log can be shown to a team without them.
"""

from typing import Any, Final

import msgspec

from nodrop.protocol import canonical
from nodrop.protocol.identity.signatures import Kept


class LegText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The words of a leg to come."""

    title: str | None = None
    trigger: str | None = None
    expected_outcome: str | None = None
    payload: Any = None
    """A template of what the leg is given; None: what legs are given otherwise."""


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an offer says: the body of `handoff.offered.v1`."""

    trigger: str | None = None
    title: str | None = None
    payload: msgspec.Raw = msgspec.Raw(b"null")
    expected_outcome: str | None = None
    observations: list[Any] = []
    parameters: dict[str, Any] = {}
    covariates: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    legs: tuple[LegText, ...] = ()
    origin: dict[str, Any] = {}
    """Of a leg: the chain's first `payload`, where the leg's own does not hold it."""
    signed: Kept | None = None
    """The requester's signature, and the rest of the request that it is over."""
    within: str | None = None
    """Of a leg or a successor: the handoff whose signed request it follows from."""
    verified: bool = False
    """Whether all of it was signed by whom it is from, as far as the relay has checked."""


WITHHELD: Final = Content()
"""What an observer is shown."""
ERASED: Final = Content(title="(erased)")
"""What is shown of an offer whose body is gone."""

_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_CONTENT: Final = msgspec.json.Decoder(Content)
_CAREFUL: Final = msgspec.json.Decoder(Content, float_hook=float)


def encode_content(content: Content) -> bytes:
    """Return the body of an offer."""
    return _ENCODER.encode(content)


def decode_content(body: bytes | None) -> Content:
    """Return what an offer says."""
    if body is None:
        return ERASED
    # The payload stays as it is written, so there are hardly numbers to be careful with: looking for
    # them would take forty times as long as the rest.
    return (_CAREFUL if len(body) >= canonical.EXTREME_BYTES_MIN else _CONTENT).decode(body)


def words(**fields: Any) -> bytes | None:
    """Return a small body of the fields that are set; None if none is."""
    said = {name: value for name, value in fields.items() if value is not None}
    return canonical.dumps(said) if said else None


def data(name: str, value: Any) -> bytes:
    """Return the body that holds one value, null included."""
    return canonical.dumps({name: value})


def with_signature(body: bytes | None, kept: Kept) -> bytes:
    """Return a body of words or data with the signature of the request that said them.

    What is in such a body sorts before `signed`, so that it stays canonical.
    """
    signature = b'"signed":' + _ENCODER.encode(kept) + b"}"
    return b"{" + signature if body is None else body[:-1] + b"," + signature


def raw(body: bytes) -> msgspec.Raw:
    """Return encoded JSON to be placed into another document as it is."""
    return msgspec.Raw(body)
