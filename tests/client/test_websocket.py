"""The WebSocket transport against a channel that hangs up at the worst moments."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, cast

import msgspec
import pytest
from aiohttp import WSCloseCode, web
from aiohttp.test_utils import TestServer, unused_port

from nodrop.client.auth.tokens import FixedToken
from nodrop.client.transports.retrying import Retrying
from nodrop.client.transports.websocket import TOLD_MAX, WebSocketTransport
from nodrop.model.errors import (
    ForbiddenError,
    InvalidRequestError,
    NodropError,
    NotFoundError,
    QueueFullError,
    StaleAttemptError,
    TooLargeError,
    UnauthenticatedError,
    UnreachableError,
)
from nodrop.protocol.errors import document
from nodrop.protocol.pushed import Followed

WAIT_SECONDS_MAX = 30.0

Frame = dict[str, Any]


class FakeRelay:
    """A channel that carries out each command once, whatever happens to the connection."""

    def __init__(self) -> None:
        self.agent = "inbox_monitor"
        self.tokens = {"good"}
        self.hellos: list[Frame] = []
        self.messages: list[list[Frame]] = []
        """What came in one WebSocket message each, hellos apart."""
        self.carried_out: Counter[str] = Counter()
        self.hang_up: Callable[[Frame], str | None] = lambda _: None
        """Where to break the connection: "before" or "after" a frame is carried out, or "within"
        the frame of its answer."""
        self.refuse: Callable[[Frame], Exception | None] = lambda _: None
        self.credit: list[int] = []
        self.connections: asyncio.Queue[web.WebSocketResponse] = asyncio.Queue()
        self.got: asyncio.Queue[Frame] = asyncio.Queue()
        """Every frame, as it comes."""
        self.silent = False
        """Answer nothing."""
        self.follows = True
        """Say that outcomes of followed offers will be pushed."""
        self._done: dict[str, Frame] = {}

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/channel", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=1_000_000)
        await socket.prepare(request)
        hello = msgspec.json.decode((await socket.receive()).data)
        self.hellos.append(hello)
        if hello["token"] not in self.tokens:
            await self._send(socket, hello, error=UnauthenticatedError())
            await socket.close(code=4401)
            return socket
        process = hello["resume"] or "process-1"
        await self._send(
            socket, hello, ok={"team": "default", "agent": self.agent, "process": process}
        )
        self.connections.put_nowait(socket)
        async for message in socket:
            decoded = msgspec.json.decode(message.data)
            frames = cast("list[Frame]", decoded if isinstance(decoded, list) else [decoded])
            self.messages.append(frames)
            for frame in frames:
                self.got.put_nowait(frame)
                if not await self._take(request, socket, frame):
                    return socket
        return socket

    async def _take(
        self, request: web.Request, socket: web.WebSocketResponse, frame: Frame
    ) -> bool:
        """Carry out a frame and answer it; False: the connection is broken."""
        if frame["op"] == "credit":
            self.credit.append(frame["n"])
            return True
        fault = self.hang_up(frame)
        assert request.transport is not None
        if fault == "before":
            request.transport.abort()
            return False
        refusal = self.refuse(frame)
        if refusal is not None:
            await self._send(socket, frame, error=refusal)
            return True
        answer = self._carry_out(frame)
        if fault == "after":
            request.transport.abort()
            return False
        if fault == "within":
            # A text frame of 100 bytes, of which only a few arrive.
            request.transport.write(b"\x81\x64" + b'{"id":')
            request.transport.close()
            return False
        if not self.silent and not frame.get("quiet"):
            follows = bool(frame.get("follow"))
            if follows:
                answer = {**answer, "handoff": {"id": frame["command_id"], "state": "offered"}}
            await self._send(socket, frame, ok=answer, follows=follows and self.follows)
        return True

    def _carry_out(self, frame: Frame) -> Frame:
        command_id = frame.get("command_id")
        if command_id is None:
            return {"read": frame["op"]}
        if command_id not in self._done:
            self.carried_out[command_id] += 1
            self._done[command_id] = {"did": command_id}
        return self._done[command_id]

    @staticmethod
    async def _send(
        socket: web.WebSocketResponse,
        frame: Frame,
        *,
        ok: Frame | None = None,
        error: Exception | None = None,
        follows: bool = False,
    ) -> None:
        said = {"ok": ok, "follows": follows} if error is None else {"error": document(error)}  # pyright: ignore[reportArgumentType]  # only NodropErrors are refused with
        await socket.send_str(msgspec.json.encode({"id": frame["id"], **said}).decode())


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept.append(seconds)
        self.on_sleep()
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
    yield str(server.make_url("/v1/channel")).replace("http", "ws")
    await server.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def transport(url: str, clock: Clock) -> AsyncGenerator[WebSocketTransport]:
    transport = WebSocketTransport(url, FixedToken("good"), policy=clock.policy())
    yield transport
    await transport.close()


def command(n: int) -> Frame:
    return {"command_id": f"command-{n}"}


async def next_of(stream: AsyncIterator[Any]) -> Any:
    return await anext(stream)


async def soon(queue: "asyncio.Queue[Any]") -> Any:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        return await queue.get()


# --- nothing is lost, nothing is done twice ------------------------------------------------------


@pytest.mark.parametrize("fault", ["before", "after", "within"])
async def test_every_command_is_carried_out_once_and_answered_though_connections_break(
    relay: FakeRelay, transport: WebSocketTransport, fault: str
) -> None:
    broken: set[str] = set()

    def hang_up(frame: Frame) -> str | None:
        number = int(frame["command_id"].removeprefix("command-"))
        if number % 7 == 3 and frame["command_id"] not in broken:
            broken.add(frame["command_id"])
            return fault
        return None

    relay.hang_up = hang_up
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        answers = await asyncio.gather(*(transport.call("offer", command(n)) for n in range(40)))
    assert answers == [{"did": f"command-{n}"} for n in range(40)]
    assert set(relay.carried_out.values()) == {1}
    assert len(relay.carried_out) == 40
    assert len(broken) == 6


async def test_an_unanswered_call_is_sent_again_unchanged(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    faults = iter(["after"])
    relay.hang_up = lambda _: next(faults, None)
    await transport.call("ack", {**command(1), "attempt": 1}, handoff="0199", name=None)
    first, second = await soon(relay.got), await soon(relay.got)
    assert first == second
    assert first["handoff_id"] == "0199"


async def test_a_read_is_asked_again_after_a_loss(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    faults = iter(["before", "within"])
    relay.hang_up = lambda _: next(faults, None)
    assert await transport.call("inbox", {"after": 0}) == {"read": "inbox"}


async def test_the_same_process_is_resumed(relay: FakeRelay, transport: WebSocketTransport) -> None:
    faults = iter(["before"])
    relay.hang_up = lambda _: next(faults, None)
    await transport.call("offer", command(1))
    assert [hello["resume"] for hello in relay.hellos] == [None, "process-1"]
    assert all(hello["batch"] for hello in relay.hellos)


async def test_a_call_that_was_cancelled_is_not_sent_again(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    relay.silent = True
    given_up = asyncio.create_task(transport.call("offer", command(1)))
    assert (await soon(relay.got))["command_id"] == "command-1"
    given_up.cancel()
    with suppress(asyncio.CancelledError):
        await given_up
    relay.silent = False
    faults = iter(["before"])
    relay.hang_up = lambda _: next(faults, None)
    await transport.call("offer", command(2))
    sent = [frame["command_id"] for frames in relay.messages for frame in frames]
    assert sent == ["command-1", "command-2", "command-2"]


async def test_calls_of_one_turn_of_the_loop_leave_in_one_frame(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    await asyncio.gather(*(transport.call("offer", command(n)) for n in range(20)))
    assert [len(frames) for frames in relay.messages] == [20]


async def test_large_calls_do_not_share_a_frame(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    large = "x" * 200_000
    await asyncio.gather(
        *(transport.call("offer", {**command(n), "payload": large}) for n in range(3))
    )
    assert [len(frames) for frames in relay.messages] == [1, 1, 1]


# --- outcomes that are pushed --------------------------------------------------------------------


STORED: Final = {"handoff": {"id": "h1", "state": "offered"}}


def ended(call_id: int, result: Any) -> str:
    outcome = {"state": "completed", "at": "t", "by": "code_agent", "result": result}
    return msgspec.json.encode(
        {"id": call_id, "handoff": {"id": "h1", "origin": "me"}, "outcome": outcome}
    ).decode()


async def outcome_of(followed: Followed | None) -> Any:
    assert followed is not None
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await followed.wait(None)
    return None if followed.ended is None else followed.ended.outcome.result


async def test_the_outcome_of_an_offer_is_pushed_under_its_id(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stored = [await transport.call_followed("offer", command(n)) for n in range(2)]
    assert [each.brief.id for each in stored] == ["command-0", "command-1"]
    sent = [await soon(relay.got) for _ in range(2)]
    assert all(frame["follow"] for frame in sent)
    socket = await soon(relay.connections)
    for frame in reversed(sent):
        await socket.send_str(ended(frame["id"], frame["command_id"]))
    results = [await outcome_of(each.followed) for each in stored]
    assert results == ["command-0", "command-1"]


async def test_an_outcome_may_come_before_its_offer_is_known_to_be_stored(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    relay.silent = True
    making = asyncio.create_task(transport.call_followed("offer", command(1)))
    frame, socket = await soon(relay.got), await soon(relay.connections)
    await socket.send_str(ended(frame["id"], 7))
    await socket.send_str(
        msgspec.json.encode({"id": frame["id"], "ok": STORED, "follows": True}).decode()
    )
    assert await outcome_of((await making).followed) == 7


async def test_what_a_lost_connection_would_have_brought_is_to_be_asked_for(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stored = await transport.call_followed("offer", command(1))
    await (await soon(relay.connections)).close()
    assert await outcome_of(stored.followed) is None


async def test_an_offer_that_was_not_answered_is_followed_over_the_next_connection(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    faults = iter(["after"])
    relay.hang_up = lambda _: next(faults, None)
    stored = await transport.call_followed("offer", command(1))
    first, second = await soon(relay.got), await soon(relay.got)
    assert first == second
    await soon(relay.connections)
    await (await soon(relay.connections)).send_str(ended(second["id"], 7))
    assert await outcome_of(stored.followed) == 7
    assert relay.carried_out["command-1"] == 1


async def test_an_outcome_that_the_relay_will_not_push_is_to_be_asked_for(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stored = await transport.call_followed("offer", command(1))
    frame, socket = await soon(relay.got), await soon(relay.connections)
    refusal = {"id": frame["id"], "error": document(QueueFullError("later"))}
    await socket.send_str(msgspec.json.encode(refusal).decode())
    assert await outcome_of(stored.followed) is None
    relay.follows = False
    assert (await transport.call_followed("offer", command(2))).followed is None


async def test_closing_leaves_nobody_waiting_for_an_outcome(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stored = await transport.call_followed("offer", command(1))
    await soon(relay.got)
    await transport.close()
    assert await outcome_of(stored.followed) is None


# --- commands that nobody waits for --------------------------------------------------------------


async def test_quiet_commands_are_flushed(relay: FakeRelay, transport: WebSocketTransport) -> None:
    await transport.open()
    for n in range(3):
        transport.tell("settle", command(n), handoff=f"h{n}")
    await transport.flush()
    settled = [await soon(relay.got) for _ in range(3)]
    assert [(f["op"], f["handoff_id"], f["quiet"]) for f in settled] == [
        ("settle", f"h{n}", True) for n in range(3)
    ]
    assert (await soon(relay.got))["op"] == "flush"
    assert relay.carried_out.total() == 3


@pytest.mark.parametrize("fault", ["before", "after", "within"])
async def test_a_quiet_command_that_may_be_lost_is_repeated(
    relay: FakeRelay, transport: WebSocketTransport, fault: str
) -> None:
    await transport.open()
    faults = iter([None, fault])
    relay.hang_up = lambda _: next(faults, None)
    for n in range(3):
        transport.tell("settle", command(n), handoff=f"h{n}")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await transport.flush()
    assert relay.carried_out == {f"command-{n}": 1 for n in range(3)}


async def test_a_quiet_command_that_ends_every_connection_is_given_up(
    relay: FakeRelay, transport: WebSocketTransport, caplog: pytest.LogCaptureFixture
) -> None:
    await transport.open()
    relay.hang_up = lambda frame: "before" if frame["op"] == "settle" else None
    transport.tell("settle", command(1), handoff="h1")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await transport.flush()
    assert "given up" in caplog.text
    assert await transport.call("offer", command(2)) == {"did": "command-2"}
    sent = [frame["op"] for frames in relay.messages for frame in frames]
    assert sent.count("settle") <= Retrying().unanswered_max + 1


async def test_what_was_flushed_is_not_said_again(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    transport.tell("settle", command(1), handoff="h1")
    await transport.flush()
    await (await soon(relay.connections)).close()
    await transport.call("offer", command(2))
    operations = [frame["op"] for frames in relay.messages for frame in frames]
    assert operations == ["settle", "flush", "offer"]


async def test_many_quiet_commands_are_flushed_without_being_asked(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    for n in range(TOLD_MAX + 1):
        transport.tell("settle", command(n), handoff="h1")
    operations = Counter([(await soon(relay.got))["op"] for _ in range(TOLD_MAX + 2)])
    assert operations == {"settle": TOLD_MAX + 1, "flush": 1}


async def test_a_quiet_command_that_cannot_be_taken_now_is_repeated_until_it_is(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    refusals = iter([QueueFullError("later"), QueueFullError("later")])
    relay.refuse = lambda frame: next(refusals, None) if frame["op"] == "settle" else None
    transport.tell("settle", command(1), handoff="h1")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await transport.flush()
    assert relay.carried_out == {"command-1": 1}
    settles = [f for frames in relay.messages for f in frames if f["op"] == "settle"]
    assert [frame.get("quiet", False) for frame in settles] == [True, False, False]


async def test_a_quiet_command_that_is_refused_is_logged_and_dropped(
    relay: FakeRelay, transport: WebSocketTransport, caplog: pytest.LogCaptureFixture
) -> None:
    await transport.open()
    relay.refuse = lambda frame: NotFoundError("gone") if frame["op"] == "settle" else None
    transport.tell("settle", command(1), handoff="h1")
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await transport.flush()
    assert "gone" in caplog.text


# --- refusals ------------------------------------------------------------------------------------


async def test_a_refusal_is_raised_as_what_it_is(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    relay.refuse = lambda _: StaleAttemptError("you hold attempt 1")
    with pytest.raises(StaleAttemptError, match="you hold attempt 1"):
        await transport.call("complete", command(1), handoff="0199")
    assert len(relay.messages) == 1


async def test_a_retryable_refusal_is_repeated_with_the_same_command_id(
    relay: FakeRelay, transport: WebSocketTransport, clock: Clock
) -> None:
    refusals = iter([QueueFullError(), QueueFullError()])
    relay.refuse = lambda _: next(refusals, None)
    assert await transport.call("offer", command(1)) == {"did": "command-1"}
    sent = [frame["command_id"] for frames in relay.messages for frame in frames]
    assert sent == ["command-1"] * 3
    assert clock.slept == [1.0]  # as the relay asks for


async def test_a_retryable_refusal_is_raised_after_half_a_minute(
    relay: FakeRelay, transport: WebSocketTransport, clock: Clock
) -> None:
    relay.refuse = lambda _: QueueFullError()
    with pytest.raises(QueueFullError):
        await transport.call("offer", command(1))
    assert 25 < clock.time <= 30


async def test_a_command_without_an_id_is_not_repeated(
    relay: FakeRelay, transport: WebSocketTransport, clock: Clock
) -> None:
    relay.refuse = lambda _: QueueFullError()
    with pytest.raises(QueueFullError):
        await transport.call("heartbeat", {"process": "p"})
    assert clock.slept == []


async def test_a_refused_token_is_not_tried_again(relay: FakeRelay, url: str, clock: Clock) -> None:
    transport = WebSocketTransport(url, FixedToken("bad"), policy=clock.policy())
    with pytest.raises(UnauthenticatedError):
        await transport.open()
    assert len(relay.hellos) == 1
    await transport.close()


async def test_a_token_the_relay_forgot_is_renewed_once(
    relay: FakeRelay, url: str, clock: Clock
) -> None:
    class Renewing(FixedToken):
        async def renewed(self, refused: str | None) -> str | None:
            return {"old": "good"}.get(refused or "")

    transport = WebSocketTransport(url, Renewing("old"), policy=clock.policy())
    await transport.open()
    assert [hello["token"] for hello in relay.hellos] == ["old", "good"]
    await transport.close()


async def test_a_token_revoked_later_refuses_what_waits(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    relay.tokens.clear()
    faults = iter(["before"])
    relay.hang_up = lambda _: next(faults, None)
    with pytest.raises(UnauthenticatedError):
        await transport.call("offer", command(1))
    with pytest.raises(UnauthenticatedError):
        await transport.call("offer", command(2))


async def test_a_token_of_another_agent_is_refused(url: str, clock: Clock) -> None:
    transport = WebSocketTransport(
        url, FixedToken("good"), agent="code_agent", policy=clock.policy()
    )
    with pytest.raises(UnauthenticatedError, match="inbox_monitor's, not code_agent's"):
        await transport.open()
    await transport.close()


async def test_whose_token_it_is_becomes_known(transport: WebSocketTransport) -> None:
    await transport.open()
    assert transport.agent == "inbox_monitor"


async def test_only_the_call_that_is_too_large_is_refused(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    socket = await soon(relay.connections)
    relay.silent = True
    small = asyncio.create_task(transport.call("offer", command(1)))
    large = asyncio.create_task(transport.call("offer", {**command(2), "payload": "x" * 999}))
    await soon(relay.got)
    await soon(relay.got)
    relay.silent = False
    await socket.close(code=WSCloseCode.MESSAGE_TOO_BIG)
    with pytest.raises(TooLargeError):
        await large
    assert await small == {"did": "command-1"}


async def test_what_json_cannot_say_is_refused_before_it_is_sent(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    with pytest.raises(InvalidRequestError, match="payload"):
        await transport.call("offer", {**command(1), "payload": {"x": float("nan")}})
    assert relay.messages == []


async def test_closing_refuses_what_waits(relay: FakeRelay, transport: WebSocketTransport) -> None:
    relay.silent = True
    waiting = asyncio.create_task(transport.call("offer", command(1)))
    await soon(relay.got)
    await transport.close()
    with pytest.raises(InvalidRequestError, match="closed"):
        await waiting
    with pytest.raises(InvalidRequestError, match="closed"):
        await transport.call("offer", command(2))


# --- relays that are not there -------------------------------------------------------------------


async def test_a_relay_that_is_not_there_is_told_within_seconds(clock: Clock) -> None:
    address = f"ws://127.0.0.1:{unused_port()}/v1/channel"
    transport = WebSocketTransport(address, FixedToken("good"), policy=clock.policy())
    with pytest.raises(UnreachableError, match=address):
        await transport.open()
    assert 2.0 <= clock.time < 4.0
    await transport.close()


async def test_a_worker_waits_for_its_relay(relay: FakeRelay, clock: Clock) -> None:
    port = unused_port()
    server = TestServer(relay.app(), port=port)
    tried_often = asyncio.Event()

    def on_sleep() -> None:
        if clock.time > 60:
            tried_often.set()

    clock.on_sleep = on_sleep
    transport = WebSocketTransport(
        f"ws://127.0.0.1:{port}/v1/channel",
        FixedToken("good"),
        first_seconds_max=None,
        policy=clock.policy(),
    )
    answer = asyncio.create_task(transport.call("offer", command(1)))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await tried_often.wait()
        await server.start_server()
        assert await answer == {"did": "command-1"}
    await transport.close()
    await server.close()


async def test_reconnecting_is_tried_at_once_and_then_ever_less_often(
    relay: FakeRelay, transport: WebSocketTransport, clock: Clock
) -> None:
    faults = iter(["before"] * 6)
    relay.hang_up = lambda _: next(faults, None)
    await transport.call("offer", command(1))
    assert clock.slept == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8])


async def test_a_connection_that_worked_is_again_replaced_at_once(
    relay: FakeRelay, transport: WebSocketTransport, clock: Clock
) -> None:
    faults = iter(["before", None] * 5)
    relay.hang_up = lambda _: next(faults, None)
    for n in range(5):
        await transport.call("offer", command(n))
    assert clock.slept == []


@pytest.mark.parametrize(
    ("status", "error", "tries"),
    [
        (401, UnauthenticatedError, 1),
        (403, ForbiddenError, 1),
        (404, NotFoundError, 1),
        (400, InvalidRequestError, 1),
        (429, UnreachableError, 7),
        (503, UnreachableError, 7),
    ],
)
async def test_a_refused_upgrade_is_understood(
    clock: Clock, status: int, error: type[NodropError], tries: int
) -> None:
    tried = 0

    async def refuse(_: web.Request) -> web.Response:
        nonlocal tried
        tried += 1
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/v1/channel", refuse)
    async with TestServer(app) as server:
        address = str(server.make_url("/v1/channel")).replace("http", "ws")
        transport = WebSocketTransport(address, FixedToken("good"), policy=clock.policy())
        with pytest.raises(error):
            await transport.open()
        await transport.close()
    assert tried == tries


async def test_a_relay_that_talks_nonsense_is_left_for_a_new_connection(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    await transport.open()
    relay.silent = True
    asked = asyncio.create_task(transport.call("offer", command(1)))
    await soon(relay.got)
    relay.silent = False
    await (await soon(relay.connections)).send_str("<html>")
    assert await asked == {"did": "command-1"}
    assert len(relay.hellos) == 2


# --- deliveries ----------------------------------------------------------------------------------


def push(handoff_id: str, attempt: int = 1) -> str:
    delivery = {"handoff": {"id": handoff_id}, "attempt": attempt}
    return msgspec.json.encode({"push": "delivery", "delivery": delivery}).decode()


async def test_deliveries_come_as_they_are_pushed(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=4)
    socket = await soon(relay.connections)
    assert (await soon(relay.got))["n"] == 4
    assert (relay.hellos[-1]["resume"], relay.hellos[-1]["heartbeat_seconds"]) == ("p", 10)
    await socket.send_str(f"[{push('a')},{push('b')}]")
    reading = aiter(stream)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert [(await anext(reading))["handoff"]["id"] for _ in "ab"] == ["a", "b"]
    await socket.send_str(push("c"))
    await transport.call("offer", command(1))  # so it is here
    taken: asyncio.Queue[Frame] = asyncio.Queue()
    taking = asyncio.create_task(stream.hand_to(taken.put_nowait))
    await socket.send_str(push("d"))
    assert [(await soon(taken))["handoff"]["id"] for _ in "cd"] == ["c", "d"]
    await stream.close()
    await asyncio.wait_for(taking, WAIT_SECONDS_MAX)


async def test_credit_that_was_not_used_is_granted_again(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=4)
    reading = aiter(stream)
    socket = await soon(relay.connections)
    await socket.send_str(push("a"))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await anext(reading)
    stream.grant(2)
    assert [(await soon(relay.got))["n"] for _ in range(2)] == [4, 2]
    await socket.close()
    await soon(relay.connections)
    assert (await soon(relay.got))["n"] == 5


async def test_no_credit_is_granted_for_work_in_hand(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=1)
    reading = aiter(stream)
    socket = await soon(relay.connections)
    await soon(relay.got)
    await socket.send_str(push("a"))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await anext(reading)
    await socket.close()
    # The relay repeats what was not acknowledged, beyond the credit; the worker drops it.
    socket = await soon(relay.connections)
    await socket.send_str(push("a"))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await anext(reading)
    await socket.close()
    await soon(relay.connections)
    stream.grant(1)  # for the repeat
    stream.grant(1)  # for the work, once it is done
    await transport.call("offer", command(1))
    assert [n for n in relay.credit if n] == [1, 1]


async def test_a_busy_process_is_told_over_a_new_connection_what_waits(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=1)
    reading, waiting = aiter(stream), aiter(stream.waiting())
    socket = await soon(relay.connections)
    assert (await soon(relay.got))["n"] == 1
    await socket.send_str(push("a"))
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        await anext(reading)
    await socket.close()
    socket = await soon(relay.connections)
    # Without credit, and without a word the relay would not know that it takes deliveries.
    assert (await soon(relay.got)) == {"op": "credit", "n": 0}
    async with asyncio.timeout(WAIT_SECONDS_MAX), asyncio.TaskGroup() as group:
        told = group.create_task(next_of(waiting))
        await socket.send_str('{"push": "offered", "offered": {"id": "b", "slots": 1}}')
    assert told.result()["id"] == "b"


async def test_a_closed_stream_takes_nothing_over_the_next_connection(
    relay: FakeRelay, transport: WebSocketTransport
) -> None:
    stream = await transport.deliveries(process="p", heartbeat_seconds=10, credit=4)
    await soon(relay.connections)
    await transport.call("offer", command(1))
    await stream.close()
    stream.grant(1)
    await soon(relay.connections)
    await transport.call("offer", command(2))
    assert relay.credit == [4]
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        assert [delivery async for delivery in stream] == []
