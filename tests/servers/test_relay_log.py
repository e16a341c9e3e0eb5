"""The lines of `nodrop.relay`: what went wrong, for which handoff, and what happens next."""

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any

import pytest

from kit.asgi import WAIT_SECONDS_MAX, Visitor
from nodrop.relay.relay import Caller, Relay
from nodrop.relay.upkeep import activity
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

SECOND, HOUR = 1_000, 3_600_000
SECRET = "hunter2"

Agent = Callable[..., Any]


@pytest.fixture
def agent(relay: Relay) -> Agent:
    """Ask for something as one of the agents."""

    async def ask(name: str, operation: str, handoff: str | None = None, **fields: Any) -> Any:
        caller = Caller(team="default", agent=name)
        named = name if operation == "register" else None
        return await InProcessTransport(relay, caller).call(
            operation, fields, handoff=handoff, name=named
        )

    return ask


def told(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    records = [r for r in caplog.records if r.name == "nodrop.relay"]
    return [r.getMessage() for r in records if r.levelname == level]


class Heard(logging.Handler):
    """What the relay tells, for those who wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.put_nowait(record.getMessage())

    async def until(self, words: str) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while words not in await self._lines.get():
                pass


@pytest.fixture
def heard() -> Generator[Heard]:
    handler = Heard()
    logging.getLogger("nodrop.relay").addHandler(handler)
    yield handler
    logging.getLogger("nodrop.relay").removeHandler(handler)


async def offered(agent: Agent, **terms: Any) -> str:
    answer = await agent(
        "inbox_monitor",
        "offer",
        to="code_agent",
        title=SECRET,
        payload={"password": SECRET},
        idempotency_key="bug_1",
        **terms,
    )
    return answer["handoff"]["id"]


async def test_a_lease_that_lapsed_is_a_warning_with_what_happens_next(
    agent: Agent, clock: FakeClock, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    handoff = await offered(agent)
    await agent("code_agent", "take", process="p", heartbeat_seconds=10)
    await agent("code_agent", "ack", handoff, attempt=1)
    clock.advance(30 * SECOND)
    await heard.until("inbox_monitor/bug_1")
    [line] = told(caplog, "WARNING")
    assert line.startswith(
        "inbox_monitor/bug_1: attempt 1 ended, the process was silent and lost its lease; "
        "back in the inbox, to be delivered again in "
    )


async def test_an_escalation_and_a_dead_letter_are_warnings(
    agent: Agent, clock: FakeClock, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    step = {"when": "unacknowledged", "after": "1h", "notify": "me"}
    await offered(agent, deadline="4h", escalation=[step])
    clock.advance(HOUR)
    late = "inbox_monitor/bug_1 escalated (unacknowledged): me is notified"
    await heard.until(late)
    clock.advance(3 * HOUR)
    dead = "inbox_monitor/bug_1 is a dead letter: its deadline passed"
    of_the_team = "inbox_monitor/bug_1 escalated (dead): me is notified"
    await heard.until(of_the_team)
    assert told(caplog, "WARNING") == [late, dead, of_the_team]


async def test_a_refusal_for_good_is_a_dead_letter_with_its_code_and_without_its_words(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    handoff = await offered(agent)
    await agent("code_agent", "take", process="p", heartbeat_seconds=10)
    await agent("code_agent", "ack", handoff, attempt=1)
    fields = {"code": "irreproducible", "reason": SECRET, "retryable": False}
    await agent("code_agent", "fail", handoff, attempt=1, **fields)
    assert told(caplog, "WARNING") == [
        "inbox_monitor/bug_1 is a dead letter: failed (irreproducible)",
        "inbox_monitor/bug_1 escalated (dead): me is notified",
    ]


async def test_a_handoff_that_goes_well_is_told_at_debug_alone_and_never_its_payload(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    manifest = {"agent_id": "code_agent", "capabilities": [{"name": "triage"}]}
    await agent("code_agent", "register", manifest=manifest)
    handoff = await offered(agent)
    await agent("code_agent", "take", process="p", heartbeat_seconds=10)
    await agent("code_agent", "ack", handoff, attempt=1, status=SECRET)
    await agent("code_agent", "complete", handoff, attempt=1, result=SECRET)
    assert told(caplog, "WARNING") == []
    assert "agent code_agent registered: manifest version 1" in told(caplog, "INFO")
    said = told(caplog, "DEBUG")
    for word in ("offered by inbox_monitor", "accepted by code_agent", "completed by code_agent"):
        assert f"inbox_monitor/bug_1 {word}" in said
    assert SECRET not in caplog.text


async def test_nothing_is_looked_at_where_no_line_would_be_written(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def looked_at(*_: object) -> None:
        raise AssertionError("an entry was looked at")

    monkeypatch.setattr(activity, "ref", looked_at)
    caplog.set_level(logging.INFO)
    handoff = await offered(agent)
    await agent("code_agent", "take", process="p", heartbeat_seconds=10)
    await agent("code_agent", "ack", handoff, attempt=1)
    await agent("code_agent", "complete", handoff, attempt=1)


@pytest.mark.parametrize(("heartbeat", "level"), [(10, "INFO"), (None, "DEBUG")])
async def test_a_workers_connection_is_told_of_and_a_short_visit_only_at_debug(
    worker: Visitor,
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
    heartbeat: int | None,
    level: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with worker.channel() as channel:
        channel.tell({"id": 0, "op": "hello", "resume": "p1", "heartbeat_seconds": heartbeat})
        assert "ok" in await channel.frame()
    await heard.until("code_agent disconnected (process p1)")
    [connected, disconnected] = [line for line in told(caplog, level) if "(process p1)" in line]
    assert connected.startswith("code_agent connected from ")
    assert disconnected == "code_agent disconnected (process p1)"
    assert "token-code_agent" not in caplog.text
