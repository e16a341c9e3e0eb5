"""How long a tool may take, and what it says when nobody answers."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from nodrop.model.errors import UnreachableError
from nodrop.servers.mcp import requesting, tools, toolset
from nodrop.servers.mcp.desk import Desk
from nodrop.servers.mcp.toolset import Toolset
from nodrop.servers.mcp.way import ShortMemory

TASK = {"to": "coder", "title": "Fix the login button"}


class Silence:
    """A way on which nobody answers."""

    agent = "planner"

    async def call(self, operation: str, fields: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError(operation, fields)


class Refused(Silence):
    """A way to where no relay is."""

    async def call(self, operation: str, fields: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        raise UnreachableError(f"{operation} {len(fields)}: connection refused")


def test_the_bounds_are_what_clients_bear() -> None:
    assert toolset.HAND_OFF_SECONDS_MAX < 4
    assert tools.WAIT_SECONDS_MAX <= 50
    longest = tools.Wait(seconds=tools.WAIT_SECONDS_MAX)
    assert longest.patience_seconds + tools.LATE_SECONDS <= 50


async def test_a_hand_off_that_nobody_answers_says_what_is_known_and_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(toolset, "HAND_OFF_SECONDS_MAX", 0.01)
    told = await Toolset(Silence(), ShortMemory()).call("hand_off", TASK)
    assert told.refused
    assert told.text.startswith("unreachable: ")
    assert "Whether it was stored is not known." in told.text
    assert "hand_off again with exactly the same arguments" in told.text


async def test_the_bound_of_a_hand_off_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without it the call would hang until the test gives up."""
    monkeypatch.setattr(toolset, "HAND_OFF_SECONDS_MAX", 3_600)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Toolset(Silence(), ShortMemory()).call("hand_off", TASK)


async def test_every_other_tool_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolset, "ANSWER_SECONDS_MAX", 0.01)
    monkeypatch.setattr(tools, "LATE_SECONDS", 0.01)
    calls: dict[str, dict[str, Any]] = {
        "join": {}, "find_agents": {}, "inbox": {}, "ack": {"handoff": "x"},
        "update": {"handoff": "x", "status": "done"}, "answer": {"handoff": "x"}, "track": {},
        "wait": {"seconds": 0}, "say": {"text": "x"}, "read_log": {}, "write_log": {"text": "x"},
    }  # fmt: skip
    assert {*calls, "hand_off"} == set(tools.TOOLS)
    for name, arguments in calls.items():
        told = await Toolset(Silence(), ShortMemory()).call(name, arguments)
        assert told.text.startswith("unreachable: "), name
        assert "Repeat the same call" in told.text


async def test_where_no_relay_is_the_answer_says_how_to_start_one() -> None:
    told = await Toolset(Refused(), ShortMemory()).call("inbox", {})
    assert "`nodrop up`" in told.text


@pytest.mark.parametrize(("seconds", "settled"), [(3.9, True), (4.1, False)])
async def test_only_what_was_surely_heard_is_settled(
    quiet_office: Any, seconds: float, *, settled: bool
) -> None:
    """A client that gave up after five seconds never saw the outcome: it stays in the inbox."""
    planner, coder = await quiet_office.join("planner"), await quiet_office.join("coder")
    stored = await planner("hand_off", **TASK)
    handoff = stored.split("handoff ")[1][:36]
    await coder("ack", handoff=handoff)
    await coder("update", handoff=handoff, status="done", result="ok")
    times = iter([0.0, seconds])
    desk = Desk(await quiet_office.way(await quiet_office.token("planner")), ShortMemory())
    told = await requesting.wait(desk, tools.Wait(handoff=handoff), now=lambda: next(times))
    assert '{"result": "ok"}' in told
    assert (f'ack(handoff="{handoff}") says that you have it' in told) is not settled
    assert ((await quiet_office.handoff(stored))["settled_at"] is not None) is settled
    assert ("1 outcome" in await planner("inbox")) is not settled


def test_a_memory_forgets_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodrop.servers.mcp.way.REMEMBERED_MAX", 2)
    memory = ShortMemory()
    for name in ("a", "b", "c"):
        memory.remember({"id": name, "state": "accepted", "attempt": 3})
    assert [memory.of(name) for name in ("a", "b", "c")] == [None, 3, 3]
    memory.remember({"id": "b", "state": "completed", "attempt": 3})
    assert memory.of("b") is None
