"""Connections fail, and nobody but the SDK does anything about it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pytest

import nodrop
from nodrop import app
from nodrop.client.transports import channel
from nodrop.client.transports.connecting import TransportName
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffsAnswer, LogAnswer
from nodrop.relay.relay import Caller, Relay
from nodrop_proof.chaos import network_cut
from nodrop_proof.chaos.callers import KEYLESS, Callers
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report
from nodrop_proof.kit.proxy import Proxy, Trouble

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

PATIENCE_SECONDS: Final = 40
HEARTBEAT_SECONDS: Final = 5.0
TRANSPORTS: Final[tuple[TransportName, ...]] = ("websocket", "http")
ME: Final = Caller(team="default", agent="me", operator=True)
UNHEARD_SECONDS: Final = 2.0
"""Enough to commit what the relay got."""
QUICKLY_NOTICED: Final = (Trouble.CUT, Trouble.RESET, Trouble.LATENCY)

T = TypeVar("T")


async def soon(work: Awaitable[T]) -> T:
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await work


class Office:
    """A relay in this process, and a bad network before it."""

    def __init__(self, relay: Relay, proxy: Proxy, direct: str) -> None:
        self.proxy = proxy
        self.direct = direct
        """Its address past the bad network."""
        self.url = f"http://127.0.0.1:{proxy.port}"
        self._relay = relay

    async def token(self, agent: str) -> str:
        secret = f"nd_{agent}_secret"
        await self._relay.ensure_token("default", agent=agent, role="agent", secret=secret)
        return secret

    async def handoffs(self) -> list[str]:
        answer = (await self._relay.call(ME, "list_handoffs", requests.ListHandoffs())).answer
        assert isinstance(answer, HandoffsAnswer)
        return [handoff.id for handoff in answer.handoffs]

    async def logged(self, type_: str) -> int:
        """Return where the first entry of a type stands, once there is one."""
        request = requests.GetLog(type=type_, wait=f"{PATIENCE_SECONDS}s")
        answer = (await self._relay.call(ME, "log", request)).answer
        assert isinstance(answer, LogAnswer)
        return answer.entries[0].seq

    async def types(self) -> set[str]:
        answer = (await self._relay.call(ME, "log", requests.GetLog(limit=500))).answer
        assert isinstance(answer, LogAnswer)
        return {entry.type for entry in answer.entries}


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    async with app.open_relay(":memory:", home=tmp_path) as relay, app.listening(relay) as url:
        address = urlsplit(url)
        assert address.hostname is not None
        assert address.port is not None
        async with Proxy.open(address.hostname, address.port) as proxy:
            yield Office(relay, proxy, url)


# --- nothing is lost, nothing is done twice ------------------------------------------------------


async def cut(
    folder: Path,
    *,
    count: int,
    seed: int,
    troubles: tuple[Trouble, ...],
    control: str | None = None,
) -> Report:
    plan = Plan(
        fault="network-cut",
        count=count,
        seed=seed,
        folder=folder,
        callers=64,
        controls=frozenset([control] if control else []),
    )
    return await network_cut.run(plan, lambda _done, _of: None, troubles=troubles)


async def test_nothing_is_lost_duplicated_or_run_again_although_connections_fail(
    tmp_path: Path,
) -> None:
    report = await cut(tmp_path, count=6, seed=7, troubles=QUICKLY_NOTICED)
    assert report.ok, report.findings
    assert report.acknowledged >= 6 * network_cut.FLOW_ANSWERS
    assert report.extras["outcomes"] == report.acknowledged
    assert report.extras["connections"] > len(network_cut.TRANSPORTS) * network_cut.CONNECTIONS


async def test_without_keys_connections_that_fail_leave_duplicates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A cut makes duplicates of what lies between a commit and its answer. So each comes while
    # somebody offers something, and after no answer has come through for a while.
    flowing = Callers.flowing

    async def offering(callers: Callers, answers: int) -> None:
        await flowing(callers, answers)
        await callers.offering()

    def cut_unheard(proxy: Proxy, _: Random, __: Iterable[Trouble]) -> Trouble:
        links = proxy.links
        proxy.strike(Trouble.HALF_OPEN_DOWN, links)
        asyncio.get_running_loop().call_later(UNHEARD_SECONDS, proxy.strike, Trouble.CUT, links)
        return Trouble.CUT

    monkeypatch.setattr(Callers, "flowing", offering)
    monkeypatch.setattr(network_cut, "FLOW_SECONDS", 0)
    monkeypatch.setattr(Proxy, "strike_at_random", cut_unheard)
    report = await cut(tmp_path, count=2, seed=7, troubles=(Trouble.CUT,), control=KEYLESS)
    assert report.duplicated > 0, "the check could not fail"


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("fields", "handoffs"), [({"command_id": "c1"}, 1), ({}, 2)])
async def test_an_offer_whose_answer_is_lost_is_one_handoff_only_by_its_id(
    office: Office, transport: TransportName, fields: dict[str, Any], handoffs: int
) -> None:
    token = await office.token("inbox_monitor")
    async with nodrop.connect(office.url, token=token, transport=transport) as client:
        await soon(client.agents())
        office.proxy.strike(Trouble.HALF_OPEN_DOWN)
        offering = asyncio.create_task(client.transport.call("offer", {"to": "b", **fields}))
        await office.logged("handoff.offered.v1")
        office.proxy.strike(Trouble.CUT)
        await soon(offering)
    assert len(await office.handoffs()) == handoffs


# --- half-open connections -----------------------------------------------------------------------


class Working:
    """A worker behind the bad network."""

    def __init__(self) -> None:
        self.attempts: list[int] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.finish = asyncio.Event()


@asynccontextmanager
async def working(office: Office, transport: TransportName) -> AsyncGenerator[Working]:
    agent = nodrop.Agent("code_agent")
    seen = Working()

    @agent.handler
    async def work(task: nodrop.Task) -> str:
        seen.attempts.append(task.attempt)
        seen.begun.put_nowait(task.id)
        await seen.finish.wait()
        return "done"

    serving = asyncio.create_task(
        agent.serve(
            office.url,
            token=await office.token("code_agent"),
            transport=transport,
            heartbeat_seconds=HEARTBEAT_SECONDS,
        )
    )
    try:
        yield seen
        agent.stop()
        await soon(serving)
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_worker_on_a_half_open_connection_keeps_its_lease_and_goes_on(
    office: Office, transport: TransportName
) -> None:
    requester = await office.token("inbox_monitor")
    async with (
        working(office, transport) as seen,
        nodrop.connect(office.direct, token=requester) as me,
    ):
        handoff = await me.hand_off("code_agent")
        await soon(seen.begun.get())
        office.proxy.strike(Trouble.HALF_OPEN)
        later = await me.hand_off("code_agent")
        assert await soon(seen.begun.get()) == later.id
        seen.finish.set()
        assert await handoff.result(wait=PATIENCE_SECONDS) == "done"
        assert await later.result(wait=PATIENCE_SECONDS) == "done"
    assert seen.attempts == [1, 1]
    assert "handoff.returned.v1" not in await office.types()


async def test_a_requester_on_a_half_open_connection_comes_back_for_its_answer(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel, "PING_SECONDS", channel.PING_SECONDS_MIN)
    token = await office.token("inbox_monitor")
    async with nodrop.connect(office.url, token=token) as me:
        office.proxy.strike(Trouble.HALF_OPEN)
        handoff = await soon(me.hand_off("code_agent"))
    assert await office.handoffs() == [handoff.id]
