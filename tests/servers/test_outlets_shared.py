"""Outlets of relays that share a database: one of them sends, and another when that one is gone."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from nodrop import app
from nodrop.outbound.outlets.sender import Sender
from nodrop.outbound.outlets.ways import Parcel
from nodrop.protocol import requests
from nodrop.protocol.coordination import outlet_requests, talk_requests
from nodrop.relay.relay import Caller, Relay

SECONDS_MAX: Final = 30.0
PERSON = Caller(team="default", agent="me", operator=True)
OTHER = Caller(team="default", agent="other")


class Mailbox:
    """Where everything arrives that any relay sends."""

    def __init__(self) -> None:
        self.arrived: list[int] = []
        self._news = asyncio.Condition()

    async def send(self, parcel: Parcel, *, now: int) -> None:
        del now
        async with self._news:
            self.arrived.append(parcel.data["item"]["seq"])
            self._news.notify_all()

    async def has(self, seq: int) -> None:
        async with asyncio.timeout(SECONDS_MAX), self._news:
            await self._news.wait_for(lambda: seq in self.arrived)


class Node(AsyncExitStack):
    """A relay that sends."""

    relay: Relay

    async def ask(
        self, caller: Caller, operation: str, request: requests.Request, **of: Any
    ) -> Any:
        async with asyncio.timeout(SECONDS_MAX):
            return (await self.relay.call(caller, operation, request, **of)).answer

    async def say(self) -> int:
        """Put something into the inbox; return the entry that is about it."""
        return (await self.ask(OTHER, "say", talk_requests.Say(to="me", text="hello"))).seq

    async def outlets(self) -> list[tuple[str, int]]:
        listed = await self.ask(PERSON, "outlets", outlet_requests.ListOutlets())
        return [(outlet.name, outlet.sent) for outlet in listed.outlets]


@pytest.fixture
def mailbox() -> Mailbox:
    return Mailbox()


@pytest.fixture
async def start(
    database: str, tmp_path: Path, mailbox: Mailbox
) -> AsyncIterator[Callable[[], Awaitable[Node]]]:
    """Start one more node."""
    async with AsyncExitStack() as nodes:

        async def start() -> Node:
            node = await nodes.enter_async_context(Node())
            node.relay = await node.enter_async_context(app.open_relay(database, home=tmp_path))
            clock = app.SystemClock()
            sender = Sender(node.relay, clock=clock, way_of=lambda _: mailbox)
            await node.enter_async_context(sender.running())
            return node

        yield start


@pytest.fixture
async def here(start: Callable[[], Awaitable[Node]]) -> Node:
    """A node at which an outlet was set."""
    node = await start()
    place = outlet_requests.PutOutlet(url="mailto://x", kind="notify")
    await node.ask(PERSON, "put_outlet", place, name="mail")
    return node


@pytest.fixture
async def there(here: Node, start: Callable[[], Awaitable[Node]]) -> Node:
    del here  # one after the other
    return await start()


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not await true():  # noqa: ASYNC110  # another node has no event to wait for
            await asyncio.sleep(0.01)


async def test_of_several_nodes_one_sends_and_all_know_how_far(
    here: Node, there: Node, mailbox: Mailbox
) -> None:
    said: list[int] = []
    for _ in range(3):
        said.append(await there.say())
        await mailbox.has(said[-1])

    async def told() -> bool:
        return await here.outlets() == await there.outlets() == [("mail", 3)]

    await until(told)
    assert mailbox.arrived == said


async def test_what_a_node_that_is_gone_has_not_sent_another_sends(
    here: Node, there: Node, mailbox: Mailbox
) -> None:
    first = await here.say()
    await mailbox.has(first)

    async def told() -> bool:
        return await there.outlets() == [("mail", 1)]

    await until(told)
    await here.aclose()
    second = await there.say()
    await mailbox.has(second)
    assert mailbox.arrived == [first, second]


async def test_an_outlet_that_is_removed_at_one_node_sends_nothing_at_any(
    here: Node, there: Node, mailbox: Mailbox
) -> None:
    said = await here.say()
    await mailbox.has(said)
    await there.ask(PERSON, "remove_outlet", outlet_requests.RemoveOutlet(), name="mail")

    async def gone() -> bool:
        return await here.outlets() == await there.outlets() == []

    await until(gone)
    await here.say()
    assert mailbox.arrived == [said]
