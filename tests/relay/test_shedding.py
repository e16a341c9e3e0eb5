"""Dropping caches where memory is short: everything is answered as before, and no commit loses its place."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nodrop.app import machine
from nodrop.log.port import Page, Team
from nodrop.log.sqlite import SQLiteStore
from nodrop.model.errors import QueueFullError
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol import requests as r
from nodrop.protocol.times import format_time
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.handoffs import TEAM

SENDER = Caller(team=TEAM, agent="inbox_monitor")
WORKER = Caller(team=TEAM, agent="code_agent")
SECONDS_MAX = 25.0


@pytest.fixture
async def file(tmp_path: Path) -> AsyncGenerator[SQLiteStore]:
    async with await SQLiteStore.open(tmp_path / "nodrop.db") as store:
        yield store


async def test_a_handoff_goes_on_after_its_caches_were_dropped(
    started: Callable[[Any, Limits], Awaitable[Relay]], file: SQLiteStore
) -> None:
    relay = await started(file, DEFAULT)
    made: Any = (await relay.call(SENDER, "offer", r.Offer(to="code_agent", title="Fix"))).answer
    about = made.handoff.id
    for request in (
        r.Ack(command_id="c1"),
        r.Update(attempt=1, status="half way", command_id="c2"),
        r.Complete(attempt=1, result={"n": 1}, command_id="c3"),
    ):
        await file.list_handoffs(Page(team=TEAM, limit=1))  # which has the rows written
        await relay.shed()
        assert file.cached((TEAM, about)) is None
        name = type(request).__name__.lower()
        await relay.call(WORKER, name, request, reference=about)
    await relay.shed()
    shown: Any = (await relay.call(SENDER, "get_handoff", r.GetHandoff(), reference=about)).answer
    assert (shown.handoff.title, shown.handoff.outcome.result) == ("Fix", {"n": 1})
    log: Any = (await relay.call(SENDER, "log", r.GetLog(handoff_id=about))).answer
    assert [entry.type.split(".")[1] for entry in log.entries] == [
        *("offered", "delivered", "accepted", "updated", "completed", "outcome_delivered"),
    ]


async def test_everything_that_can_be_made_again_is_dropped(
    started: Callable[[Any, Limits], Awaitable[Relay]], file: SQLiteStore
) -> None:
    relay = await started(file, DEFAULT)
    made: Any = (await relay.call(SENDER, "offer", r.Offer(to="code_agent", title="Fix"))).answer
    view: Any = (
        await relay.call(SENDER, "get_handoff", r.GetHandoff(), reference=made.handoff.id)
    ).answer
    assert format_time.cache_info().currsize > 0
    await relay.shed()
    assert format_time.cache_info().currsize == 0
    again: Any = (
        await relay.call(SENDER, "get_handoff", r.GetHandoff(), reference=made.handoff.id)
    ).answer
    assert again == view


async def test_reads_of_one_agent_beyond_a_bound_are_refused(
    started: Callable[[Any, Limits], Awaitable[Relay]],
    file: SQLiteStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bounds = msgspec.structs.replace(DEFAULT, reads_per_agent_max=2, reads_waiting_per_agent_max=3)
    relay = await started(file, bounds)
    made: Any = (await relay.call(SENDER, "offer", r.Offer(to="code_agent", title="Fix"))).answer
    about = made.handoff.id
    read, goes_on, refusals = file.bodies, asyncio.Event(), asyncio.Queue[str]()

    async def slow(*places: Any) -> Any:
        await goes_on.wait()
        return await read(*places)

    monkeypatch.setattr(file, "bodies", slow)

    async def ask(name: str, request: Any, reference: str | None) -> str:
        try:
            await relay.call(SENDER, name, request, reference=reference)
        except QueueFullError:
            refusals.put_nowait(name)
            return "refused"
        return "seen"

    for name, request, reference, seen in (
        ("get_handoff", r.GetHandoff(), about, 5),
        ("list_handoffs", r.ListHandoffs(), None, 4),
    ):
        await relay.shed()
        goes_on.clear()
        asking = [asyncio.create_task(ask(name, request, reference)) for _ in range(9)]
        async with asyncio.timeout(SECONDS_MAX):
            for _ in range(9 - seen):
                await refusals.get()
            goes_on.set()
            told = await asyncio.gather(*asking)
        assert sorted(told) == ["refused"] * (9 - seen) + ["seen"] * seen


async def test_caches_are_dropped_between_units_of_work(file: SQLiteStore) -> None:
    await file.create_team(Team(id=TEAM, digest_key=b"key", created_at=0))
    async with file.transaction():
        shedding = asyncio.create_task(file.shed())
        await asyncio.sleep(0)
        assert not shedding.done()
    async with asyncio.timeout(SECONDS_MAX):
        await shedding


async def test_caches_are_dropped_only_while_much_is_in_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = [machine.AMPLE_PAGES - 1]
    looks, dropped = asyncio.Queue[int](), 0

    async def shed() -> None:
        nonlocal dropped
        dropped += 1

    def resident() -> int:
        looks.put_nowait(dropped)
        return used[0]

    monkeypatch.setattr(machine, "_GIVE_BACK_SECONDS", 0)
    monkeypatch.setattr(machine, "_LOOKS_MAX", 1)
    monkeypatch.setattr(machine, "_resident_pages", resident)
    giving = asyncio.create_task(machine.Memory(shed).give_back())
    async with asyncio.timeout(SECONDS_MAX):
        assert [await looks.get() for _ in range(6)] == [0] * 6
        used[0] = machine.AMPLE_PAGES
        while await looks.get() == 0:
            pass
        assert [await looks.get() for _ in range(6)] == [1] * 6, "not again within half a minute"
    giving.cancel()
