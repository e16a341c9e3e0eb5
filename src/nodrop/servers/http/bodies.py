"""Reading a request's body within bounds of size and time."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.types import Receive

from nodrop.model.errors import InvalidRequestError, TooLargeError
from nodrop.servers.http.answers import GoneError, RefusedError, closing

BODY_SECONDS_MAX: Final = 30.0

_JSON_TYPES: Final = frozenset(
    {
        b"application/json",
        # What `curl -d` says when nobody told it otherwise; the body must still be JSON, and a
        # page that sends it across sites is stopped by its Origin.
        b"application/x-www-form-urlencoded",
    }
)


class Bodies:
    """Reads bodies, and loses patience with those that take too long.

    One timer watches over all of them: a timer for each would cost a fifth of a short request.
    """

    def __init__(self, *, bytes_max: int, seconds_max: float = BODY_SECONDS_MAX) -> None:
        self._bytes_max = bytes_max
        self._seconds_max = seconds_max
        self._since: dict[asyncio.Task[Any], float] = {}
        """Who reads, in the order in which they began."""
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def read(
        self,
        receive: Receive,
        headers: Mapping[bytes, bytes],
        counted: Callable[[int], None] = lambda _: None,
    ) -> bytes:
        """Return the whole body of the request that the current task serves.

        `counted` is told of each piece that came, and may refuse it.

        Raises:
            RefusedError: it is too large, too slow, or not JSON by its own account.
            GoneError: the client went away.
        """
        check_kind(headers)
        declared = headers.get(b"content-length")
        if declared is not None and _number(declared) > self._bytes_max:
            raise _too_large(self._bytes_max)
        task = asyncio.current_task()
        assert task is not None, "a server runs each request as a task"
        self._begin(task)
        try:
            return await _read(receive, self._bytes_max, counted)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            task.uncancel()
            raise _too_slow(self._seconds_max) from None
        finally:
            del self._since[task]
            self._late.discard(task)

    def _begin(self, task: "asyncio.Task[Any]") -> None:
        loop = asyncio.get_running_loop()
        self._since[task] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(self._seconds_max, self._lose_patience)

    def _lose_patience(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        for task, since in self._since.items():
            if since + self._seconds_max > loop.time():
                self._timer = loop.call_at(since + self._seconds_max, self._lose_patience)
                return
            if task not in self._late:
                self._late.add(task)
                task.cancel()


async def _read(receive: Receive, bytes_max: int, counted: Callable[[int], None]) -> bytes:
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        counted(len(chunk))
        chunks.append(chunk)
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _number(value: bytes) -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidRequestError("Content-Length is not a number") from None


def _too_slow(seconds_max: float) -> RefusedError:
    error = InvalidRequestError(
        f"the body did not arrive within {seconds_max:g} s",
        next_step="Send the whole body at once.",
    )
    return RefusedError(error, status=HTTPStatus.REQUEST_TIMEOUT, headers=closing())


def _too_large(bytes_max: int) -> RefusedError:
    error = TooLargeError(f"the body is larger than {bytes_max} bytes")
    return RefusedError(error, status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE, headers=closing())


def check_kind(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that is not JSON by its own account.

    Raises:
        RefusedError: it is something else.
    """
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding != b"identity":
        raise _unsupported(f"Content-Encoding {_shown(encoding)} is not supported", "plain")
    content_type = headers.get(b"content-type")
    if content_type is None:
        return
    kind = content_type.partition(b";")[0].strip().lower()
    if kind not in _JSON_TYPES and not (kind[:12] == b"application/" and kind[-5:] == b"+json"):
        raise _unsupported(f"Content-Type {_shown(kind)} is not JSON", "application/json")


def _unsupported(why: str, expected: str) -> RefusedError:
    error = InvalidRequestError(why, next_step=f"Send the body as {expected}.")
    return RefusedError(error, status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE, headers=closing())


def _shown(value: bytes) -> str:
    return value[:100].decode("latin-1")
