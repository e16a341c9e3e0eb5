"""The log as server-sent events: `GET /v1/log` with `Accept: text/event-stream`.

Pulled page by page, so a slow reader holds up nobody but itself. An event's id is its `seq`, a colon
and the beginning of its hash; a reader that comes back names the last one it saw and misses nothing,
or is told that the log has another entry there.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec
from starlette.types import Receive, Send

from nodrop.core.errors import InvalidRequestError, NodropError, Problem
from nodrop.doors.http.answers import Waiting, send_drained
from nodrop.doors.http.parking import Parking
from nodrop.engine.relay import Caller, Relay
from nodrop.wire.requests import GetLog
from nodrop.wire.views import LogAnswer

HEARTBEAT_SECONDS: Final = 15
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
]
_HASH_CHARS: Final = 16
_ID: Final = re.compile(rb"([0-9]{1,18})(?::([0-9a-f]{8,64}))?")
_ENCODER: Final = msgspec.json.Encoder()


def wants_stream(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a client asks for events rather than for a page."""
    return b"text/event-stream" in headers.get(b"accept", b"")


def resumed(request: GetLog, headers: Mapping[bytes, bytes]) -> GetLog:
    """Return `request`, beginning after the last event that the client saw."""
    last = headers.get(b"last-event-id")
    if last is None:
        return request
    found = _ID.fullmatch(last)
    if found is None:
        problem = Problem(path="Last-Event-ID", message="expected the id of an event")
        raise InvalidRequestError(f"{problem.path}: {problem.message}", errors=(problem,))
    seq, there = found.groups()
    return msgspec.structs.replace(
        request, after=int(seq), after_hash=None if there is None else there.decode()
    )


async def stream_log(
    relay: Relay, caller: Caller, request: GetLog, *, parking: Parking, receive: Receive, send: Send
) -> None:
    """Send the log as it grows until the client goes away or the relay stops.

    Raises:
        NodropError: the request was refused before anything was sent.
    """
    waiting = partial(relay.outgoing.waiting, (caller.team, caller.agent))
    page = await _page(relay, caller, msgspec.structs.replace(request, wait=0))
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await _write(send, _events(page) if page.entries else _comment("following"), waiting)
    while True:
        following = msgspec.structs.replace(
            request, after=page.after, after_hash=page.after_hash, wait=HEARTBEAT_SECONDS
        )
        try:
            page = await parking.park(_page(relay, caller, following), receive)
            await _write(send, _events(page) if page.entries else _comment("still here"), waiting)
        except NodropError:
            break  # the client reconnects with the last id it has, and is told then
    await send({"type": "http.response.body", "body": b""})


async def _page(relay: Relay, caller: Caller, request: GetLog) -> LogAnswer:
    answer = (await relay.call(caller, "log", request)).answer
    assert isinstance(answer, LogAnswer), "the operation `log` answers with a page of it"
    return answer


def _events(page: LogAnswer) -> bytes:
    return b"".join(
        b"id: %d:%b\ndata: %b\n\n"
        % (entry.seq, entry.hash[:_HASH_CHARS].encode(), _ENCODER.encode(entry))
        for entry in page.entries
    )


def _comment(text: str) -> bytes:
    return b": %b\n\n" % text.encode()


async def _write(send: Send, chunk: bytes, waiting: Waiting) -> None:
    """Send a piece, and wait until it is read: a slow reader holds nothing but its own."""
    with waiting(len(chunk)):
        await send_drained(send, chunk)
