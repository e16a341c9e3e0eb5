"""How answers leave over HTTP: two ASGI messages, headers as good as made beforehand."""

from collections.abc import Sequence
from typing import Final

import msgspec
from starlette.types import Send

from nodrop.core.errors import NodropError
from nodrop.wire.asgi import Header

_JSON: Final[Header] = (b"content-type", b"application/json")
_REPLAYED: Final[Header] = (b"idempotency-replayed", b"true")
_CLOSE: Final[Header] = (b"connection", b"close")

_ENCODER: Final = msgspec.json.Encoder()


class RefusedError(Exception):
    """A refusal that HTTP has a status of its own for, such as 405."""

    def __init__(self, error: NodropError, *, status: int, headers: Sequence[Header] = ()) -> None:
        super().__init__(error.detail)
        self.error = error
        self.status = status
        self.headers = headers


class GoneError(Exception):
    """The client went away; nobody is there to be answered."""


async def send_answer(send: Send, status: int, answer: object, *, replayed: bool = False) -> None:
    """Send what the relay answered."""
    body = _ENCODER.encode(answer)
    headers = [_JSON, (b"content-length", b"%d" % len(body))]
    if replayed:
        headers.append(_REPLAYED)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def send_options(send: Send, allow: Header) -> None:
    """Send what a path allows, and nothing about other origins: they are not let in."""
    headers = [allow, (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def closing(headers: Sequence[Header] = ()) -> Sequence[Header]:
    """Return `headers` and that the connection ends: the rest of a body will not be read."""
    return (*headers, _CLOSE)
