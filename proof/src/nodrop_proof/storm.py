"""The retry storm: does work go on after an outage, or do retries keep it down for good?

`nodrop prove storm` prints both curves. 160 agents hand each other work, and all of it
needs one service downstream that is busy to 80 %. The service is away for 15 s; whoever called it
meanwhile hears nothing. Then it is back, and serves what comes in the order in which it came, also
what its caller has given up on: that is the work which a storm wastes. Without a budget the four
attempts of everything ask for more than three times of what it can do, nobody is served in time any
more, and so everything is tried four times: a state that lasts (Bronson et al., "Metastable
Failures in Distributed Systems", HotOS 2021). The relay is the real one, the time is virtual.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Final

import msgspec

from nodrop.log.memory import MemoryStore
from nodrop.model.errors import NodropError
from nodrop.model.limits import DEFAULT, SECOND, Limits
from nodrop.protocol import requests
from nodrop.protocol.views import PushView
from nodrop.relay.relay import Caller, Relay, Subscription
from nodrop_proof.kit.unbudgeted import no_retry_budget
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.chance import Chance
from nodrop_proof.simulate.clock import VirtualClock
from nodrop_proof.simulate.ids import NoSigner, SeededIds

TEAM: Final = "default"
TICK_MS: Final = 100
GOOD: Final = 0.95
BAD: Final = 0.1
_CREDIT: Final = 10_000
_OFFERED_USUALLY: Final = 160.0
"""Handoffs per second of 160 agents that each make one: what the default allowance is a tenth of."""


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated. Rates are per second, the rest is in seconds."""

    agents: int = 160
    offered: float = 80.0
    """Handoffs that all agents together make."""
    capacity: float = 100.0
    """Calls that the service downstream can serve."""
    patience: float = 2.0
    """How long a worker waits for the service before it fails the attempt."""
    attempts_max: int = 4
    deadline: float = 20.0
    before: int = 5
    outage: int = 15
    hangs: bool = False
    """Whether the service keeps what it is asked during the outage, and serves it afterwards."""
    after: int = 40
    seed: int = 1

    @property
    def limits(self) -> Limits:
        """The relay's: its allowance is made for busier teams, and is scaled down with the work."""
        scale = self.offered / _OFFERED_USUALLY
        return msgspec.structs.replace(
            DEFAULT,
            retries_per_second=DEFAULT.retries_per_second * scale,
            retries_burst_max=DEFAULT.retries_burst_max * scale,
        )

    @property
    def back_at(self) -> int:
        """When the outage is over, in seconds from the beginning."""
        return self.before + self.outage


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, second by second."""

    offered: Sequence[int]
    completed: Sequence[int]
    """Of those offered in that second, how many were completed within their deadline."""
    calls: Sequence[int]
    """Calls of the service downstream."""

    def goodput(self, start: int, end: int) -> float:
        """Return the share of what was offered from `start` to `end` that was completed in time."""
        return sum(self.completed[start:end]) / max(sum(self.offered[start:end]), 1)


def run(storm: Storm, *, budget: bool = True) -> Curve:
    """Return what came of `storm`; without `budget`, of the control."""
    with nullcontext() if budget else no_retry_budget():
        return loop.run(_World(storm).run())


# --- from how many agents on -------------------------------------------------------------------

SWEPT: Final = Storm(agents=0, offered=0, capacity=40, before=3, hangs=True, after=120)
"""A service that hangs and then has everything to serve that it was asked meanwhile: as large a
push as an outage of its length can give."""
PER_AGENT: Final = 0.2
"""Handoffs per second that each agent makes."""
SWEPT_AGENTS: Final = (30, 40, 45, 55, 60, 80, 120)
LOOK_SECONDS: Final = 20


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What so many agents come to, long after the outage."""

    agents: int
    pressure: float
    """Retries x load / capacity: the calls per second if every attempt of everything is needed, as
    a share of what the service can do. Above 1 a storm can keep itself going."""
    without: float
    """Goodput without the budget."""
    budget: float
    """Goodput with it."""

    @property
    def as_predicted(self) -> bool:
        """Whether a storm goes on exactly where it can, and never with the budget."""
        storm = self.without <= BAD if self.pressure > 1 else self.without >= GOOD
        return storm and self.budget >= GOOD


def threshold(storm: Storm, per_agent: float = PER_AGENT) -> float:
    """Return from how many agents on a storm can keep itself going: N* = μ / (λ A).

    Capacity over what one agent makes, times the attempts that each handoff has.
    """
    return storm.capacity / (per_agent * storm.attempts_max)


def sweep(agents: int, storm: Storm = SWEPT) -> Swept:
    """Return what `agents` come to, with the budget and without."""
    plan = msgspec.structs.replace(storm, agents=agents, offered=agents * PER_AGENT)
    last = plan.back_at + plan.after - 5
    goodput = {
        budget: run(plan, budget=budget).goodput(last - LOOK_SECONDS, last)
        for budget in (False, True)
    }
    return Swept(
        agents=agents,
        pressure=agents / threshold(plan),
        without=goodput[False],
        budget=goodput[True],
    )


# --- the parts ---------------------------------------------------------------------------------


class _Service:
    """What the work needs: first come, first served, so many per second, stale or not."""

    def __init__(self, clock: VirtualClock, storm: Storm) -> None:
        self.calls: Counter[int] = Counter()
        self._clock = clock
        self._storm = storm
        self._queue: deque[asyncio.Future[None]] = deque()
        self._can_serve = 0.0

    async def call(self, second: int) -> bool:
        """Return whether it answered in time."""
        self.calls[second] += 1
        served: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._storm.hangs or not self._is_away(second):
            self._queue.append(served)
        patience = asyncio.ensure_future(self._clock.sleep(self._storm.patience * SECOND))
        await asyncio.wait({served, patience}, return_when=asyncio.FIRST_COMPLETED)
        patience.cancel()
        return served.done()

    def tick(self, second: int) -> None:
        """Serve what a tick's time is enough for."""
        if self._is_away(second):
            if not self._storm.hangs:
                self._queue.clear()
            return
        self._can_serve += self._storm.capacity * TICK_MS / SECOND
        while self._queue and self._can_serve >= 1:
            self._can_serve -= 1
            self._queue.popleft().set_result(None)
        self._can_serve = min(self._can_serve, 1.0) if not self._queue else self._can_serve

    def _is_away(self, second: int) -> bool:
        return self._storm.before <= second < self._storm.back_at


class _World:
    """The relay, its agents and the service."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm
        self._clock = VirtualClock(grain_ms=TICK_MS)
        self._begun = self._clock.now()
        self._service = _Service(self._clock, storm)
        self._chance = Chance(storm.seed, "offers")
        self._offered: Counter[int] = Counter()
        self._completed: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def _second(self) -> int:
        return (self._clock.now() - self._begun) // SECOND

    async def run(self) -> Curve:
        """Let it happen."""
        storm = self._storm
        ids = SeededIds(self._clock, Chance(storm.seed, "ids"))
        relay = await Relay.start(
            MemoryStore(), clock=self._clock, ids=ids, signer=NoSigner(), limits=storm.limits
        )
        await relay.ensure_team(TEAM)
        names = [f"agent_{n}" for n in range(storm.agents)]
        for name in names:
            _Worker(self, relay, name)
        ticks = (storm.back_at + storm.after) * SECOND // TICK_MS
        due = 0.0
        for tick in range(ticks):
            due += storm.offered * TICK_MS / SECOND
            while due >= 1:
                due -= 1
                sender, recipient = self._chance.sample(names, 2)
                self.spawn(self._offer(relay, sender, recipient))
            self._service.tick(self._second)
            await self._pass_to(self._begun + (tick + 1) * TICK_MS)
        await relay.stop()
        for task in self._tasks:
            task.cancel()
        seconds = range(storm.back_at + storm.after)
        return Curve(
            offered=[self._offered[s] for s in seconds],
            completed=[self._completed[s] for s in seconds],
            calls=[self._service.calls[s] for s in seconds],
        )

    async def _pass_to(self, at: int) -> None:
        await loop.running().settled()
        while (alarm := self._clock.next_alarm()) is not None and alarm < at:
            self._clock.set(alarm)
            await loop.running().settled()
        self._clock.set(at)

    async def _offer(self, relay: Relay, sender: str, recipient: str) -> None:
        self._offered[self._second] += 1
        offer = requests.Offer(
            to=recipient,
            payload={"second": self._second},
            attempts_max=self._storm.attempts_max,
            backoff=requests.BackoffSpec(first="1s", factor=2.0),
            deadline=self._storm.deadline,
        )
        await relay.call(Caller(team=TEAM, agent=sender), "offer", offer)

    async def work(self, relay: Relay, caller: Caller, delivery: PushView) -> None:
        """Do one attempt: all it takes is a call of the service."""
        call = partial(relay.call, caller, reference=delivery.handoff.id)
        attempt = delivery.attempt
        await call("ack", requests.Ack(attempt=attempt))
        if await self._service.call(self._second):
            await call("complete", requests.Complete(attempt=attempt))
            payload: dict[str, int] = msgspec.json.decode(delivery.handoff.payload)
            self._completed[payload["second"]] += 1
        else:
            await call("fail", requests.Fail(attempt=attempt, retryable=True, code="no_answer"))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on by itself."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Worker:
    """An agent that works on everything it is handed, side by side."""

    def __init__(self, world: _World, relay: Relay, name: str) -> None:
        self._world = world
        self._relay = relay
        self._caller = Caller(team=TEAM, agent=name)
        self._subscription: Subscription = relay.subscribe(
            self._caller, process="p", heartbeat_seconds=None, deliver=self._deliver
        )
        self._subscription.grant(_CREDIT)

    def _deliver(self, deliveries: Sequence[PushView]) -> None:
        for delivery in deliveries:
            self._world.spawn(self._attempt(delivery))

    async def _attempt(self, delivery: PushView) -> None:
        with suppress(NodropError):  # it expired meanwhile
            await self._world.work(self._relay, self._caller, delivery)
        self._subscription.grant(1)
