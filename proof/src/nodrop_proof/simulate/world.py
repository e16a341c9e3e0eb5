"""The world of a simulation: its time, its one store, and the relay that comes and goes on it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from nodrop.log.port import Store
from nodrop.model.limits import DEFAULT, Limits
from nodrop.protocol.requests import Request
from nodrop.relay.relay import Caller, Relay, Reply
from nodrop.testing.clock import T0
from nodrop_proof.kit.faulty import FaultyStore
from nodrop_proof.kit.unhurried import UnhurriedStore
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.chance import Chance
from nodrop_proof.simulate.clock import VirtualClock
from nodrop_proof.simulate.ids import NoSigner, SeededIds
from nodrop_proof.simulate.plan import Plan

TEAM: Final = "default"
GRAINS_MS: Final = (1, 250, 1_000)
"""How finely agents time what they do: the coarser, the more happens at the same moment."""
TURNS_MAX: Final = (0, 3)
"""How many turns of the loop the store may keep a reader waiting."""


class LostError(Exception):
    """The relay went away before it answered; whether it did what was asked is not known."""


class Life:
    """A relay from its start to its crash."""

    def __init__(self, relay: Relay, store: FaultyStore, up_since: int) -> None:
        self.relay = relay
        self.store = store
        self.up_since = up_since

    @property
    def over(self) -> bool:
        """Whether it crashed."""
        return self.store.crashed.is_set()


class World:
    """Everything that agents, faults and the audit have in common."""

    def __init__(
        self, plan: Plan, store: Store, *, limits: Limits = DEFAULT, start: int = T0
    ) -> None:
        self.plan = plan
        manner = self.chance("manner")
        self.clock = VirtualClock(start, grain_ms=manner.choice(GRAINS_MS))
        self.store = store
        """What survives a crash."""
        self.figures: Counter[str] = Counter()
        self.troubles: list[BaseException] = []
        """What went wrong where nobody waits for it."""
        self.closing = False
        """The working day is over: nothing new is begun."""
        self.served_since = 0
        """The start of the relay's service, or the end of the last time its store kept it waiting."""
        self._turns_max = manner.choice(TURNS_MAX)
        self._limits = limits
        self._ids = SeededIds(self.clock, self.chance("ids"))
        self._lives: list[Life] = []
        self._up = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def chance(self, name: str) -> Chance:
        """Return a stream of chance of one's own, so that nobody's choices shift another's."""
        return Chance(self.plan.seed, name)

    def new_id(self) -> str:
        """Return an id."""
        return self._ids.new()

    @property
    def now(self) -> int:
        """The time."""
        return self.clock.now()

    # --- the relay ---

    @property
    def life(self) -> Life:
        """The last relay there was, or is."""
        return self._lives[-1]

    @property
    def is_up(self) -> bool:
        """Whether a relay serves."""
        return self._up.is_set() and not self.life.over

    async def start(self) -> None:
        """Start a relay on what the last one left."""
        chance = self.chance(f"store of relay {len(self._lives)}")
        store = FaultyStore(
            cast("Store", UnhurriedStore(self.store, chance, turns_max=self._turns_max))
        )
        up_since = self.now
        relay = await Relay.start(
            cast("Store", store),  # what it does not do itself it leaves to a store
            clock=self.clock,
            ids=self._ids,
            signer=NoSigner(),
            limits=self._limits,
        )
        # Those before are kept: what still waits in them is over, and must not come back as an error.
        self._lives.append(Life(relay, store, up_since))
        self.served_since = up_since
        await relay.ensure_team(TEAM)
        self._up.set()
        self.figures["relay started"] += 1

    def crash(self) -> None:
        """Take the relay away, now."""
        self._up.clear()
        self.life.store.crash()

    async def ask(
        self,
        caller: Caller,
        operation: str,
        request: Request,
        *,
        about: str | None = None,
        named: str | None = None,
    ) -> Reply:
        """Return what the relay answers, once there is one.

        Raises:
            NodropError: the relay refused.
            LostError: it was gone before it answered.
        """
        await self._up.wait()
        life = self.life
        call = asyncio.ensure_future(
            life.relay.call(caller, operation, request, reference=about, name=named)
        )
        gone = asyncio.ensure_future(life.store.crashed.wait())
        try:
            await asyncio.wait({call, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise LostError
            return call.result()
        finally:
            call.cancel()
            gone.cancel()

    async def serving(self) -> Life:
        """Return the relay that serves, once one does."""
        await self._up.wait()
        return self.life

    # --- time ---

    async def move_to(self, at: int) -> None:
        """Let it be `at`, and everything happen that then does."""
        self.clock.set(at)
        await loop.running().settled()

    async def pass_time(self, ms: int) -> None:
        """Let time pass, from one moment that somebody waits for to the next."""
        until = self.now + ms
        await loop.running().settled()
        while (at := self.clock.next_alarm()) is not None and at < until:
            await self.move_to(at)
        await self.move_to(until)

    # --- what goes on ---

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let something go on by itself; what it raises ends the simulation."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.troubles.append(error)

    def stop(self) -> None:
        """Send everybody home who was spawned."""
        for task in list(self._tasks):
            task.cancel()

    async def every(
        self, ms: Callable[[], float], do: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Do something again and again, with pauses, until the day is over."""
        while not self.closing:
            await self.clock.sleep(ms())
            await do()
