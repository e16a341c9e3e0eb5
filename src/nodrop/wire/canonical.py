"""Canonical JSON: equal values give equal bytes.

The relay writes the subset of RFC 8785 on which msgspec's sorted encoding agrees with it: no
floats in hashed entries, ASCII keys. `tests/wire` checks the agreement against `rfc8785`.
"""

import hashlib
import hmac
from typing import Any, Final

import msgspec

_ENCODER: Final = msgspec.json.Encoder(order="sorted")
_DECODER: Final = msgspec.json.Decoder()


def dumps(value: Any) -> bytes:
    """Return the canonical bytes of `value`."""
    return _ENCODER.encode(value)


def loads(data: bytes) -> Any:
    """Return the value of JSON bytes that were checked when they came in."""
    return _DECODER.decode(data)


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` in hex."""
    return hashlib.sha256(data).hexdigest()


def keyed_digest(key: bytes, data: bytes) -> str:
    """Return a digest that only the team can compute, so short texts cannot be guessed from it."""
    return hmac.digest(key, data, "sha256").hex()
