"""One simulation from its beginning to its end."""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.model.limits import DAY, HOUR
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffsAnswer, HandoffView
from nodrop.relay.relay import Caller
from nodrop.testing.clock import T0
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.audit import Audit
from nodrop_proof.simulate.nemesis import Nemesis
from nodrop_proof.simulate.person import Person
from nodrop_proof.simulate.plan import Plan
from nodrop_proof.simulate.report import Report
from nodrop_proof.simulate.requester import CAPABILITY, Requester
from nodrop_proof.simulate.violation import Violation
from nodrop_proof.simulate.worker import Worker
from nodrop_proof.simulate.world import TEAM, World

Progress = Callable[[float], None]
"""Told how many of the hours have passed."""
REPORT_STEPS: Final = 1_000
DAYS_AFTER: Final = 7


def run(
    plan: Plan, *, store: Callable[[], Store] = MemoryStore, progress: Progress = lambda _: None
) -> Report:
    """Return what came of `plan`, simulated on a loop of its own."""
    return loop.run(simulate(plan, store=store(), progress=progress))


async def simulate(plan: Plan, *, store: Store, progress: Progress = lambda _: None) -> Report:
    """Return what came of `plan`. Runs on a virtual loop."""
    return await Simulation(plan, store, progress).run()


class Simulation:
    """Everybody in their places."""

    def __init__(self, plan: Plan, store: Store, progress: Progress) -> None:
        self._plan = plan
        self._progress = progress
        self._world = World(plan, store)
        self._audit = Audit(self._world)
        self._nemesis = Nemesis(self._world)
        self._steps = 0

    async def run(self) -> Report:
        """Let the day pass, and the days after, when nobody is there."""
        others = asyncio.all_tasks()
        try:
            await self._open()
            begun = self._world.now
            await self._pass_time(begun + round(self._plan.hours * HOUR))
            self._world.closing = True
            await self._pass_time(self._world.now + HOUR)
            self._world.stop()
            await self._nemesis.relent()
            # A fallback and a step that redrives have as much time as what they carry on.
            await self._pass_time(self._world.now + DAYS_AFTER * DAY + HOUR)
            shown = await self._shown()
            self._check_ended(shown)
            return self._report(shown, None)
        except Violation as violation:
            return self._report([], str(violation))
        finally:
            for task in asyncio.all_tasks() - others:
                task.cancel()

    async def _open(self) -> None:
        world = self._world
        await world.start()
        requesters = max(self._plan.agents // 4, 1)
        workers = [f"worker_{n}" for n in range(max(self._plan.agents - requesters, 1))]
        names = [f"requester_{n}" for n in range(requesters)]
        for number, name in enumerate(workers):
            if number % 3:  # every third declares nothing, and is only ever asked by name
                await self._publish(name, 1_200 if number % 3 == 1 else None)
        if self._plan.people:
            Person(world, self._audit).start()
        for name in names:
            Requester(world, self._audit, name, workers).start()
        for name in workers:
            Worker(world, self._audit, name).start()
        if self._plan.faults:
            self._nemesis.start()
        await self._step(world.now)

    async def _publish(self, agent: str, active_seconds: float | None) -> None:
        can = {"name": CAPABILITY, "timeout_seconds": active_seconds}
        manifest = msgspec.json.encode({"agent_id": agent, "capabilities": [can]})
        request = requests.Register(agent=agent, manifest=msgspec.Raw(manifest))
        caller = Caller(team=TEAM, agent=agent)
        await self._world.ask(caller, "register", request, named=agent)

    # --- time ---

    async def _pass_time(self, until: int) -> None:
        while (at := self._next(until)) is not None:
            await self._step(at)
        await self._step(until)

    def _next(self, until: int) -> int | None:
        if self._nemesis.sleep_ms:
            asleep, self._nemesis.sleep_ms = self._nemesis.sleep_ms, 0
            at = self._world.now + asleep
            return at if at < until else None
        at = self._world.clock.next_alarm()
        return at if at is not None and at < until else None

    async def _step(self, at: int) -> None:
        """Move to the next moment, let everything happen, and look."""
        try:
            await self._world.move_to(at)
        except loop.RestlessError:
            await self._audit.check()  # what goes on and on may break a promise that has a name
            raise Violation("the relay never comes to rest") from None
        self._steps += 1
        if self._world.troubles:
            trouble = self._world.troubles[0]
            raise (
                trouble if isinstance(trouble, Violation) else Violation(repr(trouble))
            ) from trouble
        await self._audit.check()
        if self._steps % REPORT_STEPS == 0:
            self._progress(min((self._world.now - T0) / HOUR, self._plan.hours))

    # --- the end ---

    async def _shown(self) -> list[HandoffView]:
        """Return every handoff as the relay shows it."""
        shown: list[HandoffView] = []
        before: str | None = None
        operator = Caller(team=TEAM, agent="me", operator=True)
        while True:
            page = requests.ListHandoffs(before=before, limit=500)
            answer = (await self._world.ask(operator, "list_handoffs", page)).answer
            assert isinstance(answer, HandoffsAnswer), "handoffs were asked for"
            shown.extend(answer.handoffs)
            before = answer.before
            if before is None:
                return shown

    def _check_ended(self, shown: list[HandoffView]) -> None:
        """After so many days without anybody every deadline has passed."""
        for view in shown:
            if view.outcome is None:
                raise Violation(f"{view.id} is {view.state} {DAYS_AFTER} days after everybody left")

    def _report(self, shown: list[HandoffView], violation: str | None) -> Report:
        books = self._audit.ledger(shown) if violation is None else None
        findings = (*books.dropped, *books.duplicated) if books else ()
        if findings:
            violation = f"{findings[0].handoff_id}: {findings[0].what}"
        return Report(
            seed=self._plan.seed,
            hours=self._plan.hours,
            agents=self._plan.agents,
            steps=self._steps,
            entries=len(self._audit.entries),
            head=self._audit.head.hash,
            stored=books.stored if books else 0,
            lost=len(books.dropped) if books else 0,
            duplicated=len(books.duplicated) if books else 0,
            violation=violation,
            figures=dict(sorted(self._world.figures.items())),
        )
