"""The HTTP transport against a relay that hangs up, refuses and makes callers wait."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.http import HttpTransport
from nodrop.client.transports.retrying import Retrying
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    NotFoundError,
    RateLimitedError,
    StoreFullError,
    UnansweredError,
    UnauthenticatedError,
    UnavailableError,
    UnreachableError,
)
from nodrop.protocol.errors import document

WAIT_SECONDS_MAX = 30.0


class FakeRelay:
    """Answers every request with what it was, and carries out each command once."""

    def __init__(self) -> None:
        self.tokens = {"good"}
        self.requests: list[dict[str, Any]] = []
        self.carried_out: Counter[str] = Counter()
        self.hang_up: Callable[[], str | None] = lambda: None
        self.refuse: Callable[[], NodropError | web.Response | None] = lambda: None
        self.takes: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.inbox: asyncio.Queue[list[str]] = asyncio.Queue()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=4_000_000)
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        seen: dict[str, Any] = {
            "method": request.method,
            "path": request.raw_path,
            "body": msgspec.json.decode(body) if body else None,
            "key": request.headers.get("Idempotency-Key"),
        }
        self.requests.append(seen)
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _problem(UnauthenticatedError())
        refusal = self.refuse()
        if refusal is not None:
            return _problem(refusal) if isinstance(refusal, NodropError) else refusal
        fault = self.hang_up()
        assert request.transport is not None
        if fault == "before":
            request.transport.abort()
        sent: dict[str, Any] = seen["body"] or {}
        command_id: str | None = seen["key"] or sent.get("command_id")
        if fault != "before" and command_id:
            self.carried_out[command_id] = 1
        if fault == "after":
            request.transport.abort()
        if request.path.endswith("inbox/take"):
            self.takes.put_nowait(seen["body"])
            taken = [{"handoff": {"id": name}, "attempt": 1} for name in await self.inbox.get()]
            return web.json_response({"deliveries": taken})
        return web.json_response({"did": command_id})


def _problem(error: NodropError) -> web.Response:
    problem = document(error)
    return web.Response(
        status=problem.status,
        body=msgspec.json.encode(problem),
        content_type="application/problem+json",
    )


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept_often = asyncio.Event()
        self._slept = 0

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        self._slept += 1
        if self._slept >= 50:
            self.slept_often.set()
        await asyncio.sleep(0)

    def policy(self) -> Retrying:
        return Retrying(now=lambda: self.time, sleep=self.sleep, random=lambda: 1.0)


@pytest.fixture
def relay() -> FakeRelay:
    return FakeRelay()


@pytest.fixture
async def url(relay: FakeRelay) -> AsyncGenerator[str]:
    server = TestServer(relay.app())
    await server.start_server(shutdown_timeout=0)
    yield str(server.make_url("/v1"))
    await server.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def transport(url: str, clock: Clock) -> AsyncGenerator[HttpTransport]:
    transport = HttpTransport(url, FixedToken("good"), policy=clock.policy())
    yield transport
    await transport.close()


ASKED: list[tuple[str, dict[str, Any], dict[str, str], tuple[str, str, Any, str | None]]] = [
    (
        "offer",
        {"to": "a", "command_id": "c"},
        {},
        ("POST", "/v1/handoffs", {"to": "a", "command_id": "c"}, None),
    ),
    (
        "ack",
        {"attempt": 1},
        {"handoff": "me/x 1"},
        ("POST", "/v1/handoffs/me%2Fx%201/ack", {"attempt": 1}, None),
    ),
    (
        "get_handoff",
        {"wait": 1.5, "until": "finished"},
        {"handoff": "0199"},
        ("GET", "/v1/handoffs/0199?wait=1.5&until=finished", None, None),
    ),
    (
        "inbox",
        {"after": 3, "all": True, "limit": None},
        {},
        ("GET", "/v1/inbox?after=3&all=true", None, None),
    ),
    (
        "step",
        {"attempt": 1, "value": 2, "command_id": "c"},
        {"handoff": "0199", "name": "a/b"},
        (
            "PUT",
            "/v1/handoffs/0199/steps/a%2Fb",
            {"attempt": 1, "value": 2, "command_id": "c"},
            "c",
        ),
    ),
    (
        "register",
        {"manifest": {"agent_id": "a"}, "command_id": "c"},
        {"name": "a"},
        ("PUT", "/v1/agents/a", {"agent_id": "a"}, "c"),
    ),
    ("trace", {}, {"name": "0199"}, ("GET", "/v1/trace/0199", None, None)),
]


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: asked[0])
async def test_an_operation_is_asked_for_by_its_method_and_path(
    relay: FakeRelay,
    transport: HttpTransport,
    asked: tuple[str, dict[str, Any], dict[str, str], tuple[str, str, Any, str | None]],
) -> None:
    operation, fields, about, expected = asked
    await transport.call(operation, fields, **about)
    seen = [(r["method"], r["path"], r["body"], r["key"]) for r in relay.requests]
    assert seen == [expected]


@pytest.mark.parametrize("fault", ["before", "after"])
async def test_a_command_is_carried_out_once_though_connections_break(
    relay: FakeRelay, transport: HttpTransport, fault: str
) -> None:
    faults = iter([fault, None, fault, fault])
    relay.hang_up = lambda: next(faults, None)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        for n in range(3):
            answer = await transport.call("offer", {"command_id": f"command-{n}"})
            assert answer == {"did": f"command-{n}"}
    assert dict(relay.carried_out) == {f"command-{n}": 1 for n in range(3)}
    assert len(relay.requests) == 6


async def test_a_request_that_ends_every_connection_is_refused_after_ten(
    relay: FakeRelay, transport: HttpTransport, clock: Clock
) -> None:
    await transport.call("offer", {"command_id": "b"})
    relay.hang_up = lambda: "before"
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        with pytest.raises(UnansweredError):
            await transport.call("offer", {"command_id": "c"})
    assert [request["body"]["command_id"] for request in relay.requests] == ["b", *"c" * 10]
    assert clock.time > 5, "the repeats come ever later"


async def test_a_request_that_waits_is_sent_again_after_however_many_connections(
    relay: FakeRelay, transport: HttpTransport
) -> None:
    faults = iter([None, *["before"] * 25])
    relay.hang_up = lambda: next(faults, None)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await transport.call("offer", {"command_id": "b"})
        await transport.call("inbox", {"wait": 20.0})
    assert len(relay.requests) == 27


async def test_waiting_for_a_relay_that_is_not_there_does_not_count(
    relay: FakeRelay, clock: Clock
) -> None:
    port = unused_port()
    transport = HttpTransport(
        f"http://127.0.0.1:{port}/v1",
        FixedToken("good"),
        first_seconds_max=None,
        policy=clock.policy(),
    )
    answer = asyncio.create_task(transport.call("offer", {"command_id": "c"}))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await clock.slept_often.wait()
        server = TestServer(relay.app(), port=port)
        await server.start_server(shutdown_timeout=0)
        assert await answer == {"did": "c"}
    await transport.close()
    await server.close()


async def test_a_large_body_arrives_whole_even_the_second_time(
    relay: FakeRelay, transport: HttpTransport
) -> None:
    faults = iter(["after"])
    relay.hang_up = lambda: next(faults, None)
    large = {"command_id": "c", "payload": "x" * 1_500_000}
    await transport.call("offer", large)
    assert [request["body"] for request in relay.requests] == [large, large]


async def test_a_refusal_is_raised_as_what_it_is(
    relay: FakeRelay, transport: HttpTransport
) -> None:
    relay.refuse = lambda: NotFoundError("no such handoff")
    with pytest.raises(NotFoundError, match="no such handoff"):
        await transport.call("ack", {"command_id": "c"}, handoff="0199")
    assert len(relay.requests) == 1


async def test_a_retryable_refusal_is_repeated_for_half_a_minute(
    relay: FakeRelay, transport: HttpTransport, clock: Clock
) -> None:
    refusals = iter([StoreFullError(), StoreFullError()])
    relay.refuse = lambda: next(refusals, None)
    assert await transport.call("offer", {"command_id": "c"}) == {"did": "c"}
    assert len(relay.requests) == 3
    relay.refuse = StoreFullError
    began = clock.time
    with pytest.raises(StoreFullError):
        await transport.call("offer", {"command_id": "c"})
    assert 25 < clock.time - began <= 30


async def test_a_request_that_came_too_slowly_is_repeated_as_if_it_had_not_come(
    relay: FakeRelay, transport: HttpTransport
) -> None:
    slow = _problem(InvalidRequestError("no request within 15 s"))
    refusals = iter([web.Response(status=408, body=slow.body), web.Response(status=408)])
    relay.refuse = lambda: next(refusals, None)
    assert await transport.call("offer", {"command_id": "c"}) == {"did": "c"}
    assert [request["body"] for request in relay.requests] == [{"command_id": "c"}] * 3
    relay.refuse = lambda: web.Response(status=408)
    with pytest.raises(UnavailableError, match="in time"):
        await transport.call("offer", {"command_id": "c"})


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (502, "<html>Bad Gateway</html>", UnavailableError),
        (429, "slow down", RateLimitedError),
        (405, "", InvalidRequestError),
        (401, "", UnauthenticatedError),
        (403, "<html>", ForbiddenError),
        (404, '{"detail": "Not Found"}', NotFoundError),
        (422, '["code"]', InvalidRequestError),
    ],
)
async def test_a_proxy_that_answers_no_problem_document_is_understood(
    *,
    relay: FakeRelay,
    transport: HttpTransport,
    status: int,
    body: str,
    error: type[NodropError],
) -> None:
    relay.refuse = lambda: web.Response(status=status, text=body)
    with pytest.raises(NodropError, match=str(status)) as refused:
        await transport.call("offer", {})
    assert type(refused.value) is error


@pytest.mark.parametrize("body", ["<html>Sign in to this network</html>", "[]", ""])
async def test_what_answers_something_else_is_no_relay(
    relay: FakeRelay, transport: HttpTransport, body: str
) -> None:
    relay.refuse = lambda: web.Response(text=body)
    with pytest.raises(UnreachableError, match="no relay"):
        await transport.call("offer", {"command_id": "c"})


async def test_a_token_the_relay_forgot_is_renewed_once(
    relay: FakeRelay, url: str, clock: Clock
) -> None:
    class Renewing(FixedToken):
        async def renewed(self, refused: str | None) -> str | None:
            self._token = {"old": "good"}.get(refused or "")
            return self._token

    transport = HttpTransport(url, Renewing("old"), policy=clock.policy())
    await transport.call("offer", {"command_id": "c"})
    await transport.call("offer", {"command_id": "d"})
    assert len(relay.requests) == 3
    relay.tokens.clear()
    with pytest.raises(UnauthenticatedError):
        await transport.call("offer", {"command_id": "e"})
    await transport.close()


async def test_a_relay_that_is_not_there_is_told_within_seconds(clock: Clock) -> None:
    address = f"http://127.0.0.1:{unused_port()}/v1"
    transport = HttpTransport(address, FixedToken("good"), policy=clock.policy())
    with pytest.raises(UnreachableError, match=address):
        await transport.call("offer", {"command_id": "c"})
    assert 2.0 <= clock.time < 4.0
    await transport.close()


async def test_a_request_about_nothing_is_refused_as_over_the_channel(
    transport: HttpTransport,
) -> None:
    with pytest.raises(InvalidRequestError, match="handoff_id: required"):
        await transport.call("get_handoff", {}, handoff="")
    with pytest.raises(InvalidRequestError, match="name: required"):
        await transport.call("get_group", {}, name="")


async def test_a_closed_transport_refuses_calls(transport: HttpTransport) -> None:
    await transport.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        await transport.call("offer", {"command_id": "c"})


# --- deliveries ----------------------------------------------------------------------------------


async def test_deliveries_are_taken_as_credit_allows(
    relay: FakeRelay, transport: HttpTransport
) -> None:
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=2)
    reading = aiter(stream)
    relay.inbox.put_nowait(["a", "b"])
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        got = [(await anext(reading))["handoff"]["id"] for _ in range(2)]
        assert got == ["a", "b"]
        first = await relay.takes.get()
        assert (first["max"], first["process"], first["heartbeat_seconds"]) == (2, "p", 10)
        # Nothing more is taken until something is granted.
        more = asyncio.ensure_future(anext(reading))
        await transport.call("offer", {"command_id": "c"})
        assert relay.takes.empty()
        stream.grant(1)
        second = await relay.takes.get()
        assert second["max"] == 1
        assert second["command_id"] != first["command_id"]
        relay.inbox.put_nowait(["c"])
        assert (await more)["handoff"]["id"] == "c"
    await stream.close()


async def test_a_lost_take_is_repeated_as_the_same_command(
    relay: FakeRelay, transport: HttpTransport
) -> None:
    faults = iter(["before"])
    relay.hang_up = lambda: next(faults, None)
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=1)
    relay.inbox.put_nowait(["a"])
    relay.inbox.put_nowait(["a"])
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert (await anext(aiter(stream)))["handoff"]["id"] == "a"
        first, second = [(await relay.takes.get())["command_id"] for _ in range(2)]
    assert first == second
    await stream.close()


async def test_closing_the_stream_gives_up_the_poll(
    relay: FakeRelay, transport: HttpTransport
) -> None:
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=1)

    async def read() -> list[dict[str, Any]]:
        return [delivery async for delivery in stream]

    reading = asyncio.create_task(read())
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await relay.takes.get()
        await stream.close()
        assert await reading == []
