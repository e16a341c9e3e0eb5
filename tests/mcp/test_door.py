"""`/mcp` over HTTP: who is let in, and what becomes of what is not MCP."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nodrop import app
from nodrop.relay.relay import Relay
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

SECONDS_MAX = 30
SEEN = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
MINE = {**SEEN, "authorization": "Bearer nd_a"}


def request(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


HANDSHAKE = request(
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "test", "version": "1"},
)


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncGenerator[Relay]:
    async with app.open_relay(app.MEMORY, home=tmp_path) as relay:
        await relay.ensure_token("default", agent="a", role="agent", secret="nd_a")
        yield relay


@pytest.fixture
async def web(relay: Relay) -> AsyncGenerator[httpx2.AsyncClient]:
    async with app.listening(relay) as url, httpx2.AsyncClient(base_url=url) as web:
        yield web


@pytest.fixture
async def entries(relay: Relay) -> Any:
    me = InProcessTransport(relay, await relay.authenticate("nd_a"))

    async def count() -> int:
        return (await me.call("checkpoints", {}))["size"]

    return count


async def test_an_older_client_shakes_hands_and_needs_no_session(web: httpx2.AsyncClient) -> None:
    answer = await web.post("/mcp", json=HANDSHAKE, headers=MINE)
    assert answer.status_code == 200
    assert "mcp-session-id" not in answer.headers
    result = answer.json()["result"]
    assert result["protocolVersion"] == "2025-06-18"
    assert "inbox" in result["instructions"]
    headers = {**MINE, "mcp-protocol-version": "2025-06-18"}
    listed = await web.post("/mcp", json=request("tools/list"), headers=headers)
    assert len(listed.json()["result"]["tools"]) == 12


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (SEEN, 401),
        ({**SEEN, "authorization": "Bearer wrong"}, 401),
        ({**SEEN, "authorization": "Basic nd_a"}, 401),
        ({**MINE, "host": "evil.example"}, 403),
        ({**MINE, "origin": "https://evil.example"}, 403),
    ],
)
async def test_strangers_and_pages_of_others_stay_outside(
    web: httpx2.AsyncClient, relay: Relay, headers: dict[str, str], status: int
) -> None:
    answer = await web.post("/mcp", json=HANDSHAKE, headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    if status == 401:
        assert answer.headers["www-authenticate"] == "Bearer"
    [refusal] = relay.refusals.of("default", limit=9)
    where = "mcp" if status == 401 else "gate"
    assert (refusal.operation, refusal.address) == (where, "127.0.0.1")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_nothing_but_post_is_spoken(web: httpx2.AsyncClient, method: str) -> None:
    answer = await web.request(method, "/mcp", headers=MINE)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


CALL = "tools/call"
BAD: dict[str, tuple[bytes, int, int]] = {
    "no JSON": (b"{", 400, -32700),
    "no JSON-RPC": (b'{"hello": 1}', 400, -32602),
    "an unknown method": (json.dumps(request("tools/eat")).encode(), 200, -32601),
    "an unknown tool": (json.dumps(request(CALL, name="eat", arguments={})).encode(), 200, -32602),
    "no name": (json.dumps(request(CALL, arguments={})).encode(), 200, -32602),
    "arguments that are none": (
        json.dumps(request(CALL, name="inbox", arguments=[1])).encode(), 200, -32602,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
async def test_what_is_no_mcp_gets_the_protocols_own_error_and_stores_nothing(
    web: httpx2.AsyncClient, entries: Any, case: str
) -> None:
    body, status, code = BAD[case]
    before = await entries()
    headers = {**MINE, "mcp-protocol-version": "2025-06-18"}
    answer = await web.post("/mcp", content=body, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["code"] == code, answer.text
    assert await entries() == before


async def in_pieces(body: bytes) -> AsyncGenerator[bytes]:
    yield body[:1_000]
    yield body[1_000:]


@pytest.mark.parametrize("sent", [bytes, in_pieces], ids=["at once", "in pieces"])
async def test_too_much_is_refused_as_at_every_door(
    web: httpx2.AsyncClient, entries: Any, sent: Callable[[bytes], Any]
) -> None:
    before = await entries()
    offer = request(CALL, name="hand_off", arguments={"to": "b", "title": "y" * 1_400_000})
    answer = await web.post("/mcp", content=sent(json.dumps(offer).encode()), headers=MINE)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert answer.headers["content-type"] == "application/problem+json"
    assert await entries() == before


@pytest.mark.parametrize("sent", [bytes, in_pieces], ids=["at once", "in pieces"])
async def test_a_body_counts_among_what_is_on_its_way_of_its_agent(
    relay: Relay, web: httpx2.AsyncClient, entries: Any, sent: Callable[[bytes], Any]
) -> None:
    before, offer = (
        await entries(),
        request(CALL, name="write_log", arguments={"text": "y" * 9_000}),
    )
    body = json.dumps(offer).encode()
    with relay.incoming.counting(("default", "a")) as counted:
        counted(relay.limits.incoming_bytes_per_agent_max - len(body) + 1)
        refused = await web.post("/mcp", content=sent(body), headers=MINE)
        assert refused.json()["code"] == "queue_full"
        assert await entries() == before
    answer = await web.post("/mcp", content=sent(body), headers=MINE)
    assert answer.status_code == 200
    assert await entries() > before
    with relay.incoming.counting(("default", "a")) as counted:
        counted(relay.limits.incoming_bytes_per_agent_max)  # nothing of it is still counted


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**MINE, "content-type": "text/plain"}, 400),
        ({**MINE, "accept": "text/html"}, 406),
        ({**MINE, "mcp-protocol-version": "1999-01-01"}, 400),
    ],
)
async def test_wrong_types_and_versions_are_refused(
    web: httpx2.AsyncClient, entries: Any, headers: dict[str, str], status: int
) -> None:
    before = await entries()
    offer = request(CALL, name="hand_off", arguments={"to": "b", "title": "T"})
    answer = await web.post("/mcp", json=offer, headers=headers)
    assert answer.status_code == status
    assert await entries() == before


class WatchedClock(FakeClock):
    """Also tells who sleeps."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeps: asyncio.Queue[int] = asyncio.Queue()

    async def sleep_until(self, at: int) -> None:
        self.sleeps.put_nowait(at - self.now())
        await super().sleep_until(at)


async def test_a_tool_that_waits_is_answered_when_the_relay_stops(tmp_path: Path) -> None:
    call = request(CALL, name="wait", arguments={"seconds": 50})
    headers = {**MINE, "mcp-protocol-version": "2025-06-18"}
    clock = WatchedClock()
    async with (
        asyncio.timeout(SECONDS_MAX),
        app.open_relay(app.MEMORY, home=tmp_path, clock=clock) as relay,
        httpx2.AsyncClient(timeout=SECONDS_MAX) as web,
    ):
        await relay.ensure_token("default", agent="a", role="agent", secret="nd_a")
        async with app.listening(relay) as url:
            waiting = asyncio.ensure_future(web.post(f"{url}/mcp", json=call, headers=headers))
            while not 46_000 < await clock.sleeps.get() <= 47_000:
                pass  # the relay's own clocks; then the wait itself is inside
        answer = await waiting
    assert "the relay is stopping" in answer.text


async def test_without_the_extra_it_says_which_to_install(
    web: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nodrop.servers.mcp.sessions", None)
    answer = await web.post("/mcp", json=HANDSHAKE, headers=MINE)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (501, "not_installed")
    assert "nodrop[relay]" in problem["next"]


@pytest.mark.parametrize("path", ["/skill.md", "/llms.txt"])
async def test_agents_read_how_to_join_before_they_have_a_token(
    web: httpx2.AsyncClient, path: str
) -> None:
    answer = await web.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/")
    assert "inbox" in answer.text or ("/mcp" in answer.text and "/agents/NAME/" in answer.text)
