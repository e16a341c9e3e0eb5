import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest

from kit.asgi import WAIT_SECONDS_MAX, Visitor
from nodrop.app import KeyFile, SystemIds
from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.limits import DEFAULT
from nodrop.relay.alarms import Alarm, Alarms
from nodrop.relay.relay import Relay
from nodrop.servers.gate import Gate
from nodrop.servers.http.door import HTTPDoor
from nodrop.servers.websocket.door import WebSocketDoor
from nodrop.testing.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def somebody_waits(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], Awaitable[None]]:
    """Return once somebody waits for so many milliseconds: a request is inside the relay."""
    waits: asyncio.Queue[int] = asyncio.Queue()
    set_alarm = Alarms.set

    def watched(self: Alarms, at: int, ring: Callable[[], None]) -> Alarm:
        waits.put_nowait(at - clock.now())
        return set_alarm(self, at, ring)

    monkeypatch.setattr(Alarms, "set", watched)

    async def wait(ms: int) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await waits.get() != ms:
                pass

    return wait


@pytest.fixture
def store() -> Store:
    return MemoryStore()


@pytest.fixture
async def relay(store: Store, clock: FakeClock, tmp_path: Path) -> AsyncGenerator[Relay]:
    """A relay with a team, and a token for each agent: `token-NAME`."""
    relay = await Relay.start(
        store,
        clock=clock,
        ids=SystemIds(),
        signer=KeyFile(tmp_path / "relay.pem"),
        limits=DEFAULT,
    )
    await relay.ensure_team("default")
    for agent in ("inbox_monitor", "code_agent"):
        await relay.ensure_token("default", agent=agent, role="agent", secret=f"token-{agent}")
    await relay.ensure_token("default", agent="me", role="operator", secret="token-me")
    yield relay
    await relay.stop()


@pytest.fixture
def http(relay: Relay) -> HTTPDoor:
    return HTTPDoor(relay)


@pytest.fixture
def stranger(relay: Relay, http: HTTPDoor) -> Visitor:
    """A client without a token, before the gate, whose requests arrive whole."""
    return Visitor(Gate(http=http, websocket=WebSocketDoor(relay, new_id=SystemIds().new)))


@pytest.fixture
def requester(stranger: Visitor) -> Visitor:
    return stranger.with_headers(authorization="Bearer token-inbox_monitor")


@pytest.fixture
def worker(stranger: Visitor) -> Visitor:
    return stranger.with_headers(authorization="Bearer token-code_agent")
