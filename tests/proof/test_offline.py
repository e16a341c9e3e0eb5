"""Six hours with everybody away: every clock fires once, in order, and nothing is dropped.

A team with a handoff in every state, and every kind of clock running, is left alone: by its agents,
by its relay too, or by the whole machine. What the relay then does is compared, entry by entry and
inbox by inbox, with what the protocol says it does; and when everybody is back, all work is
finished, once.
"""

from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from kit import mutations
from kit.inline import InlineSQLiteStore
from nodrop.audit import ledger
from nodrop.log.memory import MemoryStore
from nodrop.log.port import LogPage, Store
from nodrop.model.limits import Limits
from nodrop.protocol import requests
from nodrop.protocol.entries import Entry
from nodrop.protocol.requests import EscalationSpec, Request
from nodrop.relay.relay import Caller
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.plan import Plan
from nodrop_proof.simulate.world import TEAM, World

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
LIMITS: Final = Limits(outcome_within_ms=2 * HOUR)  # so that it fires within the six hours

ASKING: Final = "ina"
WORKING: Final = (
    *("ann", "bob", "cy", "dan", "eve", "fay", "gus", "hal", "ivy", "jon", "kim", "lea", "max"),
    "zoe",
)
SIGNS: Final = ("nudged", "escalated")


# --- the team -----------------------------------------------------------------------------------


class Team:
    """A relay, and everybody who is about to leave it alone."""

    def __init__(self, store: Store, limits: Limits = LIMITS) -> None:
        self.world = World(Plan(seed=0), store, limits=limits)
        self.named: dict[str, str] = {}
        """What each handoff is called here, by its id."""
        self.begun: dict[str, int] = {}
        """When each came to the state in which it is left."""

    async def ask(self, by: str, operation: str, request: Request, about: str | None = None) -> Any:
        caller = Caller(team=TEAM, agent=by, operator=by == "me")
        named = by if operation == "register" else None
        return (await self.world.ask(caller, operation, request, about=about, named=named)).answer

    async def gather(self) -> None:
        """Bring a handoff into each of the states."""
        await self.world.start()
        await self._register("hal", "slow_work", timeout_seconds=7_200)
        await self._register("lea", "triage")
        await self._register("max", "triage")
        for prepare in PREPARATIONS:
            name = prepare.__name__.removeprefix("_")
            self.begun[name] = self.world.now
            self.named[await prepare(self)] = name
            await self.world.pass_time(SECOND)  # so that hardly two clocks run out together

    async def _register(self, agent: str, capability: str, **more: Any) -> None:
        able = {"agent_id": agent, "capabilities": [{"name": capability, **more}]}
        manifest = msgspec.Raw(msgspec.json.encode(able))
        await self.ask(agent, "register", requests.Register(agent=agent, manifest=manifest))

    async def offer(self, to: str | None, minutes: int | None = None, **terms: Any) -> str:
        """Offer something, to be accepted within so many minutes."""
        within = None if minutes is None else minutes * 60
        offer = requests.Offer(to=to, title="work", accept_within=within, **terms)
        return (await self.ask(ASKING, "offer", offer)).handoff.id

    async def take(self, agent: str, *, beat: float | None = None) -> None:
        take = requests.Take(process="p", heartbeat_seconds=beat)
        assert len((await self.ask(agent, "take", take)).deliveries) == 1

    async def log(self) -> list[Entry]:
        return list(await self.world.store.log(LogPage(team=TEAM, limit=10_000)))


async def _unread(team: Team) -> str:
    steps = (step("unacknowledged", 50, "me"), step("overdue", 10, "boss"))
    return await team.offer("ann", 20, deadline="290m", escalation=steps)


async def _taken(team: Team) -> str:
    handoff_id = await team.offer("bob", 33)
    await team.take("bob", beat=10)
    return handoff_id


async def _begun(team: Team) -> str:
    handoff_id = await team.offer("cy", 35, escalation=(step("unacknowledged", 180, "me"),))
    await team.take("cy", beat=10)
    await team.ask("cy", "ack", requests.Ack(attempt=1), handoff_id)
    return handoff_id


async def _promised(team: Team) -> str:
    handoff_id = await team.offer("dan", escalation=(step("silent", 15, "me"),))
    await team.ask("dan", "ack", requests.Ack(next_update="30m"), handoff_id)
    return handoff_id


async def _asked(team: Team) -> str:
    handoff_id = await team.offer("eve", escalation=(step("blocked", 70, "me"),))
    await team.ask("eve", "ack", requests.Ack(), handoff_id)
    await team.ask("eve", "block", requests.Block(attempt=1, question="Which?"), handoff_id)
    return handoff_id


async def _countered(team: Team) -> str:
    handoff_id = await team.offer("fay", 25)
    await team.ask("fay", "counter", requests.Counter(deadline="2d"), handoff_id)
    return handoff_id


async def _retried(team: Team) -> str:
    handoff_id = await team.offer("gus", 40, backoff=requests.BackoffSpec(first="1h", max="1h"))
    await team.ask("gus", "ack", requests.Ack(), handoff_id)
    await team.ask("gus", "fail", requests.Fail(attempt=1, retryable=True), handoff_id)
    return handoff_id


async def _timed(team: Team) -> str:
    handoff_id = await team.offer("hal", 45, update_every="5h")
    await team.ask("hal", "ack", requests.Ack(), handoff_id)
    return handoff_id


async def _turn(team: Team) -> str:
    handoff_id = await team.offer("ivy", 50)
    await team.take("ivy")
    return handoff_id


async def _done(team: Team) -> str:
    handoff_id = await team.offer("jon")
    await team.ask("jon", "ack", requests.Ack(), handoff_id)
    await team.ask("jon", "complete", requests.Complete(attempt=1, result="done"), handoff_id)
    return handoff_id


async def _refused(team: Team) -> str:
    handoff_id = await team.offer("kim", escalation=(step("dead", 80, "me"),))
    await team.ask("kim", "reject", requests.Reject(reason="busy"), handoff_id)
    return handoff_id


async def _routed(team: Team) -> str:
    steps = (step("unacknowledged", 100, "me"),)
    return await team.offer(None, 55, capability="triage", escalation=steps)


async def _settled(team: Team) -> str:
    handoff_id = await team.offer("jon", escalation=())
    await team.ask("jon", "reject", requests.Reject(), handoff_id)
    await team.ask(ASKING, "settle", requests.Settle(), handoff_id)
    return handoff_id


def step(when: str, minutes: int, notify: str) -> EscalationSpec:
    return EscalationSpec(when=when, after=minutes * 60, notify=notify)


PREPARATIONS: Final[Sequence[Callable[[Team], Coroutine[Any, Any, str]]]] = (
    *(_unread, _taken, _begun, _promised, _asked, _countered, _retried, _timed, _turn, _done),
    *(_refused, _routed, _settled),
)

# --- what the protocol says ---------------------------------------------------------------------

Happening = tuple[float, str, str]
"""After how many minutes, to which handoff, what."""


def retried(minutes: float) -> float:
    """Return when something happens that waits for the first backoff: two seconds later."""
    return (minutes * MINUTE + 2 * SECOND) / MINUTE


AWAKE: Final[Sequence[Happening]] = (
    (20, "unread", "nudged ann: accept"),
    (50, "unread", "escalated me: unacknowledged"),
    (60, "unread", "nudged ann: accept"),
    (140, "unread", "nudged ann: accept"),
    (290, "unread", "expired"),
    (290, "unread", "escalated me: dead"),
    (300, "unread", "escalated boss: overdue"),
    (1, "taken", "returned: lease_lapsed"),
    (retried(1), "taken", "ready"),
    (retried(34), "taken", "nudged bob: accept"),
    (60, "taken", "escalated me: unacknowledged"),
    (retried(100), "taken", "nudged bob: accept"),
    (retried(232), "taken", "nudged bob: accept"),
    (0.5, "begun", "returned: lease_lapsed"),
    (retried(0.5), "begun", "ready"),
    (retried(35.5), "begun", "nudged cy: accept"),
    (retried(105.5), "begun", "nudged cy: accept"),
    (180.5, "begun", "escalated me: unacknowledged"),
    (retried(245.5), "begun", "nudged cy: accept"),
    (30, "promised", "nudged dan: promise"),
    (45, "promised", "escalated me: silent"),
    (90, "promised", "nudged dan: promise"),
    (210, "promised", "nudged dan: promise"),
    (70, "asked", "escalated me: blocked"),
    (240, "asked", "nudged ina: answer"),
    (25, "countered", "nudged ina: accept"),
    (60, "countered", "escalated me: unacknowledged"),
    (60, "countered", "escalated me: blocked"),
    (75, "countered", "nudged ina: accept"),
    (175, "countered", "nudged ina: accept"),
    (240, "countered", "nudged ina: answer"),
    (60, "retried", "ready"),
    (60, "retried", "escalated me: unacknowledged"),
    (100, "retried", "nudged gus: accept"),
    (180, "retried", "nudged gus: accept"),
    (340, "retried", "nudged gus: accept"),
    (120, "timed", "returned: timed_out"),
    (retried(120), "timed", "ready"),
    (retried(165), "timed", "nudged hal: accept"),
    (180, "timed", "escalated me: unacknowledged"),
    (retried(255), "timed", "nudged hal: accept"),
    (1, "turn", "returned: lease_lapsed"),
    (retried(1), "turn", "ready"),
    (retried(51), "turn", "nudged ivy: accept"),
    (60, "turn", "escalated me: unacknowledged"),
    (retried(151), "turn", "nudged ivy: accept"),
    (retried(351), "turn", "nudged ivy: accept"),
    (120, "done", "nudged ina: outcome"),
    (360, "done", "nudged me: outcome"),
    (80, "refused", "escalated me: dead"),
    (120, "refused", "nudged ina: outcome"),
    (360, "refused", "nudged me: outcome"),
    (55, "routed", "nudged lea: accept"),
    (55, "routed", "reassigned max"),
    (100, "routed", "escalated me: unacknowledged"),
    (110, "routed", "nudged max: accept"),
    (110, "routed", "rejected: no_candidate"),
    (110, "routed", "escalated me: dead"),
    (230, "routed", "nudged ina: outcome"),
)
"""With the relay there, and the team's steps where an offer has none. A clock that fires without a move re-arms at twice its length."""

DOWN: Final[Sequence[Happening]] = (
    # Counted from the start of the relay: its downtime is nobody's silence.
    *(each for each in AWAKE if each[1] not in {"unread", "retried"}),
    # A deadline is a time. What follows from it had its turn while nobody was there.
    (0, "unread", "expired"),
    (0, "unread", "escalated me: dead"),
    (10, "unread", "escalated boss: overdue"),
    (120, "unread", "nudged ina: outcome"),
    (360, "unread", "nudged me: outcome"),
    # A wait before a retry is nobody's debt.
    (0, "retried", "ready"),
    (40, "retried", "nudged gus: accept"),
    (60, "retried", "escalated me: unacknowledged"),
    (120, "retried", "nudged gus: accept"),
    (280, "retried", "nudged gus: accept"),
)
"""With the relay down for six hours, and up for the next six."""

ASLEEP: Final[Sequence[tuple[str, str]]] = (
    ("begun", "returned: lease_lapsed"),
    ("taken", "returned: lease_lapsed"),
    ("turn", "returned: lease_lapsed"),
    ("countered", "nudged ina: accept"),
    ("promised", "nudged dan: promise"),
    ("routed", "nudged lea: accept"),
    ("routed", "reassigned max"),
    ("taken", "escalated me: unacknowledged"),
    ("countered", "escalated me: unacknowledged"),
    ("countered", "escalated me: blocked"),
    ("retried", "escalated me: unacknowledged"),
    ("retried", "ready"),
    ("turn", "escalated me: unacknowledged"),
    ("asked", "escalated me: blocked"),
    ("refused", "escalated me: dead"),
    ("retried", "nudged gus: accept"),
    ("routed", "escalated me: unacknowledged"),
    ("timed", "returned: timed_out"),
    ("done", "nudged ina: outcome"),
    ("refused", "nudged ina: outcome"),
    ("asked", "nudged ina: answer"),
    ("countered", "nudged ina: answer"),
    ("unread", "expired"),
    ("unread", "escalated boss: overdue"),
    ("unread", "escalated me: dead"),
)
"""With the machine asleep: all at once when it wakes, in the order in which the clocks ran out."""


# --- what happens -------------------------------------------------------------------------------


async def told(team: Team, since: Callable[[str], int]) -> list[Happening]:
    """Return what the relay did by itself, as the log tells it; clocks that begin anew apart."""
    happened: list[Happening] = []
    entries = await team.log()
    assert entries == sorted(entries, key=lambda entry: entry.at)
    for entry in entries:
        if entry.actor == "relay" and entry.handoff_id in team.named:
            name = team.named[entry.handoff_id]
            if (what := _what(entry)) is not None:
                happened.append(((entry.at - since(name)) / MINUTE, name, what))
    return happened


def _what(entry: Entry) -> str | None:
    kind = entry.type.removeprefix("handoff.").removesuffix(".v1")
    said = msgspec.json.decode(bytes(entry.data))
    match kind:
        case "rearmed":
            return None
        case "nudged":
            return f"nudged {said['to']}: {said['clock']}"
        case "escalated":
            return f"escalated {said['notify']}: {said['when']}"
        case "returned":
            return f"returned: {said['reason']}"
        case "reassigned":
            return f"reassigned {said['recipient']}"
        case "rejected":
            return f"rejected: {said['code']}"
        case _:
            return kind


async def notices(team: Team) -> list[tuple[str, str, str]]:
    """Return what everybody finds in the inbox about clocks: whom, about which handoff, what."""
    types = {entry.seq: entry.type for entry in await team.log()}
    found: list[tuple[str, str, str]] = []
    for agent in ("me", "boss", ASKING, *WORKING):
        inbox = requests.GetInbox(all=True, limit=500)
        for item in (await team.ask(agent, "inbox", inbox)).items:
            kind = types[item.seq].removeprefix("handoff.").removesuffix(".v1")
            if item.kind == "notice" and kind in SIGNS:
                found.append((agent, team.named[item.handoff_id], kind))
    return sorted(found)


def noticed(happened: Sequence[tuple[Any, ...]]) -> list[tuple[str, str, str]]:
    """Return who must find what in the inbox."""
    words = [(name, what.replace(":", "").split()) for *_, name, what in happened]
    return sorted((word[1], name, word[0]) for name, word in words if word[0] in SIGNS)


async def awake(team: Team) -> list[Happening]:
    await team.world.pass_time(6 * HOUR)
    return await told(team, lambda name: team.begun[name])


async def down(team: Team) -> list[Happening]:
    team.world.crash()
    await team.world.move_to(team.world.now + 6 * HOUR)
    back_at = team.world.now
    await team.world.start()
    await team.world.pass_time(6 * HOUR)
    return await told(team, lambda _: back_at)


async def asleep(team: Team) -> list[Happening]:
    await team.world.move_to(team.world.now + 6 * HOUR)
    return await told(team, lambda name: team.begun[name])


Away = Callable[[Team], Coroutine[Any, Any, list[Happening]]]


# --- the tests ----------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "memory":
        return MemoryStore
    return lambda: InlineSQLiteStore(tmp_path / "team.db")


def leave(
    store: Callable[[], Store], away: Away, then: Away | None = None, limits: Limits = LIMITS
) -> list[Happening]:
    """Gather the team, let six hours pass in that way, and return what happened."""

    async def story() -> list[Happening]:
        team = Team(store(), limits)
        await team.gather()
        happened = await away(team)
        assert await notices(team) == noticed(happened)
        if then is not None:
            await then(team)
        return happened

    return loop.run(story())


@pytest.mark.parametrize(("away", "expected"), [(awake, AWAKE), (down, DOWN)])
def test_every_clock_fires_once_and_at_its_time(
    store: Callable[[], Store], away: Away, expected: Sequence[Happening]
) -> None:
    happened = leave(store, away, come_back)
    assert sorted(happened) == sorted(expected)


def test_what_happened_while_the_machine_slept_is_told_in_order(
    store: Callable[[], Store],
) -> None:
    happened = leave(store, asleep, come_back)
    assert [(name, what) for _, name, what in happened] == list(ASLEEP)


def test_more_than_one_commit_can_look_after_is_looked_after_all_the_same() -> None:
    happened = leave(MemoryStore, asleep, limits=replace(LIMITS, batch_commands_max=2))
    assert sorted((name, what) for _, name, what in happened) == sorted(ASLEEP)


async def come_back(team: Team) -> list[Happening]:
    """Let everybody finish what is theirs; everything ends, once, and is settled."""
    await team.world.pass_time(2 * SECOND)  # what has just lapsed waits for its backoff
    dead = (await team.ask("me", "dead_letters", requests.ListDeadLetters())).handoffs
    for view in dead:
        await team.ask(ASKING, "redrive", requests.Redrive(to="zoe"), view.id)
    for agent in WORKING:
        deliveries = (await team.ask(agent, "take", requests.Take(max=9))).deliveries
        for delivery in deliveries:
            await _finish(team, agent, delivery.handoff.id, delivery.attempt)
    for view in await _shown(team):
        if view.question is not None:
            by_answer = view.question.kind == "question"
            seq = view.question.seq
            reply = (
                requests.Answer(seq=seq, answer="this") if by_answer else requests.Agree(seq=seq)
            )
            await team.ask(ASKING, "answer" if by_answer else "agree", reply, view.id)
    for view in await _shown(team):
        if view.outcome is None:
            await _finish(team, view.to, view.id, view.attempt)
    for view in await _shown(team):
        await team.ask(ASKING, "settle", requests.Settle(), view.id)
    views = msgspec.json.decode(msgspec.json.encode(await _shown(team)))
    books = ledger.count(await team.log(), answered=team.named, shown=views)
    assert books.holds, books
    assert (books.stored, books.open) == (len(PREPARATIONS) + len(dead), 0)
    assert {view["state"] for view in views if not view["successor"]} == {"completed"}
    assert {view["settled_at"] is None for view in views} == {False}
    return []


async def _finish(team: Team, agent: str, handoff_id: str, attempt: int) -> None:
    await team.ask(agent, "ack", requests.Ack(attempt=attempt), handoff_id)
    await team.ask(agent, "complete", requests.Complete(attempt=attempt), handoff_id)


async def _shown(team: Team) -> Any:
    return (await team.ask("me", "list_handoffs", requests.ListHandoffs(limit=100))).handoffs


# --- controls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("control", "away", "expected"),
    [
        (mutations.late_timers, awake, AWAKE),
        (mutations.deaf_to_silence, awake, AWAKE),
        (mutations.nothing_due, awake, AWAKE),
        (mutations.restarted_episodes, awake, AWAKE),
        (mutations.no_grace, down, DOWN),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_relay_that_does_otherwise_is_noticed(
    control: Callable[[], AbstractContextManager[Any]], away: Away, expected: Sequence[Happening]
) -> None:
    with control():
        assert sorted(leave(MemoryStore, away)) != sorted(expected)


def test_a_relay_that_tells_it_in_another_order_is_noticed() -> None:
    with mutations.clocks_out_of_order():
        happened = leave(MemoryStore, asleep)
    assert sorted((name, what) for _, name, what in happened) == sorted(ASLEEP)
    assert [(name, what) for _, name, what in happened] != list(ASLEEP)
