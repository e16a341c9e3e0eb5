import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from kit.asgi import WAIT_SECONDS_MAX, Exchange, Visitor
from nodrop.servers.http.door import HTTPDoor
from nodrop.servers.http.stream import HEARTBEAT_SECONDS
from nodrop.testing.clock import FakeClock

STREAM = {"accept": "text/event-stream"}
HEARTBEAT_MS = HEARTBEAT_SECONDS * 1_000
Waits = Callable[[int], Awaitable[None]]


async def note(visitor: Visitor, text: str) -> int:
    response = await visitor.request("POST", "/v1/notes", json={"text": text})
    assert response.status == 201
    return response.json()["seq"]


async def entry_at(visitor: Visitor, seq: int) -> dict[str, Any]:
    response = await visitor.request("GET", f"/v1/log?after={seq - 1}&limit=1")
    return response.json()["entries"][0]


async def events(exchange: Exchange) -> AsyncIterator[dict[str, Any]]:
    """Yield events with their ids; comments too, under their own name."""
    start = await exchange.started()
    assert start["status"] == 200
    assert dict(start["headers"])[b"content-type"].startswith(b"text/event-stream")
    async for chunk in exchange.chunks():
        for event in chunk.decode().split("\n\n")[:-1]:
            fields = dict(line.split(": ", 1) for line in event.split("\n"))
            if "" in fields or event.startswith(": "):
                yield {"comment": event[2:]}
            else:
                seq, _, there = fields["id"].partition(":")
                entry = json.loads(fields["data"])
                assert entry["hash"].startswith(there)
                assert len(there) == 16
                yield {"id": int(seq), "entry": entry}


async def next_note(stream: AsyncIterator[dict[str, Any]]) -> tuple[int, str]:
    """Return the id and the text of the next note."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        async for event in stream:
            if event.get("entry", {}).get("type") == "team.noted.v1":
                assert event["id"] == event["entry"]["seq"]
                return event["id"], event["entry"]["body"]["text"]
    raise AssertionError("the stream ended")


async def test_the_log_is_followed_from_the_beginning_and_as_it_grows(requester: Visitor) -> None:
    first = await note(requester, "before")
    async with requester.exchange("GET", "/v1/log", headers=STREAM) as exchange:
        stream = events(exchange)
        assert await next_note(stream) == (first, "before")
        second = await note(requester, "meanwhile")
        assert await next_note(stream) == (second, "meanwhile")
        assert second == first + 1


@pytest.mark.parametrize("last", ["{seq}", "{seq}:{hash:.16}", "{seq}:{hash}"])
async def test_a_reader_that_comes_back_misses_nothing_and_repeats_nothing(
    requester: Visitor, last: str
) -> None:
    first = await note(requester, "one")
    second = await note(requester, "two")
    there = (await entry_at(requester, first))["hash"]
    headers = STREAM | {"last-event-id": last.format(seq=first, hash=there)}
    # What it asked for at first is still in its address; the last event it saw counts.
    async with requester.exchange("GET", "/v1/log?after=0", headers=headers) as exchange:
        assert await next_note(events(exchange)) == (second, "two")


async def test_a_reader_that_comes_back_to_another_log_is_told(requester: Visitor) -> None:
    first = await note(requester, "one")
    for last in (f"{first}:{'0' * 16}", str(first + 1)):
        headers = STREAM | {"last-event-id": last}
        response = await requester.request("GET", "/v1/log", headers=headers)
        assert (response.status, response.json()["code"]) == (410, "cursor_unknown")


@pytest.mark.parametrize("last", ["yesterday", "1:", "1:xyz", "1:00", "-1", "1:2:3", "9" * 19])
async def test_an_id_that_no_event_has_is_refused(requester: Visitor, last: str) -> None:
    headers = STREAM | {"last-event-id": last}
    response = await requester.request("GET", "/v1/log", headers=headers)
    assert (response.status, response.json()["code"]) == (422, "invalid_request")


async def test_a_quiet_log_still_gives_a_sign_of_life(
    requester: Visitor, clock: FakeClock, somebody_waits: Waits
) -> None:
    end = await note(requester, "the last")
    async with requester.exchange("GET", f"/v1/log?after={end}", headers=STREAM) as exchange:
        stream = events(exchange)
        assert await anext(stream) == {"comment": "following"}
        for _ in range(2):
            await somebody_waits(HEARTBEAT_MS)
            clock.advance(HEARTBEAT_MS)
            assert await anext(stream) == {"comment": "still here"}


async def test_a_refusal_comes_as_a_problem_and_not_as_a_stream(stranger: Visitor) -> None:
    response = await stranger.request("GET", "/v1/log", headers=STREAM)
    assert response.status == 401


async def test_a_stream_ends_when_the_relay_stops(
    requester: Visitor, http: HTTPDoor, somebody_waits: Waits
) -> None:
    async with requester.exchange("GET", "/v1/log", headers=STREAM) as exchange:
        stream = events(exchange)
        await anext(stream)
        await somebody_waits(HEARTBEAT_MS)
        http.close()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert [event async for event in stream if "entry" not in event] == []
            await exchange.over()


async def test_a_reader_that_leaves_ends_its_stream(
    requester: Visitor, somebody_waits: Waits
) -> None:
    async with requester.exchange("GET", "/v1/log", headers=STREAM) as exchange:
        await exchange.started()
        await somebody_waits(HEARTBEAT_MS)
        exchange.leave()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await exchange.over()
