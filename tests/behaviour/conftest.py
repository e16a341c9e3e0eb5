"""Every story is told once and runs over every door, on a relay whose clock the story moves."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from nodrop import app
from nodrop.client.http import HttpTransport
from nodrop.client.tokens import FixedToken
from nodrop.client.transport import Transport
from nodrop.client.websocket import WebSocketTransport
from nodrop.doors.inprocess import InProcessTransport
from nodrop.engine.relay import Relay
from nodrop.testing.clock import FakeClock

DOORS: Final = ("in-process", "http", "websocket")
PATIENCE_SECONDS: Final = 20
"""How long a story waits for what must happen; only a broken one ever waits that long."""

View = dict[str, Any]
Expected = Callable[[View], bool] | dict[str, Any]
"""What a story waits for; as fields, `...` is anything but nothing."""


class Member(Protocol):
    """An agent of the team, at its door."""

    name: str

    async def __call__(
        self,
        operation: str,
        handoff: str | None = None,
        /,
        *,
        named: str | None = None,
        **fields: Any,
    ) -> View:
        """Ask the relay for something."""
        ...


def _is(view: View, expected: Expected) -> bool:
    if callable(expected):
        return expected(view)
    return all(
        view[name] is not None if value is ... else view[name] == value
        for name, value in expected.items()
    )


class _Member:
    def __init__(self, name: str, transport: Transport) -> None:
        self.name = name
        self.transport = transport

    async def __call__(
        self,
        operation: str,
        handoff: str | None = None,
        /,
        *,
        named: str | None = None,
        **fields: Any,
    ) -> View:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.transport.call(operation, fields, handoff=handoff, name=named)


class Office:
    """A relay, its clock, and a way in for every agent."""

    def __init__(self, door: str, folder: Path) -> None:
        self.clock = FakeClock()
        self.door = door
        self._folder = folder
        self._stack = AsyncExitStack()
        self._relay: Relay | None = None
        self._url = ""
        self._members: dict[tuple[str, str], _Member] = {}

    @property
    def relay(self) -> Relay:
        assert self._relay is not None, "the relay is down"
        return self._relay

    async def open(self) -> None:
        """Bring the relay up, on the database as it was left."""
        self._relay = await self._stack.enter_async_context(
            app.open_relay(self._folder / "team.db", home=self._folder, clock=self.clock)
        )
        if self.door != "in-process":
            self._url = await self._stack.enter_async_context(app.listening(self._relay))
        await self.person()

    async def close(self) -> None:
        """Take the relay down."""
        for member in self._members.values():
            await member.transport.close()
        self._members.clear()
        self._relay = None
        await self._stack.aclose()

    async def restart(self, *, down_ms: int = 0) -> None:
        """Take the relay down, let time pass, bring it up again."""
        await self.close()
        self.clock.advance(down_ms)
        await self.open()

    async def join(self, name: str, *, role: str = "agent", team: str = "default") -> Member:
        """Return `name` at this story's door."""
        key = (team, name)
        if key not in self._members:
            if team != "default":
                await self.relay.ensure_team(team)
            token = f"nd_{team}_{name}_{role}_secret"
            await self.relay.ensure_token(team, agent=name, role=role, secret=token)
            self._members[key] = _Member(name, await self._transport(token))
        return self._members[key]

    async def enter(self, secret: str) -> Member:
        """Return whoever `secret` lets in, at this story's door."""
        member = _Member(secret[:8], await self._transport(secret))
        self._members["entered", str(len(self._members))] = member
        return member

    async def _transport(self, token: str) -> Transport:
        if self.door == "in-process":
            return InProcessTransport(self.relay, await self.relay.authenticate(token))
        if self.door == "http":
            return HttpTransport(self._url + "/v1", FixedToken(token))
        channel = self._url.replace("http", "ws", 1) + "/v1/channel"
        return WebSocketTransport(channel, FixedToken(token))

    async def person(self) -> Member:
        """Return the person `me`, who may do what an operator may."""
        return await self.join("me", role="operator")

    async def pass_time(self, ms: int, *, then: Expected, of: View | str) -> View:
        """Move the clock and return the handoff once the relay has done what `then` expects."""
        self.clock.advance(ms)
        return await self.see(of, then)

    def start(self, work: Awaitable[View]) -> asyncio.Future[View]:
        """Begin something that waits, while the story goes on."""
        return asyncio.ensure_future(work)

    async def after(self, ms: int, waiting: Awaitable[View]) -> View:
        """Return what `waiting` answers once the clock has been moved past its patience."""
        task = self.start(waiting)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not task.done():
                await self.settled()
                self.clock.advance(ms)
            return await task

    async def settled(self) -> None:
        """Let whatever is under way come to rest, by asking the relay something behind it."""
        me = await self.person()
        for _ in range(3):
            await me("heartbeat")

    async def see(self, of: View | str, expected: Expected) -> View:
        """Return a handoff once it is as expected. Follows the log: nothing is polled."""
        me = await self.person()
        handoff_id = of if isinstance(of, str) else of["id"]
        after = 0
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                view = (await me("get_handoff", handoff_id))["handoff"]
                if _is(view, expected):
                    return view
                page = await me("log", after=after, wait="60s", handoff_id=handoff_id)
                after = page["after"]


@pytest.fixture(params=DOORS)
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Office]:
    office = Office(request.param, tmp_path)
    await office.open()
    yield office
    await office.close()


@pytest.fixture
async def inbox_monitor(office: Office) -> Member:
    return await office.join("inbox_monitor")


@pytest.fixture
async def code_agent(office: Office) -> Member:
    return await office.join("code_agent")
