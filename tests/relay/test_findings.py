"""A relay tells its person of loops, storms and orphaned work, once in a while, and of nothing else."""

import asyncio
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from nodrop.audit.debrief import debrief
from nodrop.log.memory import MemoryStore
from nodrop.model.errors import CursorUnknownError
from nodrop.model.limits import DAY, DEFAULT, HOUR, MINUTE, Limits
from nodrop.protocol import requests
from nodrop.protocol.entries import Entry
from nodrop.protocol.views import HandoffAnswer, InboxAnswer, LogAnswer
from nodrop.relay.coordination import findings, patterns
from nodrop.relay.coordination.findings import Follower
from nodrop.relay.coordination.patterns import Found, Patterns, Repeats
from nodrop.relay.relay import Caller, Relay, operator_of
from nodrop.testing.clock import FakeClock

TEAM = "default"
LIMITS = msgspec.structs.replace(DEFAULT, retries_per_second=1e6, retries_burst_max=1e6)
Started = Callable[[Any, Limits], Awaitable[Relay]]


class Office:
    """A relay, agents that do as they are told, and who follows the log."""

    def __init__(self, relay: Relay, clock: FakeClock) -> None:
        self.relay = relay
        self.clock = clock
        self.follower: Follower = relay.findings.follower(TEAM)

    async def ask(self, agent: str, operation: str, request: Any, about: str | None = None) -> Any:
        caller = Caller(team=TEAM, agent=agent)
        answer = (await self.relay.call(caller, operation, request, reference=about)).answer
        assert isinstance(answer, HandoffAnswer)
        return answer.handoff

    async def offer(self, sender: str, to: str, **fields: Any) -> str:
        return (await self.ask(sender, "offer", requests.Offer(to=to, **fields))).id

    async def done(self, agent: str, handoff: str, result: Any = None) -> None:
        attempt = (await self.ask(agent, "ack", requests.Ack(), handoff)).attempt
        await self.ask(
            agent, "complete", requests.Complete(attempt=attempt, result=result), handoff
        )
        self.clock.advance(MINUTE)

    async def retried(self, agent: str, handoff: str) -> None:
        attempt = (await self.ask(agent, "ack", requests.Ack(), handoff)).attempt
        await self.ask(agent, "fail", requests.Fail(attempt=attempt, retryable=True), handoff)

    async def look(self) -> list[dict[str, Any]]:
        """Follow the log to its end; return what has been raised since the beginning."""
        await self.follower.round(wait="0s")
        return [e for e in await self.entries() if e["type"] == findings.RAISED]

    async def entries(self) -> list[dict[str, Any]]:
        page = requests.GetLog(limit=500)
        answer = (await self.relay.call(operator_of(TEAM), "log", page)).answer
        assert isinstance(answer, LogAnswer)
        return [msgspec.json.decode(msgspec.json.encode(entry)) for entry in answer.entries]

    async def detectors(self) -> list[str]:
        return [raised["data"]["detector"] for raised in await self.look()]


@pytest.fixture
async def office(started: Started, clock: FakeClock) -> Office:
    relay = await started(MemoryStore(), LIMITS)
    await relay.ensure_team(TEAM)
    office = Office(relay, clock)
    assert await office.look() == []  # it begins here
    return office


async def handed_round(office: Office, agents: str) -> str:
    """Hand one chain along, with something new each time."""
    handoff = ""
    for sender, to in pairwise(agents):
        payload = {"at": office.clock.now()}
        handoff = await office.offer(sender, to, correlation_id="c", payload=payload)
        await office.done(to, handoff)
    return handoff


async def test_a_ping_pong_is_told_with_the_command_that_stops_it(office: Office) -> None:
    last = await handed_round(office, "xababa")
    [raised] = await office.look()
    assert raised["data"]["detector"] == "ping-pong"
    assert raised["data"]["subject"] == "c"
    assert raised["data"]["action"] == f"nodrop cancel {last}"
    assert raised["body"]["text"].endswith(f"To stop it: nodrop cancel {last}")
    person = Caller(team=TEAM, agent="me", operator=True)
    inbox = (await office.relay.call(person, "inbox", requests.GetInbox())).answer
    assert isinstance(inbox, InboxAnswer)
    [item] = inbox.items
    assert (item.kind, item.seq) == ("notice", raised["seq"])
    assert "a and b handed the same chain to each other" in item.summary


async def test_one_round_of_rework_is_nothing(office: Office) -> None:
    await handed_round(office, "xaba")
    assert await office.look() == []


async def test_a_longer_loop_is_told(office: Office) -> None:
    await handed_round(office, "xabcabcabca")
    assert await office.detectors() == ["loop"]


async def test_the_same_payload_and_the_same_result_again_and_again_is_a_livelock(
    office: Office,
) -> None:
    for _ in range(3):
        handoff = await office.offer("x", "a", correlation_id="c", payload={"ready": "?"})
        await office.done("a", handoff, result={"ready": False})
    assert await office.detectors() == ["livelock"]


async def test_polling_with_another_result_each_time_is_nothing(office: Office) -> None:
    for n in range(6):
        handoff = await office.offer("x", "a", correlation_id="c", payload={"ready": "?"})
        await office.done("a", handoff, result={"ready": n})
    assert await office.look() == []


async def test_a_map_over_many_items_at_once_is_nothing(office: Office) -> None:
    offered = [
        await office.offer("x", "a", correlation_id="c", payload={"same": True}) for _ in range(6)
    ]
    for handoff in offered:
        await office.done("a", handoff, result={"same": True})
    assert await office.look() == []


@pytest.mark.parametrize(("failing", "told"), [(9, ["retry-storm"]), (1, [])])
async def test_retries_are_a_storm_when_they_are_most_of_the_work(
    office: Office, failing: int, told: list[str]
) -> None:
    for n in range(10):
        handoff = await office.offer("x", "a", capability=None, payload={"n": n}, backoff=QUICK)
        if n < failing:
            await office.retried("a", handoff)
            await passed(office, 2 * 1_000)
        await office.done("a", handoff)
    assert await office.detectors() == told


QUICK = requests.BackoffSpec(first=1)


async def passed(office: Office, ms: int) -> None:
    office.clock.advance(ms)
    for _ in range(20):  # the engine's own turn
        await asyncio.sleep(0)


async def test_escalations_are_a_storm_when_many_come_at_once(office: Office) -> None:
    told = (requests.EscalationSpec(when="unacknowledged", after="10m", notify="me"),)
    for n in range(12):
        await office.offer("x", "a", payload={"n": n}, escalation=told)
        await passed(office, 40_000)
    await passed(office, 3 * MINUTE)
    for _ in range(8):
        await passed(office, MINUTE)
    assert await office.detectors() == ["escalation-storm"]


async def test_outcomes_that_nobody_collects_are_told_once_for_each_requester(
    office: Office,
) -> None:
    for n in range(3):
        await office.done("a", await office.offer("x", "a", payload={"n": n}))
    collected = await office.offer("y", "a", payload={"n": 9})
    await office.done("a", collected)
    await office.ask("y", "settle", requests.Settle(), collected)
    assert await office.look() == []
    await passed(office, round(1.3 * DAY))
    await office.offer("z", "a")
    [raised] = await office.look()
    assert (raised["data"]["detector"], raised["data"]["subject"]) == ("orphan", "x")
    assert "3 outcomes wait for x" in raised["body"]["text"]


async def test_the_same_is_told_again_after_a_while_if_it_goes_on(office: Office) -> None:
    await handed_round(office, "xababababa")
    assert await office.detectors() == ["ping-pong"]
    await handed_round(office, "abab")
    assert await office.detectors() == ["ping-pong"]
    office.clock.advance(HOUR)
    await handed_round(office, "aba")
    assert await office.detectors() == ["ping-pong", "ping-pong"]


async def test_who_takes_over_goes_on_with_the_pattern_and_tells_nothing_twice(
    office: Office,
) -> None:
    await handed_round(office, "xaba")
    assert await office.look() == []
    office.follower = office.relay.findings.follower(TEAM)  # as after a start
    await handed_round(office, "aba")
    assert await office.detectors() == ["ping-pong"]
    office.follower = office.relay.findings.follower(TEAM)
    await handed_round(office, "aba")
    assert await office.detectors() == ["ping-pong"]


async def test_findings_are_counted_and_in_the_debrief(office: Office) -> None:
    await handed_round(office, "xababa")
    [raised] = await office.look()
    figures = {figure.name: figure for figure in await office.relay.figures(operator_of(TEAM))}
    assert figures["findings"].samples == [({"team": TEAM, "detector": "ping-pong"}, 1)]
    report = debrief(await office.entries(), [], since="a", until="b")
    [found] = report.findings
    assert (found.detector, found.seq) == ("ping-pong", raised["seq"])
    assert "nodrop cancel" in found.says


async def test_what_is_behind_too_far_is_skipped(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "PAGES_MAX", 0)
    monkeypatch.setattr(findings, "BEHIND_MAX", 10)
    monkeypatch.setattr(findings, "WARM", 2)
    await handed_round(office, "xababababa")
    assert await office.look() == []
    monkeypatch.setattr(findings, "PAGES_MAX", 4)
    assert await office.look() == []


# --- what is remembered ---------------------------------------------------------------------------


def entries(count: int, **fields: Any) -> Iterator[Entry]:
    for n in range(count):
        offered = {"sender": "x", "recipient": "a", "correlation_id": f"c{n}", **fields}
        offered = {k: v.format(n=n) if isinstance(v, str) else v for k, v in offered.items()}
        yield Entry(
            team=TEAM,
            seq=n + 1,
            at=n * 1_000,
            type=patterns.OFFERED,
            actor="x",
            handoff_id=f"h{n}",
            version=1,
            correlation_id=offered["correlation_id"],
            command_id=None,
            data=msgspec.Raw(msgspec.json.encode(offered)),
            body_digest=None,
            prev_hash="",
            hash="",
        )


def read(several: Iterator[Entry]) -> list[Found | Repeats]:
    known = Patterns()
    return [found for entry in several for found in known.read(entry)]


async def test_a_log_that_lost_its_end_is_followed_from_where_the_store_says(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Follower] = []
    followed = asyncio.Event()

    async def round_(self: Follower) -> None:
        if self not in begun:
            begun.append(self)
        if len(begun) == 1:
            raise CursorUnknownError("the log ends before it")
        followed.set()

    monkeypatch.setattr(Follower, "round", round_)
    following = asyncio.create_task(office.relay.findings.follow(TEAM))
    async with asyncio.timeout(30):
        while not followed.is_set():
            office.clock.advance(findings.PACE_MS)
            await asyncio.sleep(0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert len(begun) == 2


def test_an_agent_that_gets_most_of_the_work_is_a_hot_spot() -> None:
    mixed = list(entries(400, capability="write", recipient="w{n}"))
    for n, entry in enumerate(mixed):
        whom = "hot" if n % 2 else f"w{n % 20}"
        told = msgspec.json.decode(entry.data) | {"recipient": whom}
        mixed[n] = msgspec.structs.replace(entry, data=msgspec.Raw(msgspec.json.encode(told)))
    found = read(iter(mixed))
    assert {f.subject for f in found if isinstance(f, Found)} == {"hot for write"}


def test_work_that_is_shared_out_makes_none() -> None:
    shared = [
        msgspec.structs.replace(
            entry,
            data=msgspec.Raw(
                msgspec.json.encode(msgspec.json.decode(entry.data) | {"recipient": f"w{n % 10}"})
            ),
        )
        for n, entry in enumerate(entries(400, capability="write"))
    ]
    assert read(iter(shared)) == []


def test_memory_is_bounded_by_chains_handoffs_and_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "CHAINS_MAX", 10)
    monkeypatch.setattr(patterns, "HANDOFFS_MAX", 20)
    known = Patterns()
    for entry in entries(200):
        list(known.read(entry))
    assert (len(known.chains), len(known.hops)) == (10, 20)
    known = Patterns()
    for entry in entries(200, correlation_id="c"):
        list(known.read(entry))
    assert len(known.chains.get("c")) == patterns.DEPTH_MAX


def test_memory_is_bounded_by_the_hops_of_all_chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "HOPS_MAX", 90)
    known = Patterns()
    for chain in range(10):
        for entry in entries(20, correlation_id=f"chain {chain}"):
            list(known.read(entry))
    assert known.chains.size == sum(len(known.chains.get(f"chain {n}")) for n in range(10)) == 80
    assert [bool(known.chains.get(f"chain {n}")) for n in range(10)] == [False] * 6 + [True] * 4


@pytest.mark.parametrize(
    ("event", "kept"), [("completed", 0), ("cancelled", 0), ("settled", 0), ("failed", 200)]
)
def test_a_handoff_is_forgotten_when_it_is_over_and_its_chain_is_not(event: str, kept: int) -> None:
    known = Patterns()
    for entry in entries(200, correlation_id="c"):
        list(known.read(entry))
        ended = msgspec.structs.replace(
            entry, type=f"handoff.{event}.v1", data=msgspec.Raw(b"{}"), seq=entry.seq + 1_000
        )
        list(known.read(ended))
    assert len(known.hops) == kept
    assert len(known.chains.get("c")) == patterns.DEPTH_MAX


def test_outcomes_that_are_waited_for_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "ENDED_MAX", 20_000)
    ids = [f"019b76da-a800-7000-8000-{n:012d}" for n in range(30_000)]
    tracemalloc.start()
    try:
        uncollected = findings.Uncollected()
        for n, handoff in enumerate(ids):
            uncollected.add(n * 100, handoff)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 19_000 < len(uncollected) <= 20_000
    assert size < 60 * len(uncollected)
    kept = ids[-len(uncollected) :]
    assert uncollected.due(30_000 * 100) == kept
    assert (len(uncollected), uncollected.due(10**9)) == (0, [])


def test_an_outcome_is_not_looked_at_before_its_time() -> None:
    uncollected = findings.Uncollected()
    for due_at in (0, MINUTE, 2 * MINUTE):
        uncollected.add(due_at, str(due_at))
    assert uncollected.due(MINUTE - 1) == []
    assert uncollected.due(MINUTE) == ["0", str(MINUTE)]
    assert uncollected.due(2 * MINUTE) == [str(2 * MINUTE)]


async def test_reading_a_page_lets_others_be_served(office: Office) -> None:
    for n in range(300):
        await office.offer("x", "a", payload={"n": n})
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    serving = asyncio.create_task(others())
    try:
        await office.follower.round(wait="0s")
    finally:
        serving.cancel()
    assert turns >= 300 // findings.TOGETHER - 1
