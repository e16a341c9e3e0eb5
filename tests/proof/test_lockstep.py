"""Every store keeps the same team alike: the same script, the same clock and ids, the same log.

Random command scripts, right and wrong ones, run on a relay over each store at once. Every answer
is compared as it would go over the wire, every log by its hash, and in the end every row, inbox
and queue; and each log folds to the rows beside it. `NODROP_LOCKSTEP_SCRIPTS` sets how many.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final, cast
from unittest import mock

import msgspec
import pytest

from kit import mutations
from kit.elsewhere import StoreElsewhere
from kit.inline import InlineSQLiteStore
from kit.mutations import UntrustworthyStore
from nodrop.audit import ledger
from nodrop.log.memory import MemoryStore
from nodrop.log.port import Changes, Key, LogPage, Page, Store
from nodrop.log.postgres import PostgresStore
from nodrop.log.state import State
from nodrop.model.errors import NodropError
from nodrop.model.handoff import Handoff
from nodrop.model.limits import Limits
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events
from nodrop.protocol import requests
from nodrop.protocol.requests import Request
from nodrop.relay.relay import Caller
from nodrop_proof.kit.faulty import Fault
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.plan import Plan
from nodrop_proof.simulate.world import TEAM, World

pytestmark = pytest.mark.timeout(240)  # seconds of work, which others may want to share

SCRIPTS: Final = int(os.environ.get("NODROP_LOCKSTEP_SCRIPTS", "8"))
STEPS: Final = 250
KNOWN: Final = 12
"""Handoffs, the last ones made, that a script goes on with."""

SELDOM: Final = 4
"""Of so many scripts, one runs on PostgreSQL too, which takes longer than the others together."""
ADDRESS: Final = "postgres"
"""The file that says where a test's PostgreSQL database is."""

LIMITS: Final = Limits(releases_free_max=2, answers_max=4, steps_max=3)
CAPABLE: Final = ("ann", "bob", "cy")
AGENTS: Final = (*CAPABLE, "dan", "ina", "otto", "me")


# --- the stores ---------------------------------------------------------------------------------


def open_memory(_: Path, before: Store | None) -> Store:
    return before or MemoryStore()


def open_sqlite(folder: Path, before: Store | None) -> Store:
    if isinstance(before, InlineSQLiteStore):
        before.crash()
    return InlineSQLiteStore(folder / "team.db")


def open_postgres(folder: Path, before: Store | None) -> Store:
    if isinstance(before, StoreElsewhere):
        before.crash()
    address = (folder / ADDRESS).read_text()
    return cast("Store", StoreElsewhere(lambda: PostgresStore.open(address)))


STORES: Final[Mapping[str, Callable[[Path, Store | None], Store]]] = {
    "memory": open_memory,
    "sqlite": open_sqlite,
    "postgres": open_postgres,
}
"""How each store is opened; and opened again, after a crash."""


class Side:
    """A relay on one of the stores."""

    def __init__(self, name: str, folder: Path, seed: int) -> None:
        self.name = name
        self._folder = folder
        self.world = World(Plan(seed=seed), STORES[name](folder, None), limits=LIMITS)

    async def ask(
        self, by: str, operation: str, request: Request, about: str | None, named: str | None
    ) -> tuple[Any, ...]:
        """Return what is answered, as it would go over the wire."""
        caller = Caller(team=TEAM, agent=by, operator=by == "me")
        try:
            reply = await self.world.ask(caller, operation, request, about=about, named=named)
        except NodropError as error:
            return (error.code, error.detail, error.errors)
        else:
            return ("ok", msgspec.json.encode(reply.answer), reply.replayed)
        finally:
            await loop.running().settled()

    async def restart(self, down: int) -> None:
        self.world.crash()
        await self.world.move_to(self.world.now + down)
        self.world.store = STORES[self.name](self._folder, self.world.store)
        await self.world.start()
        await loop.running().settled()

    async def head(self) -> str:
        return (await self.world.store.head(TEAM)).hash


# --- the scripts --------------------------------------------------------------------------------


class Script:
    """Commands for all sides at once, each chosen by what the answers so far were."""

    def __init__(self, sides: list[Side], seed: int) -> None:
        self._sides = sides
        self._random = Random(seed)
        self._known: dict[str, dict[str, Any]] = {}
        """Handoffs as they were last shown."""
        self._asked: dict[str, int] = {}
        """The last question of each, open or not."""
        self._sent: list[tuple[str, str, Request, str | None, str | None]] = []
        self._count = 0

    async def open(self) -> None:
        for side in self._sides:
            await side.world.start()
        for agent in CAPABLE:
            can = {"name": "triage", "timeout_seconds": 600 if agent == "cy" else None}
            manifest = msgspec.json.encode({"agent_id": agent, "capabilities": [can]})
            register = requests.Register(agent=agent, manifest=msgspec.Raw(manifest))
            await self.ask(agent, "register", register, named=agent)

    async def ask(
        self,
        by: str,
        operation: str,
        request: Request,
        about: str | None = None,
        named: str | None = None,
    ) -> dict[str, Any]:
        """Ask all sides; return what all of them answer."""
        answers = [await side.ask(by, operation, request, about, named) for side in self._sides]
        assert all(answer == answers[0] for answer in answers), (operation, request, answers)
        heads = [await side.head() for side in self._sides]
        assert len(set(heads)) == 1, (operation, request)
        self._sent.append((by, operation, request, about, named))
        return msgspec.json.decode(answers[0][1]) if answers[0][0] == "ok" else {}

    def _id(self) -> str:
        self._count += 1
        return f"c{self._count}"

    async def step(self) -> None:
        chance = self._random.random()
        if chance < 0.13 or not self._known:
            await self._offer()
        elif chance < 0.15:
            await self._fan_out()
        elif chance < 0.25:
            await self._pass_time()
        elif chance < 0.28:
            down = self._random.choice((1, 90_000, 3_600_000))
            for side in self._sides:
                await side.restart(down)
        elif chance < 0.31:
            fault = self._random.choice((Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT))
            for side in self._sides:
                side.world.life.store.fail_next(fault)
        elif chance < 0.36 and self._sent:
            await self.ask(*self._random.choice(self._sent))
        elif chance < 0.5:
            await self._take_or_beat()
        elif chance < 0.55:
            await self._read()
        else:
            await self._command()
        page = requests.ListHandoffs(limit=KNOWN)
        for view in (await self.ask("me", "list_handoffs", page)).get("handoffs", ()):
            self._learn(view)

    def _learn(self, view: dict[str, Any]) -> None:
        self._known[view["id"]] = view
        if view["question"] is not None:
            self._asked[view["id"]] = view["question"]["seq"]

    async def _pass_time(self) -> None:
        ms = self._random.choice((1_000, 5_000, 31_000, 31_000, 61_000, 900_000, 3 * 3_600_000))
        for side in self._sides:
            await side.world.pass_time(ms)

    async def _offer(self) -> None:
        r = self._random
        escalation = requests.EscalationSpec(
            when=r.choice(("unacknowledged", "silent", "blocked", "overdue", "dead")),
            after=r.choice((0, 600)),
            notify="me",
        )
        steps = r.choice(((escalation,), (escalation,), None, ()))
        routed = r.random() < 0.4
        offer = requests.Offer(
            to=None if routed else r.choice((*CAPABLE, "dan", "nobody")),
            capability=r.choice(("triage",) * 5 + ("cooking",)) if routed else None,
            title=f"work {r.randint(1, 9)}",
            payload={"n": r.randint(1, 3), "text": "ü" * r.randint(0, 9)},
            priority=r.choice(("low", "medium", "high", "urgent")),
            deadline=r.choice((None, None, 1_200, 36_000)),
            accept_within=r.choice((None, 120)),
            attempts_max=r.choice((None, 1, 2)),
            escalation=steps,
            then=(requests.LegSpec(to=r.choice(CAPABLE)),) if r.random() < 0.3 else (),
            watchers=("otto",) if r.random() < 0.2 else (),
            idempotency_key=r.choice((None,) * 9 + ("k1", "k2", "k3")),
            command_id=self._id(),
        )
        await self.ask(r.choice(("ina", "otto")), "offer", offer)

    async def _fan_out(self) -> None:
        r = self._random
        members = {
            label: requests.Offer(to=r.choice(CAPABLE), title=label, deadline=r.choice((60, 3_600)))
            for label in "ab"[: r.randint(1, 2)]
        }
        group = requests.OfferGroup(offers=members, join=r.choice(("all", "any")))
        await self.ask(r.choice(("ina", "otto")), "offer_group", group)

    async def _take_or_beat(self) -> None:
        r = self._random
        by, process = r.choice((*CAPABLE, "dan")), r.choice(("p", "q"))
        if r.random() < 0.3:
            await self.ask(by, "heartbeat", requests.Heartbeat(process=process))
            return
        beat = r.choice((None, 10.0, 60.0))
        take = requests.Take(
            max=r.randint(1, 3), process=process, heartbeat_seconds=beat, command_id=self._id()
        )
        await self.ask(by, "take", take)

    async def _read(self) -> None:
        r = self._random
        by = r.choice(AGENTS)
        operation, request = r.choice(
            (
                ("inbox", requests.GetInbox(all=r.random() < 0.5, limit=r.choice((None, 3)))),
                ("log", requests.GetLog(limit=50, type=r.choice((None, "handoff.*")))),
                ("list_handoffs", requests.ListHandoffs(state=r.choice((None, "offered")))),
                ("dead_letters", requests.ListDeadLetters()),
                ("agents", requests.ListAgents()),
            )
        )
        await self.ask(by, operation, request)

    async def _command(self) -> None:
        r = self._random
        known = list(self._known.values())
        unfinished = [view for view in known if view["outcome"] is None]
        view = r.choice(unfinished if unfinished and r.random() < 0.7 else known)
        late = [view for view in known if _waits_for(view) == "late"]
        if late and r.random() < 0.3:
            view = r.choice(late)  # rare, and nobody else would get round to it
        fitting = FITTING.get(_waits_for(view), OF_OTHERS)
        operation = r.choice(fitting if r.random() < 0.8 else (*OF_RECIPIENT, *OF_OTHERS))
        recipients = operation in OF_RECIPIENT
        by = view["to"] if recipients else view["chain"]["origin"]
        if by == "relay" or r.random() < 0.1:  # nobody can be that one
            by = r.choice(AGENTS)
        fields: dict[str, Any] = {"command_id": self._id()}
        if recipients:
            # Without an attempt, something merely offered is taken and acted on in one commit.
            direct = view["state"] == "offered" and (not view["attempt"] or r.random() < 0.3)
            fields["attempt"] = r.choice((None if direct else view["attempt"],) * 9 + (1,))
        fields |= self._said(operation, view)
        if operation == "ack" and view["state"] == "offered" and r.random() < 0.5:
            fields |= {"attempt": None, "queued": True}
        named = f"step {r.randint(1, 4)}" if operation == "step" else None
        await self.ask(by, operation, REQUESTS[operation](**fields), view["id"], named)

    def _said(self, operation: str, view: dict[str, Any]) -> dict[str, Any]:
        r = self._random
        seq = self._asked.get(view["id"], r.randint(1, 50))
        said: dict[str, dict[str, Any]] = {
            "ack": {"next_update": r.choice((None, 60))},
            "block": {"question": "Which?", "park": r.random() < 0.4},
            "counter": {"deadline": "6h"},
            "checkpoint": {"checkpoint": {"page": r.randint(1, 9)}},
            "complete": {"result": {"n": r.randint(1, 9)}},
            "fail": {"retryable": r.random() < 0.6},
            "step": {"value": r.randint(1, 9)},
            "answer": {"seq": seq, "answer": "this"},
            "agree": {"seq": seq},
            "decline": {"seq": seq},
            "reassign": {"to": r.choice((*CAPABLE, "dan"))},
            "redrive": {"to": r.choice((None, "dan", "ann"))},
            "note": {"text": "seen"},
        }
        return said.get(operation, {})


def _waits_for(view: dict[str, Any]) -> str:
    if view["late_result"] and view["decision"] is None:
        return "late"
    return view["question"]["kind"] if view["question"] else view["state"]


OF_RECIPIENT: Final = (
    *("ack", "update", "block", "counter", "reject", "complete", "fail", "release"),
    *("step", "checkpoint"),
)
OF_OTHERS: Final = (
    *("answer", "agree", "decline", "cancel", "reassign", "settle", "redrive", "accept"),
    *("discard", "erase", "dismiss", "note"),
)
_ON_TIME: Final = (*("ack",) * 9, "counter", "counter", "release", "reject", "reassign")
_TOO_LATE: Final = (*("complete", "answer") * 3, "settle", "redrive", "discard")
FITTING: Final[Mapping[str, tuple[str, ...]]] = {
    "offered": _ON_TIME,
    "delivered": _ON_TIME,
    "accepted": (*OF_RECIPIENT, "block", "block", "fail"),
    "question": (*("answer",) * 4, "update", "complete", "fail", "release"),
    "terms": (*("agree",) * 4, "decline", "release"),
    "expired": _TOO_LATE,
    "failed": _TOO_LATE,
    "late": ("accept", "accept", "redrive", "discard"),
}
"""What somebody would do next, by what the handoff waits for."""
REQUESTS: Final[Mapping[str, type[Request]]] = {
    "ack": requests.Ack,
    "update": requests.Update,
    "block": requests.Block,
    "counter": requests.Counter,
    "reject": requests.Reject,
    "complete": requests.Complete,
    "fail": requests.Fail,
    "release": requests.Release,
    "step": requests.Step,
    "checkpoint": requests.Checkpoint,
    "answer": requests.Answer,
    "agree": requests.Agree,
    "decline": requests.Decline,
    "cancel": requests.Cancel,
    "reassign": requests.Reassign,
    "settle": requests.Settle,
    "redrive": requests.Redrive,
    "accept": requests.AcceptLate,
    "discard": requests.Discard,
    "erase": requests.Erase,
    "dismiss": requests.Dismiss,
    "note": requests.Note,
}


# --- what must be alike -------------------------------------------------------------------------


async def kept(store: Store) -> dict[str, Any]:
    """Everything that a store says about the team."""
    rows = await store.list_handoffs(Page(team=TEAM, limit=10_000))
    log = await store.log(LogPage(team=TEAM, limit=100_000))
    bodies = await store.bodies(TEAM, [(e.handoff_id or "", e.version or 0) for e in log])
    return {
        "rows": list(rows),
        "log": list(log),
        "bodies": dict(bodies),
        "inboxes": {a: list(await store.inbox(TEAM, a, after=0, limit=10_000)) for a in AGENTS},
        "queues": {agent: await store.queue(TEAM, agent) for agent in AGENTS},
        "processes": sorted(p.id for p in await store.processes()),
        "next_due": await store.next_due(),
        "agents": list(await store.agents(TEAM)),
    }


def folded(found: Mapping[str, Any]) -> list[Handoff]:
    """The rows that the log alone gives."""
    handoffs: dict[str, Handoff] = {}
    for entry in found["log"]:
        if entry.handoff_id is not None:
            event = wire_events.decode(entry.type, bytes(entry.data))
            handoffs[entry.handoff_id] = evolve(
                handoffs.get(entry.handoff_id),
                event,
                team=TEAM,
                handoff_id=entry.handoff_id,
                by=entry.actor,
                at=entry.at,
            )
    return sorted(handoffs.values(), key=lambda h: h.id, reverse=True)


async def play(sides: list[Side], seed: int) -> dict[str, Any]:
    """Run a script on all sides; return what all of them keep in the end."""
    script = Script(sides, seed)
    await script.open()
    for _ in range(STEPS):
        await script.step()
    first, *others = [await kept(side.world.store) for side in sides]
    for side in sides:
        await side.world.store.close()
    assert all(other == first for other in others)
    return first


@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_every_store_answers_logs_and_keeps_alike(seed: int, tmp_path: Path, database: str) -> None:
    (tmp_path / ADDRESS).write_text(database)
    names = [name for name in STORES if name != "postgres" or seed % SELDOM == 0]
    found = loop.run(play([Side(name, tmp_path, seed) for name in names], seed))
    assert folded(found) == found["rows"]
    books = ledger.count(found["log"])
    assert books.holds, books


def test_the_scripts_make_every_kind_of_entry_there_is_about_a_handoff(tmp_path: Path) -> None:
    made: set[str] = set()
    for seed in range(32):
        found = loop.run(play([Side("memory", tmp_path, seed)], seed))
        made |= {entry.type for entry in found["log"]}
    assert set(wire_events.NAMES.values()) - made == set()


# --- controls -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [mutations.forgotten, mutations.without_the_last_entry, mutations.without_the_rows],
)
def test_a_store_that_keeps_something_else_is_noticed(
    spoil: Callable[[Changes], Changes], tmp_path: Path
) -> None:
    async def run() -> None:
        spoiled = Side("memory", tmp_path, seed=0)
        spoiled.world.store = cast("Store", UntrustworthyStore(MemoryStore(), spoil))
        await play([Side("memory", tmp_path, seed=0), spoiled], seed=0)

    with pytest.raises(AssertionError):
        loop.run(run())


def test_a_store_with_another_order_of_its_queues_is_noticed(tmp_path: Path) -> None:
    claimable = State.claimable

    def newest_first(self: State, team: str, agent: str, limit: int) -> list[Key]:
        return claimable(self, team, agent, 10_000)[::-1][:limit]

    async def run() -> None:
        for seed in range(SCRIPTS):
            folder = tmp_path / str(seed)
            folder.mkdir()
            await play([Side(name, folder, seed) for name in ("memory", "sqlite")], seed)

    with (
        mock.patch.object(State, "claimable", newest_first),
        pytest.raises(AssertionError, match="take"),
    ):
        loop.run(run())
