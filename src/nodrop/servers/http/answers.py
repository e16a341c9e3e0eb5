"""How answers leave over HTTP: two ASGI messages, headers as good as made beforehand."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import msgspec
from starlette.types import Send

from nodrop.model.errors import NodropError, RelayFaultError
from nodrop.protocol.asgi import Header, refuse

log = logging.getLogger(__name__)

_JSON: Final[Header] = (b"content-type", b"application/json")
HEADERS: Final[tuple[Header, ...]] = (_JSON,)
"""Of an answer, its length apart."""
REPLAYED_HEADERS: Final[tuple[Header, ...]] = (_JSON, (b"idempotency-replayed", b"true"))
"""Of one that was given before."""
_CLOSE: Final[Header] = (b"connection", b"close")

encode: Final = msgspec.json.Encoder().encode

SMALL_BYTES: Final = 65_536
"""Answers up to this size are sent without counting what the client has not read."""
SEND_SECONDS_MAX: Final = 60.0
"""A reader that takes nothing for so long is gone."""
Waiting = Callable[[int], AbstractContextManager[None]]
"""Counts so many bytes as waiting to be read while the block runs, or refuses."""


class RefusedError(Exception):
    """A refusal that HTTP has a status of its own for, such as 405."""

    def __init__(self, error: NodropError, *, status: int, headers: Sequence[Header] = ()) -> None:
        super().__init__(error.detail)
        self.error = error
        self.status = status
        self.headers = headers


class GoneError(Exception):
    """The client went away; nobody is there to be answered."""


async def send_answer(
    send: Send,
    status: int,
    body: bytes,
    *,
    replayed: bool = False,
    waiting: Waiting = lambda _: nullcontext(),
) -> None:
    """Send an answer as JSON; a large one counts as `waiting` until it is read.

    Raises:
        GoneError: it is not read.
    """
    given = REPLAYED_HEADERS if replayed else HEADERS
    headers = [*given, (b"content-length", b"%d" % len(body))]
    if len(body) <= SMALL_BYTES:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    with waiting(len(body)):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send_drained(send, body)
        await send({"type": "http.response.body", "body": b""})


async def refusing(send: Send, work: Awaitable[None]) -> None:
    """Do `work`; where it cannot be done, tell the client why."""
    try:
        await work
    except NodropError as error:
        await refuse(send, error)
    except RefusedError as refused:
        await refuse(send, refused.error, status=refused.status, headers=refused.headers)
    except GoneError:
        pass  # nobody is there to be answered
    except Exception:
        log.exception("a request could not be carried out")
        await refuse(send, RelayFaultError())


async def send_drained(send: Send, chunk: bytes) -> None:
    """Send a piece of a body, and return when all but a little of it is read.

    Raises:
        GoneError: it is not read.
    """
    try:
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            # A server waits for room before it takes more, so this one returns when there is.
            await send({"type": "http.response.body", "body": b"", "more_body": True})
    except TimeoutError:
        raise GoneError from None


async def send_options(send: Send, allow: Header) -> None:
    """Send what a path allows, and nothing about other origins: they are not let in."""
    headers = [allow, (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def closing(headers: Sequence[Header] = ()) -> Sequence[Header]:
    """Return `headers` and that the connection ends: the rest of a body will not be read."""
    return (*headers, _CLOSE)
