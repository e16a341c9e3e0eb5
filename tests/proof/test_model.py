"""The relay and an independent model of the protocol are asked the same, and must answer the same.

`NODROP_MODEL_RUNS` sets how many scripts Hypothesis tries, `NODROP_MODEL_STEPS` how long they are.
"""

import ast
import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kit import model, mutations
from kit.model import Leg, Model, RefusedError, Rules, Shown
from kit.unfenced import unfenced
from nodrop.log.memory import MemoryStore
from nodrop.model.errors import NodropError
from nodrop.model.limits import Limits
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffView
from nodrop.relay.relay import Caller
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.plan import Plan
from nodrop_proof.simulate.world import TEAM, World

T = TypeVar("T")

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000

RUNS: Final = int(os.environ.get("NODROP_MODEL_RUNS", "20"))
STEPS: Final = int(os.environ.get("NODROP_MODEL_STEPS", "50"))

REQUESTERS: Final = ("ina", "otto")
CAPABLE: Final = {"ann": "triage", "bob": "triage", "cy": "triage", "eve": "review"}
PLAIN: Final = ("dan", "fay")
LATE: Final = "gus"
"""Says what it can do when it likes, and is asked before."""
LATE_CAPABILITY: Final = "audit"
LATE_TIMEOUT: Final = 9 * MINUTE + 23
RECIPIENTS: Final = (*CAPABLE, *PLAIN, LATE)
EVERYBODY: Final = (*REQUESTERS, *RECIPIENTS, "stranger", "me")
TIMEOUTS: Final = {"cy": 7 * MINUTE}

LIMITS: Final = Limits(releases_free_max=2, answers_max=3, steps_max=2, queued_acks_max=2)
RULES: Final = Rules(
    capabilities=CAPABLE,
    timeouts=TIMEOUTS,
    releases_free=2,
    answers_max=3,
    steps_max=2,
    queued_acks_max=2,
)

# Times that hardly ever meet: what happens first when two do is not the protocol's to say.
BEATS: Final = (None, 7_001, 20_011)
SPANS: Final = (SECOND, 13_007, 47_017, 3 * MINUTE + 29, 16 * MINUTE + 41, 2 * HOUR + 43)
DEADLINES: Final = (11 * MINUTE + 3, 3 * HOUR + 7, 30 * HOUR + 11)
ACCEPTS: Final = (2 * MINUTE + 13, 15 * MINUTE + 17)
COUNTERED: Final = 4 * HOUR + 19
PROMISED: Final = (None, 33_013, 5 * MINUTE + 23)
"""Next updates of what is queued: within the silence that makes it void, or after it."""

OF_RECIPIENT: Final = (
    "ack",
    "queue",
    "update",
    "checkpoint",
    "step",
    "block",
    "counter",
    "reject",
    "complete",
    "fail",
    "release",
)
OF_REQUESTER: Final = (
    "cancel",
    "reassign",
    "settle",
    "redrive",
    "accept",
    "discard",
    "note",
)
FITTING: Final[Mapping[str, Sequence[str]]] = {
    "offered": ("ack", "ack", "queue", "queue", "counter", "reject", "release"),
    "delivered": ("ack", "ack", "ack", "counter", "reject", "release"),
    "accepted": (*OF_RECIPIENT, "block", "block", "complete", "fail"),
    "blocked": ("update", "step", "complete", "fail", "release"),
}
"""What a recipient would do next, by state."""


@st.composite
def an_offer(draw: st.DrawFn) -> dict[str, Any]:
    to = draw(st.sampled_from((*RECIPIENTS, LATE, None, None, None)))
    of_late = st.sampled_from((None, LATE_CAPABILITY, "cooking"))
    capability = st.sampled_from(("triage", "triage", "review", "cooking"))
    legs = (
        Leg(to="dan"),
        Leg(to="ann"),
        Leg(to=LATE),
        Leg(capability="triage"),
        Leg(capability="cooking"),
    )
    return {
        "by": draw(st.sampled_from(REQUESTERS)),
        "to": to,
        "capability": draw(of_late if to == LATE else st.none() if to else capability),
        "key": draw(st.sampled_from((None, None, "k1", "k2"))),
        "deadline": draw(st.sampled_from(DEADLINES)),
        "accept_within": draw(st.sampled_from(ACCEPTS)),
        "attempts_max": draw(st.integers(1, 3)),
        "legs": tuple(draw(st.lists(st.sampled_from(legs), max_size=2))),
        "quiet": draw(st.sampled_from((False, False, True))),
    }


offers: Final = an_offer()
mostly_right: Final = st.sampled_from((True, True, True, True, True, False))
attempts: Final = st.sampled_from(("current",) * 8 + ("none", "stale", "none"))
SLOW: Final = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
ids: Final = st.sampled_from(("fresh",) * 12 + ("repeat", "another"))


class Team(RuleBasedStateMachine):
    """One relay, one model, and everybody who asks both of them."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=loop.VirtualLoop)
        self.store = MemoryStore()
        self.world = World(Plan(seed=0), self.store, limits=LIMITS)
        self.model = Model(self.world.now, replace(RULES, chosen=self.chosen))
        self.numbers: dict[int, tuple[str, int]] = {}
        """The questions so far, by where they stand in the log: of which handoff, which one."""
        self.sent: list[tuple[str, str, str, dict[str, Any], dict[str, Any]]] = []
        self.count = 0

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something, and whatever follows from it at once."""

        async def to_the_end() -> T:
            try:
                return await work
            finally:
                await loop.running().settled()

        return self.runner.run(to_the_end())

    def chosen(self, handoff_id: str, turn: int) -> str | None:
        """Whom the relay asked in that turn: in which order it asks is for it to choose."""
        found = self.runner.run(self.store.handoffs([(TEAM, handoff_id)]))
        asked = found[0].asked if found else ()
        return asked[turn] if turn < len(asked) else None

    def teardown(self) -> None:
        self.world.stop()
        self.runner.close()

    @initialize(made=st.lists(offers, min_size=1, max_size=4))
    def open(self, made: list[dict[str, Any]]) -> None:
        self.do(self.world.start())
        for agent, capability in CAPABLE.items():
            offered: dict[str, Any] = {"name": capability}
            if agent in TIMEOUTS:
                offered["timeout_seconds"] = TIMEOUTS[agent] / SECOND
            manifest = msgspec.json.encode({"agent_id": agent, "capabilities": [offered]})
            request = requests.Register(agent=agent, manifest=msgspec.Raw(manifest))
            self.ask(agent, "register", request, named=agent)
        for offer in made:
            sent = {name: offer[name] for name in offer if name != "by"}
            self.offer_both(offer["by"], sent, self.new_id())

    # --- asking both ---

    def ask(
        self,
        by: str,
        operation: str,
        request: requests.Request,
        about: str | None = None,
        named: str | None = None,
    ) -> Any:
        caller = Caller(team=TEAM, agent=by, operator=by == "me")
        asked = self.world.ask(caller, operation, request, about=about, named=named)
        return self.do(asked)

    def new_id(self) -> str:
        self.count += 1
        return f"c{self.count}"

    def view(self, handoff_id: str) -> HandoffView:
        return self.ask("me", "get_handoff", requests.GetHandoff(), handoff_id).answer.handoff

    def both(
        self, by: str, operation: str, about: str, sent: Mapping[str, Any], said: Mapping[str, Any]
    ) -> None:
        """Give a command to both and compare."""
        request = OPERATIONS[operation](**sent)
        named = sent.get("name") if operation == "step" else None
        relays: tuple[str, Shown | None, bool]
        made: list[str] = []
        try:
            reply = self.ask(by, operation, request, about, named)
            view = self.view(about) if operation == "step" else reply.answer.handoff
            relays = ("ok", shown(view), reply.replayed)
            made = self.made(operation, view)
        except NodropError as error:
            relays = (error.code, None, False)
        try:
            state, replayed = self.model.command(
                by, operation, about, command_id=sent["command_id"], made=made, **said
            )
            models = ("ok", state, replayed)
        except RefusedError as error:
            models = (error.code, None, False)
        if operation == "step" and relays[0] == models[0] == "ok":
            relays = ("ok", models[1], relays[2])  # its answer shows the step, not the handoff
        assert relays == models, f"{operation} by {by} of {about}: {said}"
        self.sent.append((by, operation, about, dict(sent), dict(said)))

    def made(self, operation: str, view: HandoffView) -> list[str]:
        if operation == "redrive" and view.successor:
            return [view.successor]
        if operation == "accept" and view.successor:
            leg = self.view(view.successor).next_leg
            return [view.successor, *([leg] if leg else [])]
        if operation == "complete" and view.next_leg:
            return [view.next_leg]
        return []

    def command_id(self, kind: str, by: str, operation: str, about: str) -> str:
        """Return an id of the kind wanted, a fresh one if there is none."""
        mine = [s for s in self.sent if s[0] == by and s[3].get("command_id")]
        if kind == "another":
            ids = [s[3]["command_id"] for s in mine]
            others = [i for i in ids if self.model.used_for(by, i) not in {None, about}]
            return others[-1] if others else self.new_id()
        same = [s for s in mine if s[1] == operation and s[2] == about]
        return same[-1][3]["command_id"] if kind == "repeat" and same else self.new_id()

    def open_ones(self) -> list[str]:
        return [h.id for h in self.model.handoffs.values() if h.state in FITTING]

    def asking(self) -> list[str]:
        handoffs = self.model.handoffs.values()
        asking = [h.id for h in handoffs if h.question or h.withdrawn]
        return asking or [h.id for h in handoffs]

    def ended_ones(self) -> list[str]:
        return [h.id for h in self.model.handoffs.values() if h.ended and h.decision is None]

    def attempt(self, kind: str, about: str) -> int | None:
        current = self.model.handoffs[about].attempt
        return {"current": current, "none": None, "stale": max(current - 1, 0)}[kind]

    # --- what is asked ---

    @rule(offer=offers, again=st.sampled_from((False,) * 5 + (True,)))
    def offer(self, offer: dict[str, Any], again: bool) -> None:  # noqa: FBT001  # by name
        """A new handoff; or the last one again, as if its answer had got lost."""
        by, sent = offer["by"], {name: offer[name] for name in offer if name != "by"}
        command_id = self.new_id()
        earlier = [s for s in self.sent if s[1] == "offer" and s[0] == by]
        if earlier and again:
            sent, command_id = earlier[-1][4], earlier[-1][3]["command_id"]
        self.offer_both(by, sent, command_id)

    def offer_both(self, by: str, sent: dict[str, Any], command_id: str) -> None:
        request = requests.Offer(
            to=sent["to"],
            capability=sent["capability"],
            idempotency_key=sent["key"],
            deadline=sent["deadline"] / SECOND,
            accept_within=sent["accept_within"] / SECOND,
            attempts_max=sent["attempts_max"],
            then=tuple(requests.LegSpec(to=x.to, capability=x.capability) for x in sent["legs"]),
            escalation=() if sent["quiet"] else None,
            command_id=command_id,
        )
        relays: tuple[Any, ...]
        made = "?"
        try:
            reply = self.ask(by, "offer", request)
            view = reply.answer.handoff
            made = view.id
            relays = ("ok", view.id, shown(view), reply.replayed)
        except NodropError as error:
            relays = (error.code,)
        try:
            models = ("ok", *self.model.offer(by, sent, command_id=command_id, made=made))
        except RefusedError as error:
            models = (error.code,)
        assert relays == models, f"offer by {by}: {sent}"
        self.sent.append((by, "offer", made, {"command_id": command_id}, sent))

    @precondition(lambda self: self.model.handoffs)
    @rule(
        data=st.data(),
        process=st.sampled_from(("p", "q")),
        beat=st.sampled_from(BEATS),
        most=st.integers(1, 3),
    )
    def take(self, data: st.DataObject, process: str, beat: int | None, most: int) -> None:
        waiting = sorted({h.recipient for h in self.model.handoffs.values() if not h.ended})
        by = data.draw(st.sampled_from(waiting or PLAIN), label="by")
        seconds = None if beat is None else beat / SECOND
        request = requests.Take(
            max=most, process=process, heartbeat_seconds=seconds, command_id=self.new_id()
        )
        deliveries = self.ask(by, "take", request).answer.deliveries
        taken = [d.handoff.id for d in deliveries]
        takeable = self.model.takeable(by)
        unfit = {id_ for id_ in takeable if self.model.unfit(self.model.handoffs[id_])}
        assert set(taken) <= takeable - unfit
        assert len(taken) == min(most, len(takeable - unfit))
        # In which order it looks through an inbox is for the relay to choose.
        rejected = {id_ for id_ in unfit if self.view(id_).state == "rejected"}
        assert rejected == unfit or len(taken) == most
        for id_ in rejected:
            self.model.reject_unfit(id_)
        self.model.take(by, taken, process, beat)
        again = self.ask(by, "take", request)
        if taken:
            assert [d.handoff.id for d in again.answer.deliveries] == taken
            assert again.replayed

    @precondition(lambda self: LATE not in self.model.rules.capabilities)
    @rule()
    def register_late(self) -> None:
        """An agent registers that was asked before: its contract binds at a first delivery."""
        offered = {"name": LATE_CAPABILITY, "timeout_seconds": LATE_TIMEOUT / SECOND}
        manifest = msgspec.json.encode({"agent_id": LATE, "capabilities": [offered]})
        request = requests.Register(agent=LATE, manifest=msgspec.Raw(manifest))
        self.ask(LATE, "register", request, named=LATE)
        self.model.register(LATE, LATE_CAPABILITY, LATE_TIMEOUT)

    @precondition(lambda self: self.model.handoffs)
    @rule(data=st.data(), process=st.sampled_from(("p", "q")))
    def heartbeat(self, data: st.DataObject, process: str) -> None:
        by = data.draw(st.sampled_from(RECIPIENTS), label="by")
        held = self.ask(by, "heartbeat", requests.Heartbeat(process=process)).answer.held
        assert set(held) == self.model.heartbeat(by, process)

    @precondition(lambda self: self.open_ones())
    @rule(data=st.data(), id_=ids)
    def work(self, data: st.DataObject, id_: str) -> None:
        """What the recipient does with what it has."""
        about = data.draw(st.sampled_from(self.open_ones()), label="handoff")
        h = self.model.handoffs[about]
        operation = data.draw(st.sampled_from(FITTING[h.state]), label="operation")
        attempt = None if h.state == "offered" and not h.revivable else h.attempt
        self.act_both(data, operation, about, by=h.recipient, attempt=attempt, id_=id_)

    @precondition(lambda self: self.model.handoffs)
    @rule(
        data=st.data(),
        operation=st.sampled_from(OF_RECIPIENT),
        right=mostly_right,
        attempt=attempts,
        id_=ids,
    )
    def act(
        self,
        data: st.DataObject,
        operation: str,
        right: bool,  # noqa: FBT001  # hypothesis passes it by name
        attempt: str,
        id_: str,
    ) -> None:
        """What somebody tries with what it may not have."""
        about = data.draw(st.sampled_from(list(self.model.handoffs)), label="handoff")
        h = self.model.handoffs[about]
        by = h.recipient if right else data.draw(st.sampled_from(EVERYBODY), label="by")
        named = self.attempt(attempt, about)
        self.act_both(data, operation, about, by=by, attempt=named, id_=id_)

    def act_both(
        self,
        data: st.DataObject,
        operation: str,
        about: str,
        *,
        by: str,
        attempt: int | None,
        id_: str,
    ) -> None:
        said: dict[str, Any] = {"attempt": attempt}
        sent: dict[str, Any] = dict(said)
        match operation:
            case "queue":
                operation, promised = "ack", data.draw(st.sampled_from(PROMISED), label="promised")
                if h_state(self.model, about) == "offered":
                    said["attempt"] = sent["attempt"] = None
                said["queued"] = sent["queued"] = True
                said["next_update"] = promised
                sent["next_update"] = None if promised is None else promised / SECOND
            case "step":
                name = data.draw(st.sampled_from(("s1", "s2", "s3")), label="step")
                said["name"] = sent["name"] = name
            case "block":
                said["to"] = sent["to"] = data.draw(st.sampled_from((None, "fay")), label="to")
                said["park"] = sent["park"] = data.draw(st.booleans(), label="park")
                sent["question"] = "Which?"
            case "counter":
                said["deadline"], sent["deadline"] = COUNTERED, COUNTERED / SECOND
            case "fail":
                again = data.draw(st.booleans(), label="retryable")
                said["retryable"] = sent["retryable"] = again
                said["code"] = sent["code"] = "no_access"
            case "checkpoint":
                sent["checkpoint"] = 7
            case _:
                pass
        sent["command_id"] = self.command_id(id_, by, operation, about)
        self.both(by, operation, about, sent, said)

    @precondition(lambda self: self.numbers)
    @rule(
        data=st.data(),
        operation=st.sampled_from(("answer", "agree", "decline")),
        right=mostly_right,
        fits=mostly_right,
        id_=ids,
    )
    def reply(
        self,
        data: st.DataObject,
        operation: str,
        right: bool,  # noqa: FBT001  # hypothesis passes it by name
        fits: bool,  # noqa: FBT001  # same
        id_: str,
    ) -> None:
        about = data.draw(st.sampled_from(self.asking()), label="handoff")
        h = self.model.handoffs[about]
        asked = h.question or h.withdrawn
        if asked is not None and fits:
            operation = "answer" if asked.kind == "question" else operation
            operation = "agree" if asked.kind == "terms" and operation == "answer" else operation
        who = asked.asked if asked and operation == "answer" else h.origin
        by = who if right else data.draw(st.sampled_from(EVERYBODY), label="by")
        mine = [seq for seq, (_, n) in self.numbers.items() if asked and n == asked.number]
        others = [seq for seq in self.numbers if seq not in mine]
        seq = data.draw(st.sampled_from(mine * 8 + others + [1, 9_999]), label="seq")
        of, number = self.numbers.get(seq, ("", None))
        sent: dict[str, Any] = {"seq": seq}
        if operation == "answer":
            sent["answer"] = "this one"
        sent["command_id"] = self.command_id(id_, by, operation, about)
        self.both(by, operation, about, sent, {"number": number if of == about else None})

    @precondition(lambda self: self.ended_ones())
    @rule(data=st.data(), id_=ids)
    def decide(self, data: st.DataObject, id_: str) -> None:
        """What the requester does about what has ended, and a late worker with it."""
        about = data.draw(st.sampled_from(self.ended_ones()), label="handoff")
        h = self.model.handoffs[about]
        if h.delivered_to == h.recipient and data.draw(st.booleans(), label="late"):
            self.act_both(data, "complete", about, by=h.recipient, attempt=h.attempt, id_=id_)
        if h.late_result and data.draw(st.booleans(), label="accept"):
            self.rule_both(data, "accept", about, h.origin, id_)
        operation = data.draw(st.sampled_from(("settle", "redrive", "discard")), label="operation")
        self.rule_both(data, operation, about, h.origin, id_)

    @precondition(lambda self: self.model.handoffs)
    @rule(
        data=st.data(),
        operation=st.sampled_from(OF_REQUESTER),
        right=mostly_right,
        id_=ids,
    )
    def rule_over(self, data: st.DataObject, operation: str, right: bool, id_: str) -> None:  # noqa: FBT001  # by name
        """What somebody tries to do about somebody's handoff."""
        about = data.draw(st.sampled_from(list(self.model.handoffs)), label="handoff")
        h = self.model.handoffs[about]
        by = h.origin if right else data.draw(st.sampled_from(EVERYBODY), label="by")
        self.rule_both(data, operation, about, by, id_)

    def rule_both(self, data: st.DataObject, operation: str, about: str, by: str, id_: str) -> None:
        said: dict[str, Any] = {}
        if operation in {"reassign", "redrive"}:
            nobody = (None,) if operation == "redrive" else ()
            said["to"] = data.draw(st.sampled_from((*RECIPIENTS, *nobody)), label="to")
        sent = {**said, "command_id": self.command_id(id_, by, operation, about)}
        if operation == "note":
            sent["text"] = "Seen."
        self.both(by, operation, about, sent, said)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Send something again, exactly: a lost answer."""
        by, operation, about, sent, said = data.draw(st.sampled_from(self.sent), label="sent")
        if operation == "offer":
            self.offer_both(by, said, sent["command_id"])
        else:
            self.both(by, operation, about, sent, said)

    # --- time ---

    @rule(ms=st.sampled_from(SPANS))
    def pass_time(self, ms: int) -> None:
        self.do(self.world.pass_time(ms))
        self.model.advance(self.world.now)

    @rule(down=st.sampled_from((1, *SPANS)))
    def restart(self, down: int) -> None:
        async def down_and_up() -> int:
            self.world.crash()
            await self.world.move_to(self.world.now + down)
            await self.world.start()
            up_since = self.world.now
            # What runs out in the very millisecond of a start ran out before it, or after: either.
            await self.world.pass_time(1)
            return up_since

        self.model.restart(self.do(down_and_up()))
        self.model.advance(self.world.now)

    # --- what must always agree ---

    @invariant()
    def every_handoff_is_as_the_model_has_it(self) -> None:
        if not self.model.handoffs:
            return
        page = self.ask("me", "list_handoffs", requests.ListHandoffs(limit=500)).answer.handoffs
        assert {v.id: shown(v) for v in page} == {
            h.id: h.shown() for h in self.model.handoffs.values()
        }
        entries = requests.GetLog(type="handoff.escalated.v1", limit=500)
        told = [
            entry.handoff_id
            for entry in self.ask("me", "log", entries).answer.entries
            if msgspec.json.decode(bytes(entry.data))["when"] == "dead"
        ]
        assert sorted(told) == sorted(h.id for h in self.model.handoffs.values() if h.tells)
        for view in page:
            question = self.model.handoffs[view.id].question
            if view.question is not None and question is not None:
                self.numbers[view.question.seq] = (view.id, question.number)


OPERATIONS: Final[Mapping[str, type[requests.Command]]] = {
    "ack": requests.Ack,
    "update": requests.Update,
    "checkpoint": requests.Checkpoint,
    "step": requests.Step,
    "block": requests.Block,
    "counter": requests.Counter,
    "reject": requests.Reject,
    "complete": requests.Complete,
    "fail": requests.Fail,
    "release": requests.Release,
    "answer": requests.Answer,
    "agree": requests.Agree,
    "decline": requests.Decline,
    "cancel": requests.Cancel,
    "reassign": requests.Reassign,
    "settle": requests.Settle,
    "redrive": requests.Redrive,
    "accept": requests.AcceptLate,
    "discard": requests.Discard,
    "note": requests.Note,
}


def h_state(team: Model, about: str) -> str:
    """How a handoff is in the model."""
    return team.handoffs[about].state


def shown(view: HandoffView) -> Shown:
    """What the model, too, would show of it."""
    return Shown(
        state=view.state,
        to=view.to,
        holder=view.holder,
        attempt=view.attempt,
        tries=view.tries,
        question=view.question.kind if view.question else None,
        queued=view.ack is not None and view.ack.queued,
        code=view.outcome.code if view.outcome else None,
        late_result=view.late_result,
        decision=view.decision,
        settled=view.settled_at is not None,
    )


@pytest.mark.timeout(max(300, 12 * RUNS))
def test_the_relay_answers_as_the_model_does() -> None:
    run_state_machine_as_test(
        Team,
        settings=settings(
            max_examples=RUNS,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=SLOW,
            print_blob=True,
        ),
    )


@pytest.mark.timeout(300)  # seconds of work, which others may want to share
@pytest.mark.parametrize(
    "control",
    [
        mutations.no_grace,
        mutations.deaf_to_silence,
        mutations.late_timers,
        mutations.no_repeats,
        mutations.no_keys,
        mutations.two_attempts,
        mutations.two_outcomes,
        mutations.never_bound,
        mutations.never_void,
        mutations.nobody_is_told,
        mutations.nobody_opts_out,
        unfenced,
    ],
)
def test_a_relay_that_answers_otherwise_is_noticed(
    control: Callable[[], AbstractContextManager[Any]],
) -> None:
    with control(), pytest.raises(AssertionError):
        run_state_machine_as_test(
            Team,
            settings=settings(
                max_examples=400,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=SLOW,
                derandomize=True,
                database=None,
                report_multiple_bugs=False,
                phases=[Phase.generate],
            ),
        )


def test_the_model_shares_nothing_with_what_it_is_compared_to() -> None:
    for module in Path(model.__file__).parent.glob("*.py"):
        for line in ast.walk(ast.parse(module.read_text())):
            names = [alias.name for alias in line.names] if isinstance(line, ast.Import) else []
            names += [line.module or ""] if isinstance(line, ast.ImportFrom) else []
            ours = {name for name in names if name.startswith(("nodrop", "kit"))}
            assert all(name.startswith("kit.model") for name in ours), module
