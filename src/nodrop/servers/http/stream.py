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

from nodrop.model.errors import InvalidRequestError, NodropError, Problem
from nodrop.protocol.requests import GetLog
from nodrop.protocol.views import EntryView, LogAnswer
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.http.answers import send_drained
from nodrop.servers.http.parking import Parking

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
    first = msgspec.structs.replace(request, wait=0)
    chunk, following = await _chunk(relay, caller, first, otherwise="following")
    with waiting(len(chunk)):
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await send_drained(send, chunk)
    while True:
        del chunk  # not kept while nothing happens
        try:
            reading = _chunk(relay, caller, following, otherwise="still here")
            chunk, following = await parking.park(reading, receive)
            with waiting(len(chunk)):  # a slow reader holds nothing but its own
                await send_drained(send, chunk)
        except NodropError:
            break  # the client reconnects with the last id it has, and is told then
    await send({"type": "http.response.body", "body": b""})


async def _chunk(
    relay: Relay, caller: Caller, request: GetLog, *, otherwise: str
) -> tuple[bytes, GetLog]:
    """Return the events of a page, or a comment where it is empty; and how to ask for the next."""
    page = (await relay.call(caller, "log", request)).answer
    assert isinstance(page, LogAnswer), "the operation `log` answers with a page of it"
    following = msgspec.structs.replace(
        request, after=page.after, after_hash=page.after_hash, wait=HEARTBEAT_SECONDS
    )
    return b"".join(map(_event, page.entries)) or b": %b\n\n" % otherwise.encode(), following


def _event(entry: EntryView) -> bytes:
    there = entry.hash[:_HASH_CHARS].encode()
    return b"id: %d:%b\ndata: %b\n\n" % (entry.seq, there, _ENCODER.encode(entry))
