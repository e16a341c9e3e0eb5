from collections.abc import Collection

import pytest
from starlette.types import Receive, Scope, Send

from kit.asgi import Visitor
from nodrop.servers.gate import LOOPBACK, Gate


async def inside(scope: Scope, _: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"inside"})
    else:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 1000})


def visitor(
    hosts: Collection[str] = LOOPBACK, *, addresses: bool = False, origins: Collection[str] = ()
) -> Visitor:
    gate = Gate(http=inside, websocket=inside, hosts=hosts, addresses=addresses, origins=origins)
    return Visitor(gate)


async def admitted(visitor: Visitor, **headers: str) -> bool:
    """Whether both kinds of request come in; they must not differ."""
    response = await visitor.request("GET", "/", headers=headers)
    async with visitor.channel(headers=headers) as channel:
        over_websocket = await channel.closed() == 1000
    over_http = response.status == 200
    assert over_http == over_websocket
    if not over_http:
        assert (response.status, response.json()["code"]) == (403, "forbidden")
    return over_http


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:6377", "localhost:80", "LOCALHOST", "[::1]:6377", "[::1]"]
)
async def test_a_name_of_this_machine_is_let_in_on_any_port(host: str) -> None:
    assert await admitted(visitor(), host=host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:6377",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "localhost@evil.example:80",
        "evil.example@localhost",
        "evil.example/localhost",
        "192.0.2.1",
        "[::1",
        ":6377",
        "",
    ],
)
async def test_any_other_name_is_turned_away(host: str) -> None:
    assert not await admitted(visitor(), host=host)


async def test_an_allowed_name_is_let_in() -> None:
    relay = visitor({*LOOPBACK, "Relay.Example"})
    assert await admitted(relay, host="relay.example:443")
    assert not await admitted(relay, host="other.example:443")


async def test_a_relay_on_all_addresses_is_reached_by_any_of_them_but_by_no_foreign_name() -> None:
    relay = visitor(addresses=True)
    assert await admitted(relay, host="192.0.2.1:6377")
    assert await admitted(relay, host="[2001:db8::1]:6377")
    assert not await admitted(relay, host="evil.example:6377")


async def test_a_page_of_the_relay_itself_may_call_it() -> None:
    assert await admitted(visitor(), host="127.0.0.1:6377", origin="http://127.0.0.1:6377")
    assert await admitted(visitor(), host="localhost", origin="https://localhost")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:8000",
        "http://localhost:6377",
        "http://127.0.0.1:6377.evil.example",
        "file://127.0.0.1:6377",
        "null",
        "",
    ],
)
async def test_a_page_of_any_other_origin_may_not(origin: str) -> None:
    assert not await admitted(visitor(), host="127.0.0.1:6377", origin=origin)


async def test_a_page_of_an_allowed_origin_may() -> None:
    relay = visitor(origins=["https://dashboard.example"])
    assert await admitted(relay, origin="https://dashboard.example")
    assert not await admitted(relay, origin="http://dashboard.example")
