"""The gRPC door under attack: every refusal has its status and its code, and no words of our inside."""

import asyncio
import base64
import contextlib
import functools
import math
import ssl
import struct
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final
from unittest import mock

import grpc.aio
import pytest
from a2a.types import (
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
    Task,
    a2a_pb2,
)
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from msgspec.structs import replace

from kit.certificate import certificate
from nodrop.app import open_relay
from nodrop.model.limits import DEFAULT
from nodrop.protocol.requests import CreateToken, RevokeToken
from nodrop.relay.relay import Relay
from nodrop.servers.a2a import grpc as grpc_door
from nodrop.servers.a2a.door import A2ADoor
from nodrop.servers.a2a.handler import Handler
from nodrop.servers.inprocess import InProcessTransport
from nodrop.servers.listener.server import TLS

SECONDS_MAX: Final = 20.0
SHORT: Final = 0.3
CALLS_MAX: Final = 8
LIMITS: Final = replace(DEFAULT, grpc_calls_max=CALLS_MAX)
SERVICE: Final = a2a_pb2.DESCRIPTOR.services_by_name["A2AService"]
METHODS: Final = tuple(method.name for method in SERVICE.methods)
INSIDE: Final = ("Traceback", "<class", "google", "site-packages", "nodrop.", "Exception")
"""Words of the inside: no caller needs to know them."""
EXTENSION: Final = "urn:nodrop:a2a:handoff:v1"

Metadata = tuple[tuple[str, str | bytes], ...]
GOOD: Final[Metadata] = (("authorization", "Bearer token-planner"),)


class RefusedError(Exception):
    """How a call ended."""

    def __init__(self, error: grpc.aio.AioRpcError) -> None:
        self.status = error.code().name
        self.said = error.details() or ""
        self.code: str | None = None
        for name, value in error.trailing_metadata() or ():
            if name == "grpc-status-details-bin" and isinstance(value, bytes):
                found = ErrorInfo()
                Status.FromString(value).details[0].Unpack(found)
                self.code = found.metadata.get("code")
        super().__init__(self.status, self.said, self.code)


class Port:
    """A relay that speaks gRPC, and a channel to it."""

    def __init__(self, relay: Relay, place: str, channel: grpc.aio.Channel) -> None:
        self.relay = relay
        self.channel: Any = channel
        self.number = int(place.rpartition(":")[2])

    async def call(
        self, path: str, data: bytes, metadata: Metadata = GOOD, **options: Any
    ) -> bytes:
        """Make a call with bytes as they are."""
        path = path if path.startswith("/") else f"/{SERVICE.full_name}/{path}"
        called = self.channel.unary_unary(path)
        try:
            return await called(data, metadata=metadata, timeout=SECONDS_MAX, **options)
        except grpc.aio.AioRpcError as error:
            raise RefusedError(error) from None

    async def refused(
        self, path: str, data: bytes, metadata: Metadata = GOOD, **options: Any
    ) -> RefusedError:
        """Return how a call is refused; it says nothing of our inside, and changes nothing."""
        before = await self.entries()
        with pytest.raises(RefusedError) as refused:
            await self.call(path, data, metadata, **options)
        assert not any(words in refused.value.said for words in INSIDE), refused.value.said
        assert await self.entries() == before
        return refused.value

    async def send(self, request: SendMessageRequest | None = None) -> Task:
        answer = await self.call("SendMessage", (request or message()).SerializeToString())
        return SendMessageResponse.FromString(answer).task

    async def entries(self) -> int:
        caller = await self.relay.authenticate("token-me")
        found = await InProcessTransport(self.relay, caller).call("log", {"limit": 500})
        return len(found["entries"])

    def noted(self, reason: str) -> int:
        """Return how often the security log has a reason, with the address it came from."""
        refusals = self.relay.refusals.of("default", limit=1_000)
        return sum(r.count for r in refusals if r.reason == reason and r.address == "127.0.0.1")

    async def heard(self, *said: bytes) -> bytes:
        """Say something on a bare connection; return what came until the other side closed it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number)
        try:
            for piece in said:
                writer.write(piece)
                await writer.drain()
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def message(text: str = "hi") -> SendMessageRequest:
    request = SendMessageRequest(tenant="coder")
    request.configuration.return_immediately = True
    request.message.message_id = "m1"
    request.message.role = a2a_pb2.ROLE_USER
    request.message.parts.add().text = text
    return request


@contextlib.asynccontextmanager
async def opened(
    home: Path, *, tls: TLS | None = None, handshake_seconds: float = SECONDS_MAX
) -> AsyncGenerator[Port]:
    pair = (tls.certificate, tls.key) if tls else None
    async with open_relay(":memory:", home=home, limits=LIMITS) as relay:
        way = functools.partial(InProcessTransport, relay)
        door = A2ADoor(relay, way, team="default", keys=lambda: ())
        for name, role in (("planner", "agent"), ("coder", "agent"), ("me", "operator")):
            await relay.ensure_token("default", agent=name, role=role, secret=f"token-{name}")
        await relay.ensure_team("others")
        await relay.ensure_token("others", agent="spy", role="agent", secret="token-spy")
        async with (
            asyncio.timeout(60),
            door.running(),
            grpc_door.serving(
                door,
                host="127.0.0.1",
                port=0,
                certificate=pair,
                handshake_seconds=handshake_seconds,
            ) as place,
        ):
            if tls is None:
                made = grpc.aio.insecure_channel(place)
            else:
                trusted = grpc.ssl_channel_credentials(tls.certificate.read_bytes())
                made = grpc.aio.secure_channel(place, trusted)
            async with made as channel:
                yield Port(relay, place, channel)


@pytest.fixture
async def port(tmp_path: Path) -> AsyncGenerator[Port]:
    async with opened(tmp_path) as port:
        yield port


@pytest.fixture
def tls(tmp_path: Path) -> TLS:
    return certificate(tmp_path)


# --- bytes that are no message -------------------------------------------------------------------

NO_MESSAGES = {
    "garbage": b"\xff\xff\xff",
    "text that is none": b"\x0a\x02\xff\xfe",
    "cut off": b"\x0a\x7fab",
    "a group without end": b"\x0b" * 200,
}


@pytest.mark.parametrize("data", NO_MESSAGES.values(), ids=NO_MESSAGES)
async def test_what_is_no_message_is_refused_by_every_method(port: Port, data: bytes) -> None:
    for method in METHODS:
        refused = await port.refused(method, data)
        assert (refused.status, refused.code) == ("INVALID_ARGUMENT", "invalid_request"), method


async def test_without_our_reading_grpc_would_call_it_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTROL: gRPC's own answer is UNKNOWN, and names classes."""

    async def untouched(_: Any, continuation: Callable[[Any], Any], details: Any) -> Any:
        return await continuation(details)

    reading = "nodrop.servers.a2a.grpc._Reading.intercept_service"
    monkeypatch.setattr(reading, untouched)
    async with opened(tmp_path) as port:
        with pytest.raises(RefusedError) as refused:
            await port.call("SendMessage", b"\xff\xff\xff")
    assert refused.value.status == "UNKNOWN"
    assert "<class" in refused.value.said


def not_finite(number: float, place: str) -> SendMessageRequest:
    request = message()
    if place == "data":
        request.message.parts[0].data.struct_value.fields["x"].number_value = number
    elif place == "metadata":
        request.message.metadata.fields["x"].number_value = number
    else:
        ours = request.message.metadata.fields[EXTENSION]
        ours.struct_value.fields["deadline"].number_value = number
    return request


@pytest.mark.parametrize("place", ["data", "metadata", "terms"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
async def test_a_number_that_json_has_not_is_refused(port: Port, number: float, place: str) -> None:
    refused = await port.refused("SendMessage", not_finite(number, place).SerializeToString())
    assert (refused.status, refused.code) == ("INVALID_ARGUMENT", "invalid_request")


async def test_lists_that_make_no_sense_are_refused(port: Port) -> None:
    never = ListTasksRequest(tenant="coder")
    never.status_timestamp_after.seconds = 2**62
    page = base64.urlsafe_b64encode(b'{"timestamp_ns": 1e400, "task_id": []}').decode()
    for request in (
        never,
        ListTasksRequest(tenant="coder", page_token="\x00"),
        ListTasksRequest(tenant="coder", page_token=page),
        ListTasksRequest(tenant="coder", page_size=-1),
        ListTasksRequest(tenant="coder", status=99),  # pyright: ignore[reportArgumentType]  # that is the attack
        ListTasksRequest(tenant="coder", history_length=-1),
    ):
        refused = await port.refused("ListTasks", request.SerializeToString())
        assert refused.status == "INVALID_ARGUMENT", request


# --- who asks ------------------------------------------------------------------------------------

STRANGERS: dict[str, Metadata] = {
    "nobody": (),
    "no scheme": (("authorization", "token-planner"),),
    "nothing after it": (("authorization", "Bearer "),),
    "basic": (("authorization", "Basic token-planner"),),
    "another token": (("authorization", "Bearer token-plannes"),),
    "two in one": (("authorization", "Bearer token-planner,token-planner"),),
    "in binary": (("authorization-bin", b"Bearer token-planner"),),
    "in another place": (("x-authorization", "Bearer token-planner"), ("token", "token-planner")),
}


@pytest.mark.parametrize("metadata", STRANGERS.values(), ids=STRANGERS)
async def test_who_is_not_known_is_refused_by_every_method(port: Port, metadata: Metadata) -> None:
    for number, method in enumerate(METHODS, start=1):
        request = SendMessageRequest(tenant="coder").SerializeToString()
        if method == "SendMessage":
            request = message().SerializeToString()
        elif method not in {"SendStreamingMessage", "ListTasks"}:
            request = b""
        refused = await port.refused(method, request, metadata)
        assert (refused.status, refused.code) == ("UNAUTHENTICATED", "unauthenticated"), method
        assert port.noted("unauthenticated") == number


async def test_a_token_that_was_revoked_is_none(port: Port) -> None:
    me = await port.relay.authenticate("token-me")
    made: Any = (await port.relay.call(me, "create_token", CreateToken(agent="planner"))).answer
    metadata: Metadata = (("authorization", f"Bearer {made.token}"),)
    assert await port.call("SendMessage", message().SerializeToString(), metadata)
    revoke = RevokeToken(token_id=made.token_id)
    await port.relay.call(me, "revoke_token", revoke, name=made.token_id)
    refused = await port.refused("SendMessage", message().SerializeToString(), metadata)
    assert (refused.status, refused.code) == ("UNAUTHENTICATED", "unauthenticated")


TWICE: dict[str, Metadata] = {
    "the good one first": (*GOOD, ("authorization", "Bearer token-coder")),
    "the good one last": (("authorization", "Bearer none"), *GOOD),
    "the same one": (*GOOD, *GOOD),
}


@pytest.mark.parametrize("metadata", TWICE.values(), ids=TWICE)
async def test_two_authorizations_are_none(port: Port, metadata: Metadata) -> None:
    refused = await port.refused("SendMessage", message().SerializeToString(), metadata)
    assert (refused.status, refused.code) == ("INVALID_ARGUMENT", "invalid_request")
    assert port.noted("header_twice") == 1


async def test_without_the_check_one_of_two_authorizations_would_count(port: Port) -> None:
    """CONTROL: two programs on the way could each believe another one."""
    with mock.patch("nodrop.servers.a2a.grpc._Servicer._check_said_once"):
        metadata = TWICE["the good one last"]
        assert await port.call("SendMessage", message().SerializeToString(), metadata)


async def test_agents_that_there_are_not_and_foreign_ones_are_not_found(port: Port) -> None:
    for tenant in ("nobody", "a/../b", "coder\x00", "x" * 5_000, "me/coder", "teams/others"):
        request = SendMessageRequest(tenant=tenant, message=message().message)
        refused = await port.refused("SendMessage", request.SerializeToString())
        assert (refused.status, refused.code) == ("NOT_FOUND", "not_found"), tenant
    spy: Metadata = (("authorization", "Bearer token-spy"),)
    refused = await port.refused("SendMessage", message().SerializeToString(), spy)
    assert refused.status == "NOT_FOUND"


async def test_a_version_that_is_not_spoken_is_refused(port: Port) -> None:
    for version in ("0.3", "2.0", "one", "1" * 4_000):
        said: Metadata = (*GOOD, ("a2a-version", version))
        refused = await port.refused("GetTask", GetTaskRequest(id="x").SerializeToString(), said)
        assert refused.status == "FAILED_PRECONDITION"
        assert len(refused.said) < 200


async def test_what_is_not_ours_to_tell_is_not_served(port: Port) -> None:
    for path in (
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        "/grpc.health.v1.Health/Check",
        "/grpc.channelz.v1.Channelz/GetServers",
        "Explode",
    ):
        assert (await port.refused(path, b"")).status == "UNIMPLEMENTED", path


# --- how much ------------------------------------------------------------------------------------


async def test_messages_are_bounded_packed_or_not(port: Port) -> None:
    payload = message("x" * (LIMITS.body_bytes_max + 1)).SerializeToString()
    refused = await port.refused("SendMessage", payload)
    assert (refused.status, refused.code) == ("INVALID_ARGUMENT", "too_large")
    frame = message("x" * LIMITS.frame_bytes_max).SerializeToString()
    assert (await port.refused("SendMessage", frame)).status == "RESOURCE_EXHAUSTED"
    bomb = message("x" * 50 * LIMITS.frame_bytes_max).SerializeToString()
    for packed in (grpc.Compression.Gzip, grpc.Compression.Deflate):
        refused = await port.refused("SendMessage", bomb, compression=packed)
        assert refused.status == "UNIMPLEMENTED", "not even unpacked"
    large: Metadata = (*GOOD, ("x-large", "x" * 100_000))
    refused = await port.refused("SendMessage", message().SerializeToString(), large)
    assert refused.status == "RESOURCE_EXHAUSTED"
    assert (await port.send()).id


async def test_more_calls_at_a_time_than_there_may_be_are_refused(port: Port) -> None:
    task = await port.send()
    follow = port.channel.unary_stream(f"/{SERVICE.full_name}/SubscribeToTask")
    asked = SubscribeToTaskRequest(tenant="coder", id=task.id).SerializeToString()
    streams = [follow(asked, metadata=GOOD) for _ in range(CALLS_MAX)]
    for stream in streams:
        assert await stream.read()
    for _ in range(5):
        refused = await port.refused("SendMessage", message().SerializeToString())
        assert refused.status == "RESOURCE_EXHAUSTED"
    streams[0].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await streams[0].code()
    while True:  # until the server has heard of it
        with contextlib.suppress(RefusedError):
            assert (await port.send()).id
            break
    for stream in streams:
        stream.cancel()


async def test_a_stream_ends_with_the_token_that_opened_it(port: Port) -> None:
    me = await port.relay.authenticate("token-me")
    made: Any = (await port.relay.call(me, "create_token", CreateToken(agent="planner"))).answer
    metadata: Metadata = (("authorization", f"Bearer {made.token}"),)
    task = await port.send()
    follow = port.channel.unary_stream(f"/{SERVICE.full_name}/SubscribeToTask")
    asked = SubscribeToTaskRequest(tenant="coder", id=task.id).SerializeToString()
    stream = follow(asked, metadata=metadata)
    assert await stream.read()
    revoke = RevokeToken(token_id=made.token_id)
    await port.relay.call(me, "revoke_token", revoke, name=made.token_id)
    coder = InProcessTransport(port.relay, await port.relay.authenticate("token-coder"))
    await coder.call("ack", {"status": "secret"}, handoff=task.id)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_a_fault_of_ours_is_told_without_its_words(
    port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    broken = mock.patch.object(Handler, "_find", side_effect=ValueError("secret-path.py"))
    request = GetTaskRequest(tenant="coder", id="x").SerializeToString()
    with broken:
        refused = await port.refused("GetTask", request)
    assert (refused.status, refused.code) == ("INTERNAL", "relay_fault")
    assert "secret-path" not in refused.said
    assert "secret-path" in caplog.text


# --- bare frames ---------------------------------------------------------------------------------

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    head = struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
    return head + payload


DATA, HEADERS, RST, SETTINGS, PING = 0, 1, 3, 4, 6
HELLO: Final = PREFACE + frame(SETTINGS)
FRAMES: dict[str, list[bytes]] = {
    "no HTTP/2": [b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"],
    "garbage": [bytes(range(256)) * 8],
    "a frame larger than agreed": [HELLO, b"\xff\xff\xff" + frame(DATA, stream=1)[3:]],
    "headers that are none": [HELLO, frame(HEADERS, b"\xff" * 100, flags=4, stream=1)],
    "settings of half a size": [HELLO, frame(SETTINGS, b"\x00\x03\x00")],
    "more pings than any clock needs": [HELLO, *[frame(PING, bytes(8))] * 1_000],
    "a table of headers that overflows": [HELLO, frame(HEADERS, b"\x3f" * 40, flags=4, stream=1)],
}


@pytest.mark.parametrize("said", FRAMES.values(), ids=FRAMES)
async def test_frames_that_make_no_sense_end_their_connection_and_no_other(
    port: Port, said: list[bytes]
) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        await port.heard(*said)
    assert (await port.send()).id


async def test_calls_that_are_opened_and_reset_by_the_thousand_keep_nobody_out(port: Port) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port.number)
    writer.write(HELLO + frame(DATA, b"x", stream=1) + frame(HEADERS, flags=4))
    with contextlib.suppress(ConnectionError):
        for number in range(1, 20_000, 2):
            writer.write(frame(HEADERS, b"\x83\x86\x84", flags=4, stream=number))
            writer.write(frame(RST, bytes(4), stream=number))
        await writer.drain()
    assert (await port.send()).id
    writer.close()


HALF = {
    "nothing": b"",
    "half a preface": PREFACE[:10],
    "a preface and half a frame": PREFACE + frame(SETTINGS)[:5],
}


@pytest.mark.parametrize("said", HALF.values(), ids=HALF)
async def test_who_never_begins_is_closed_in_time(tmp_path: Path, said: bytes) -> None:
    async with asyncio.timeout(SECONDS_MAX), opened(tmp_path, handshake_seconds=SHORT) as port:
        await asyncio.gather(*(port.heard(said) for _ in range(50)))
        assert (await port.send()).id


async def test_who_never_begins_would_stay_without_the_bound(tmp_path: Path) -> None:
    """CONTROL: it is the relay that closes them."""
    async with opened(tmp_path, handshake_seconds=600) as port:
        staying = asyncio.create_task(port.heard(HALF["half a preface"]))
        done, _ = await asyncio.wait({staying}, timeout=5 * SHORT)
        assert not done
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)


# --- TLS -----------------------------------------------------------------------------------------


async def test_behind_tls_calls_in_clear_are_not_answered(tmp_path: Path, tls: TLS) -> None:
    async with opened(tmp_path, tls=tls, handshake_seconds=SHORT) as port:
        for said in (b"", HELLO, FRAMES["no HTTP/2"][0], bytes.fromhex("16030100c8010000c40303")):
            async with asyncio.timeout(SECONDS_MAX):
                answer = await port.heard(said)
            assert len(answer) <= 7, "an alert of TLS, or nothing"
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.number}") as clear:
            with pytest.raises(RefusedError) as refused:
                await Port(port.relay, f":{port.number}", clear).call("SendMessage", b"")
            assert refused.value.status == "UNAVAILABLE"
        assert (await port.send()).id


@pytest.mark.filterwarnings("ignore:.*TLSv1.* is deprecated")
async def test_behind_tls_old_versions_and_other_names_are_refused(
    tmp_path: Path, tls: TLS
) -> None:
    async with opened(tmp_path, tls=tls) as port:
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            old = ssl.create_default_context(cafile=tls.certificate)
            old.set_ciphers("ALL:@SECLEVEL=0")
            old.minimum_version, old.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, version
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await asyncio.open_connection("127.0.0.1", port.number, ssl=old)
        trusted = grpc.ssl_channel_credentials(tls.certificate.read_bytes())
        named = (("grpc.ssl_target_name_override", "evil.example"),)
        place = f"127.0.0.1:{port.number}"
        async with grpc.aio.secure_channel(place, trusted, options=named) as channel:
            with pytest.raises(RefusedError) as refused:
                await Port(port.relay, place, channel).call("SendMessage", b"")
            assert refused.value.status == "UNAVAILABLE"
        assert (await port.send()).id
