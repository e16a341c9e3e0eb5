"""The doors behind TLS: what attacks the handshake holds nothing for long and keeps nobody out."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

from kit.certificate import certificate
from nodrop.app import listening
from nodrop.model.limits import DEFAULT
from nodrop.relay.relay import Relay
from nodrop.servers.listener.connections import Connections
from nodrop.servers.listener.server import TLS, Patience, listen

SECONDS_MAX = 20.0
SHORT = 0.3
LONG = 600.0
CROWD = 50
HELLO = bytes.fromhex("16030100c8010000c40303")
"""How a client's first message begins: 200 bytes were announced, and never come."""
REQUEST = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n"


@pytest.fixture
def tls(tmp_path: Path) -> TLS:
    return certificate(tmp_path)


async def healthy(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def patient(
    tls: TLS | None, seconds: float, *, connections: int = DEFAULT.connections_max
) -> AsyncGenerator[int]:
    """Listen with so much patience, and room for so many; yields the port."""
    patience = Patience(head_seconds=seconds, parting_seconds=seconds)
    async with listen(
        healthy,
        host="127.0.0.1",
        port=0,
        frame_bytes_max=1_000,
        tls=tls,
        patience=patience,
        connections=Connections(replace(DEFAULT, connections_max=connections)),
    ) as url:
        yield urlsplit(url).port or 0


def trusting(tls: TLS) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=tls.certificate)


async def serves(port: int, tls: TLS) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(tls))
    writer.write(REQUEST)
    answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 200")


async def heard(port: int, said: bytes) -> bytes:
    """Say something on a bare connection; return what came until the other side closed it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(said)
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


HALF = {
    "nothing": b"",
    "a piece of the first message": HELLO,
    "a record that never ends": HELLO + b"\x00" * 50,
}


@pytest.mark.parametrize("said", HALF.values(), ids=HALF)
async def test_half_a_handshake_is_closed_in_time(tls: TLS, said: bytes) -> None:
    async with asyncio.timeout(SECONDS_MAX), patient(tls, SHORT) as port:
        closed = await asyncio.gather(*(heard(port, said) for _ in range(CROWD)))
        assert len(closed) == CROWD
        assert await serves(port, tls)


async def test_half_a_handshake_would_stay_without_the_bound(tls: TLS) -> None:
    """CONTROL: it is the relay that closes them."""
    async with patient(tls, LONG) as port:
        staying = asyncio.create_task(heard(port, HELLO))
        done, _ = await asyncio.wait({staying}, timeout=5 * SHORT)
        assert not done
        assert await serves(port, tls), "others are served beside it"
        staying.cancel()
        await asyncio.gather(staying, return_exceptions=True)


@pytest.mark.parametrize("room", [20, 200], ids=["bounded", "CONTROL: room for all"])
async def test_handshakes_are_half_of_all_connections_at_most(tls: TLS, room: int) -> None:
    async with asyncio.timeout(SECONDS_MAX), patient(tls, LONG, connections=room) as port:
        crowd = [asyncio.create_task(heard(port, HELLO)) for _ in range(15)]
        if room > 30:
            assert await serves(port, tls)
            assert not any(task.done() for task in crowd)
        else:
            closing = asyncio.as_completed(crowd)
            assert [await next(closing) for _ in range(5)] == [b""] * 5
            assert await shakes_hands(port, trusting(tls)) is None
            assert sum(task.done() for task in crowd) == 5
        for task in crowd:
            task.cancel()
        await asyncio.gather(*crowd, return_exceptions=True)
        while not await serves_now(port, tls):  # until the relay has seen that they are gone
            pass


async def serves_now(port: int, tls: TLS) -> bool:
    try:
        return await serves(port, tls)
    except (ssl.SSLError, ConnectionError):
        return False


NO_TLS = {
    "a request in clear": REQUEST,
    "a token in clear": b"GET /v1/agents HTTP/1.1\r\nauthorization: Bearer t\r\n\r\n",
    "gRPC in clear": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    "garbage": bytes(range(256)) * 8,
    "a record of another version": b"\x17\x09\x09\xff\xff" + b"\x00" * 100,
    "a record too long": b"\x16\x03\x03\xff\xff" + b"\x00" * 70_000,
}


@pytest.mark.parametrize("said", NO_TLS.values(), ids=NO_TLS)
async def test_what_is_no_tls_gets_no_answer_of_the_relay_and_is_no_error_of_it(
    tls: TLS, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with asyncio.timeout(SECONDS_MAX), patient(tls, 5) as port:
        answer = await heard(port, said)
        assert b"HTTP/" not in answer
        assert len(answer) <= 7, "an alert of TLS, or nothing"
        assert await serves(port, tls)
    assert not caplog.records


async def shakes_hands(port: int, context: ssl.SSLContext) -> tuple[str, str] | None:
    """Return the version and cipher that both sides agree on; None: on none."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return None
    cipher = writer.get_extra_info("cipher")
    version = writer.get_extra_info("ssl_object").version()
    writer.close()
    return version, cipher[0]


def at_most(tls: TLS, version: ssl.TLSVersion, ciphers: str) -> ssl.SSLContext:
    context = trusting(tls)
    context.set_ciphers(ciphers)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    return context


@asynccontextmanager
async def a_server_of_yesterday(tls: TLS) -> AsyncGenerator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls.certificate, tls.key)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


OLD = (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)


@pytest.mark.filterwarnings("ignore:.*TLSv1.* is deprecated")
@pytest.mark.parametrize("version", OLD, ids=lambda version: version.name)
async def test_old_versions_are_not_spoken(tls: TLS, version: ssl.TLSVersion) -> None:
    context = at_most(tls, version, "ALL:@SECLEVEL=0")
    async with asyncio.timeout(SECONDS_MAX):
        async with patient(tls, 5) as port:
            assert await shakes_hands(port, context) is None
        async with a_server_of_yesterday(tls) as port:  # CONTROL: the client would
            assert await shakes_hands(port, context) is not None


async def test_a_client_of_tls_1_2_gets_a_cipher_with_forward_secrecy_and_authentication(
    tls: TLS,
) -> None:
    async with asyncio.timeout(SECONDS_MAX), patient(tls, 5) as port:
        agreed = await shakes_hands(port, at_most(tls, ssl.TLSVersion.TLSv1_2, "ALL"))
        assert agreed is not None
        assert agreed[0] == "TLSv1.2"
        assert agreed[1].startswith("ECDHE-")
        assert agreed[1].endswith(("GCM-SHA256", "GCM-SHA384", "CHACHA20-POLY1305"))
        weak = at_most(tls, ssl.TLSVersion.TLSv1_2, "ECDHE-ECDSA-AES256-SHA:@SECLEVEL=0")
        assert await shakes_hands(port, weak) is None
        newest = await shakes_hands(port, trusting(tls))
        assert newest is not None
        assert newest[0] == "TLSv1.3"


async def test_who_does_not_trust_the_certificate_does_not_connect(tls: TLS) -> None:
    async with asyncio.timeout(SECONDS_MAX), patient(tls, 5) as port:
        assert await shakes_hands(port, ssl.create_default_context()) is None
        other = trusting(tls)
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(
                "127.0.0.1", port, ssl=other, server_hostname="relay.example"
            )
        assert await serves(port, tls)


async def test_behind_tls_a_foreign_host_is_refused_as_anywhere(relay: Relay, tls: TLS) -> None:
    async with asyncio.timeout(SECONDS_MAX), listening(relay, tls=tls) as url:
        assert url.startswith("https://")
        port = urlsplit(url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting(tls))
        writer.write(REQUEST.replace(b"127.0.0.1", b"evil.example"))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 403")
        assert b'"code":"forbidden"' in answer
        writer.close()
