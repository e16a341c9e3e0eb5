"""Calls that a relay makes by itself: no redirect and no changed DNS answer leads them elsewhere.

Over real connections and the resolver of the C library, with a DNS server of the test's own.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import aiohttp
import aiohttp.web
import httpx
import pytest

from kit.dns import resolving
from nodrop.model.errors import InvalidRequestError
from nodrop.outbound.outlets.ways import Notify, Parcel, UnsentError, Webhook
from nodrop.relay.directory.reach import Reach
from nodrop.servers.a2a.addresses import Addresses
from nodrop.servers.a2a.calling.remote import AwayError, Remote

PUBLIC: Final = "93.184.215.14"
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY: Final = b"what only the addressee may read"
PARCEL: Final = Parcel(id="default.hook.7.message", subject="s", text=BODY.decode(), data={})
SECONDS_MAX: Final = 20.0
REDIRECTS: Final = (301, 302, 303, 307, 308)

UNSENT: Final = (UnsentError, AwayError, httpx.ConnectError, httpx.InvalidURL)

Way = Callable[[str], Awaitable[Any]]
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Apprise looks for


# --- the ways out --------------------------------------------------------------------------------


async def by_webhook(url: str, *, private: bool = True) -> None:
    await Webhook(url, SECRET, allow_private=private).send(PARCEL, now=0)


async def by_push(url: str, *, private: bool = True) -> None:
    addresses = Addresses().also(url) if private else Addresses()
    async with addresses.client(timeout_seconds=SECONDS_MAX) as client:
        answer = await client.post(url, content=BODY)
    assert answer.is_success, answer.status_code


async def to_an_agent_elsewhere(url: str, *, private: bool = True) -> None:
    reach = Reach(team="default", agent="elsewhere", a2a=url, private=private, token="peer")
    remote = Remote(reach, Addresses())
    try:
        await remote.look()
    finally:
        await remote.close()


async def to_a_person(url: str) -> None:
    await Notify(url.replace("http://", "json://")).send(PARCEL, now=0)


WAYS: dict[str, Way] = {
    "a webhook": by_webhook,
    "a push": by_push,
    "an agent elsewhere": to_an_agent_elsewhere,
    "a person": to_a_person,
}
GUARDED: dict[str, Callable[..., Awaitable[Any]]] = {
    "a webhook": by_webhook,
    "a push": by_push,
    "an agent elsewhere": to_an_agent_elsewhere,
}
"""Those that may be named by who is no operator."""


class Host:
    """A server on this machine, and what came to it."""

    def __init__(self) -> None:
        self.status = 204
        self.location = ""
        self.came: list[tuple[str, bytes]] = []
        self.url = ""

    async def receive(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        self.came.append((request.path, await request.read()))
        headers = {"location": self.location} if self.location else {}
        return aiohttp.web.Response(status=self.status, headers=headers)

    @property
    def port(self) -> str:
        return self.url.rpartition(":")[2]


async def listening() -> tuple[Host, aiohttp.web.AppRunner]:
    host = Host()
    application = aiohttp.web.Application()
    application.router.add_route("*", "/{tail:.*}", host.receive)
    runner = aiohttp.web.AppRunner(application)
    await runner.setup()
    await aiohttp.web.TCPSite(runner, "127.0.0.1", 0).start()
    host.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    return host, runner


@pytest.fixture
async def front() -> AsyncGenerator[Host]:
    """Where the relay was told to go."""
    host, runner = await listening()
    yield host
    await runner.cleanup()


@pytest.fixture
async def inside() -> AsyncGenerator[Host]:
    """What only the relay can reach."""
    host, runner = await listening()
    yield host
    await runner.cleanup()


# --- redirects -----------------------------------------------------------------------------------

ELSEWHERE: dict[str, str] = {
    "loopback": "{inside}/secret",
    "loopback by name": "http://localhost:{port}/secret",
    "loopback as a number": "http://2130706433:{port}/secret",
    "without a scheme": "//127.0.0.1:{port}/secret",
    "with a user": "http://a:b@127.0.0.1:{port}/secret",
    "metadata of the cloud": "http://169.254.169.254/latest/meta-data/",
    "a file": "file:///etc/passwd",
    "another protocol": "gopher://127.0.0.1:{port}/_POST",
    "itself again": "{front}/again",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("status", REDIRECTS)
async def test_no_redirect_is_followed(front: Host, inside: Host, status: int, way: str) -> None:
    """Not with a body, not with a token, not in a chain."""
    front.status = status
    async with asyncio.timeout(SECONDS_MAX):
        for location in ELSEWHERE.values():
            front.came.clear()
            front.location = location.format(inside=inside.url, port=inside.port, front=front.url)
            with pytest.raises((UnsentError, AwayError, AssertionError)):
                await WAYS[way](f"{front.url}/hook")
            assert len(front.came) == 1, location
            assert inside.came == [], location


@pytest.mark.parametrize("status", [307, 308])
async def test_a_client_that_follows_would_hand_the_body_over(
    front: Host, inside: Host, status: int
) -> None:
    """CONTROL: it is that nobody follows which keeps it here."""
    front.status, front.location = status, f"{inside.url}/secret"
    async with Addresses({"127.0.0.1"}).client(timeout_seconds=SECONDS_MAX) as client:
        await client.post(f"{front.url}/hook", content=BODY, follow_redirects=True)
    assert inside.came == [("/secret", BODY)]


# --- names that change their mind ----------------------------------------------------------------


class Connections:
    """Every address that this process connects to by TCP."""

    def __init__(self) -> None:
        self.to: list[str] = []

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        connect = loop.sock_connect

        async def watched(sock: Any, address: Any) -> None:
            self.to.append(address[0])
            if address[0] != "127.0.0.1":
                raise OSError("this machine has no network")
            await connect(sock, address)

        monkeypatch.setattr(loop, "sock_connect", watched)


@pytest.fixture
async def connections(monkeypatch: pytest.MonkeyPatch) -> Connections:
    connections = Connections()
    connections.watch(monkeypatch)
    return connections


@pytest.mark.parametrize("way", GUARDED)
async def test_a_name_that_leads_inside_later_is_not_connected_to(
    way: str, inside: Host, connections: Connections
) -> None:
    with resolving([PUBLIC], ["127.0.0.1"]) as server:
        url = f"http://rebound.example:{inside.port}/hook"
        await Addresses().check(url, path="url")  # public, when it is named
        with pytest.raises(UNSENT):
            await GUARDED[way](url, private=False)
    assert set(server.asked) == {"rebound.example"}
    assert len(server.asked) >= 2, "asked when it was named, and again to connect"
    assert (connections.to, inside.came) == ([], [])


@pytest.mark.parametrize("way", GUARDED)
async def test_the_connection_goes_to_the_address_that_was_looked_at(
    way: str, inside: Host, connections: Connections
) -> None:
    """The name is public when it is looked at, and leads inside whenever it is asked for again."""
    with resolving([PUBLIC], ["127.0.0.1"]) as server:
        with pytest.raises(UNSENT):
            await GUARDED[way](f"http://rebound.example:{inside.port}/hook", private=False)
        assert server.asked[:1] == ["rebound.example"]
    assert PUBLIC in connections.to
    assert "127.0.0.1" not in connections.to
    assert inside.came == []


@pytest.mark.parametrize("way", GUARDED)
async def test_one_private_address_among_public_ones_is_enough(
    way: str, inside: Host, connections: Connections
) -> None:
    for answer in ([PUBLIC, "127.0.0.1"], ["127.0.0.1", PUBLIC], ["10.0.0.1"], ["169.254.169.254"]):
        with resolving(answer):
            url = f"http://both.example:{inside.port}/"
            with pytest.raises(InvalidRequestError):
                await Addresses().check(url, path="url")
            with pytest.raises(UNSENT):
                await GUARDED[way](url, private=False)
    assert (connections.to, inside.came) == ([], [])


SPELLED: Final = (
    *("http://2130706433:{port}/", "http://0x7f000001:{port}/", "http://0177.0.0.1:{port}/"),
    *("http://127.1:{port}/", "http://0:{port}/", "http://[::ffff:127.0.0.1]:{port}/"),
    *("http://localhost:{port}/", "http://127.0.0.1.:{port}/", "http://[::1]:{port}/"),
    "http://[64:ff9b::7f00:1]:{port}/",
)


@pytest.mark.parametrize("way", GUARDED)
async def test_loopback_is_not_connected_to_however_it_is_spelled(
    way: str, inside: Host, connections: Connections
) -> None:
    for spelled in SPELLED:
        with pytest.raises(UNSENT):
            await GUARDED[way](spelled.format(port=inside.port), private=False)
    assert (connections.to, inside.came) == ([], [])


@pytest.mark.parametrize("way", GUARDED)
async def test_without_the_look_a_name_that_changed_its_mind_would_be_followed(
    way: str, inside: Host, connections: Connections
) -> None:
    """CONTROL: allowed by an operator, the same name leads to the same server."""
    with resolving([PUBLIC], ["127.0.0.1"]):
        url = f"http://rebound.example:{inside.port}/hook"
        await Addresses().check(url, path="url")
        with suppress(AwayError):  # what it answers is no card
            await GUARDED[way](url, private=True)
    assert connections.to.count("127.0.0.1") >= 1
    assert inside.came
