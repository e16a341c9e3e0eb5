"""Canonical JSON: equal values give equal bytes.

The relay writes the subset of RFC 8785 on which msgspec's sorted encoding agrees with it: no
floats in hashed entries, ASCII keys. `tests/protocol` checks the agreement against `rfc8785`. What
others sign may hold anything, and is written by the letter of the RFC.
"""

import hashlib
import hmac
import re
from typing import Any, Final

import msgspec
import rfc8785 as by_the_letter

dumps: Final = msgspec.json.Encoder(order="sorted").encode
"""Returns the canonical bytes of a value."""
_DECODER: Final = msgspec.json.Decoder()
_CAREFUL: Final = msgspec.json.Decoder(float_hook=float)
_EXTREMES: Final = {b"e": (b"e3", b"e-3", b"e+3"), b"E": (b"E3", b"E-3", b"E+3")}
"""How the exponent of such a number begins. One character alone is found at once, or not."""
EXTREME_BYTES_MIN: Final = 4_096
"""Below this, no number of them takes long."""
_DOUBTFUL: Final = re.compile(rb"[\xf0-\xf7]|[:,\[]-?(?:[0-9]+[.eE]|[0-9]{16})")
"""Where the two may differ: characters beyond 16 bits, fractions, integers beyond 53 bits."""


def rfc8785(value: Any) -> bytes:
    """Return the bytes of `value`, any JSON, as RFC 8785 has them.

    Raises:
        ValueError: it holds a number that the RFC has no spelling for.
    """
    written = dumps(value)
    if _DOUBTFUL.search(written) is None:
        return written
    try:
        return by_the_letter.dumps(_DECODER.decode(written))
    except by_the_letter.CanonicalizationError as error:
        raise ValueError(f"cannot be signed: {error}; send such a number as text") from error


def loads(data: bytes) -> Any:
    """Return the value of JSON bytes that were checked when they came in."""
    return (_CAREFUL if has_extremes(data) else _DECODER).decode(data)


def has_extremes(data: bytes) -> bool:
    """Whether msgspec might take long over `data`: it needs 10 us for a number near 1e308 or 1e-308.

    A body of them would take seconds. Decoders with `float_hook=float` need a thirtieth of that, and as
    long as others for what is no fraction: it does no harm to use one where there is a text with "e3".
    """
    return (
        len(data) >= EXTREME_BYTES_MIN
        and b"3" in data
        and any(sign in data for e, signs in _EXTREMES.items() if e in data for sign in signs)
    )


def sha256(data: bytes) -> str:
    """Return the SHA-256 of `data` in hex."""
    return hashlib.sha256(data).hexdigest()


def keyed_digest(key: bytes, data: bytes) -> str:
    """Return a digest that only the team can compute, so short texts cannot be guessed from it."""
    return hmac.digest(key, data, "sha256").hex()
