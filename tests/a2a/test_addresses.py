"""The relay connects to public addresses and to those an operator allowed, whatever a name says."""

import socket
from typing import Any

import httpx
import pytest

from nodrop.model.errors import InvalidRequestError
from nodrop.servers.a2a.addresses import Addresses
from nodrop.servers.listener.server import listen

PUBLIC = "93.184.215.14"


async def secret(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"only the relay can reach this"})


def resolving_to(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """Let names lead to the next answer each time somebody asks; return what was asked for."""
    asked: list[str] = []
    left = list(answers)

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


async def test_a_name_that_leads_elsewhere_later_is_not_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with listen(secret, host="127.0.0.1", port=0, frame_bytes_max=1_000) as url:
        port = url.rpartition(":")[2]
        asked = resolving_to(monkeypatch, [PUBLIC], ["127.0.0.1"])
        addresses, hook = Addresses(), f"http://rebound.example:{port}/"
        await addresses.check(hook, path="url")  # public, so far
        async with addresses.client(timeout_seconds=30) as client:
            with pytest.raises(httpx.ConnectError, match="not a public address"):
                await client.get(hook)
        assert asked == ["rebound.example", "rebound.example"]


async def test_without_the_look_when_connecting_it_would_be_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with listen(secret, host="127.0.0.1", port=0, frame_bytes_max=1_000) as url:
        hook = f"http://rebound.example:{url.rpartition(':')[2]}/"
        resolving_to(monkeypatch, ["127.0.0.1"])
        async with Addresses({"rebound.example"}).client(timeout_seconds=30) as client:
            assert (await client.get(hook)).text == "only the relay can reach this"


async def test_one_private_address_among_public_ones_is_enough_to_refuse(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolving_to(monkeypatch, [PUBLIC, "192.168.1.1"])
    with pytest.raises(InvalidRequestError, match="not a public address"):
        await Addresses().check("https://both.example/", path="url")


async def test_an_operator_allows_one_address_and_no_other() -> None:
    allowed = Addresses().also("http://127.0.0.1:6001/agent")
    await allowed.check("http://127.0.0.1:6001/other", path="url")
    for url in ("http://127.0.0.1:6002/agent", "http://127.0.0.2:6001/agent"):
        with pytest.raises(InvalidRequestError):
            await allowed.check(url, path="url")


async def test_an_answer_without_an_end_is_not_read_to_it() -> None:
    async def endless(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(200):
            await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})

    async with (
        listen(endless, host="127.0.0.1", port=0, frame_bytes_max=1_000) as url,
        Addresses({"127.0.0.1"}).client(timeout_seconds=30) as client,
    ):
        with pytest.raises(httpx.ReadError, match="more than"):
            await client.get(url)
