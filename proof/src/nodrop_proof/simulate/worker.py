"""An agent that does the work, in processes that crash, stall, go silent and come back late."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from nodrop.model.errors import UnavailableError, WrongStateError
from nodrop.model.limits import HOUR, MINUTE, SECOND
from nodrop.protocol import requests
from nodrop.protocol.views import PushView
from nodrop.relay.relay import Caller
from nodrop_proof.simulate.audit import Audit
from nodrop_proof.simulate.errand import GONE, Errand, Key
from nodrop_proof.simulate.line import Line
from nodrop_proof.simulate.violation import Violation
from nodrop_proof.simulate.world import Life, World

BUSY: Final = 5
"""Deliveries in hand with which a process takes its time to ask for more."""
UNKNOWN_BEATS_MAX: Final = 5
"""Heartbeats in a row that may name a delivery which its process was never sent."""


class Worker:
    """One worker: a process, and after its crash another."""

    def __init__(self, world: World, audit: Audit, name: str) -> None:
        self.name = name
        self._world = world
        self._audit = audit
        self._chance = world.chance(name)

    def start(self) -> None:
        """Begin the day."""
        self._world.spawn(self._live())

    async def _live(self) -> None:
        chance, number = self._chance, 0
        while not self._world.closing:
            back = number > 0 and chance.strikes(0.2)
            number += 0 if back else 1
            process = Process(self._world, self._audit, self.name, f"p{number}", back=back)
            running = self._world.spawn(process.run())
            await self._world.clock.sleep(chance.about(2 * HOUR))
            running.cancel()
            await asyncio.wait({running})
            self._world.figures["worker crashed"] += 1
            await self._world.clock.sleep(chance.choice((SECOND, 15 * SECOND, 5 * MINUTE)))


class Process:
    """One process of a worker, until it is killed."""

    def __init__(
        self, world: World, audit: Audit, agent: str, name: str, *, back: bool = False
    ) -> None:
        """Prepare a process called `name`; `back`: one of that name was killed before."""
        self._world = world
        self._agent = agent
        self._back = back
        self.name = name
        self.signs = audit.beats(f"{agent}:{name}")
        self.agent_signs = audit.beats(agent)
        self._line = Line(world, agent, signs=self.signs, of_agent=self.agent_signs)
        self._chance = world.chance(f"{agent}/{name} from {world.now}")
        seconds: Sequence[float | None] = (2.5, 10.0, 10.0, 30.0, None)
        self._beat_seconds = self._chance.choice(seconds)
        self._errands: dict[Key, asyncio.Task[None]] = {}
        self._sent: set[Key] = set()
        self._unknown: Counter[Key] = Counter()
        self._stalled_until = 0

    @property
    def caller(self) -> Caller:
        """Whose process it is."""
        return self._line.caller

    @property
    def now(self) -> int:
        """The time."""
        return self._world.now

    async def run(self) -> None:
        """Work until killed; everything that was begun is then left where it stands."""
        if self._back:
            await self._give_back()
        beat, pushed = self._beat_seconds, self._chance.strikes(0.6)
        work = [self._stall_sometimes(), self._queue_sometimes()]
        if beat is not None:
            work.append(self._beat_for_ever(beat))
        work.append(self._subscribe(beat) if beat is not None and pushed else self._poll())
        tasks = [self._world.spawn(each) for each in work]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (*tasks, *self._errands.values()):
                task.cancel()

    # --- what it has no room for ---

    async def _queue_sometimes(self) -> None:
        """Acknowledge what waits in the inbox, and say so again as promised; or forget about it."""
        while True:
            await self._world.clock.sleep(self._chance.about(2 * MINUTE))
            await self.awake()
            inbox = await self._line(requests.GetInbox(limit=20), "inbox")
            items = [
                item for item in inbox.items if (item.kind, item.state) == ("handoff", "offered")
            ]
            waiting = sorted({item.handoff_id for item in items})
            for handoff_id in waiting[: self._chance.randint(1, 3)]:
                promised = self._chance.choice((None, 30, 600))
                said = requests.Ack(queued=True, status="queued", next_update=promised)
                with suppress(*GONE, WrongStateError):
                    await self._line(said, "ack", handoff_id)

    # --- signs of life ---

    async def _stall_sometimes(self) -> None:
        while True:
            await self._world.clock.sleep(self._chance.about(HOUR))
            self._stalled_until = self._world.now + self._chance.randint(SECOND, 3 * MINUTE)
            self._world.figures["worker stalled"] += 1

    async def awake(self) -> None:
        """Return when this process does something again."""
        while self._stalled_until > self._world.now:
            await self._world.clock.sleep_until(self._stalled_until)

    async def _beat(self) -> list[Key]:
        answer = await self._line(requests.Heartbeat(process=self.name), "heartbeat")
        return list(answer.held)

    async def _give_back(self) -> None:
        """Release what an earlier process of this name held: nobody knows how far it came."""
        for handoff_id, attempt in await self._beat():
            self._sent.add((handoff_id, attempt))
            with suppress(*GONE):
                await self._line(requests.Release(attempt=attempt), "release", handoff_id)

    async def _beat_for_ever(self, seconds: float) -> None:
        while True:
            await self._world.clock.sleep(seconds * SECOND)
            await self.awake()
            self._look_for_lost(set(await self._beat()))

    def _look_for_lost(self, held: set[Key]) -> None:
        """Whatever this process holds it must have been sent: nobody else will do it."""
        unknown = held - self._sent
        self._unknown = Counter({key: self._unknown[key] + 1 for key in sorted(unknown)})
        for (handoff_id, attempt), beats in self._unknown.items():
            if beats > UNKNOWN_BEATS_MAX:
                raise Violation(
                    f"{self._agent}:{self.name} holds attempt {attempt} of {handoff_id}, "
                    "and was never sent it"
                )

    # --- deliveries ---

    async def _poll(self) -> None:
        while True:
            await self.awake()
            take = requests.Take(
                max=self._chance.randint(1, 3),
                wait=self._chance.choice((0, 5, 30)),
                heartbeat_seconds=self._beat_seconds,
                process=self.name,
            )
            self.begin((await self._line(take, "take")).deliveries)
            busy = len(self._errands) >= BUSY
            await self._world.clock.sleep(self._chance.uniform(1, 60 if busy else 5) * SECOND)

    async def _subscribe(self, beat_seconds: float) -> None:
        while True:
            life = await self._world.serving()
            connection = _Connection(self, life, beat_seconds)
            gone = asyncio.ensure_future(life.store.crashed.wait())
            cut = asyncio.ensure_future(self._world.clock.sleep(self._chance.about(20 * MINUTE)))
            refused = asyncio.ensure_future(connection.open(self._chance.randint(1, 4)))
            try:
                await asyncio.wait({gone, cut, refused}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                connection.close()
                for task in (gone, cut, refused):
                    task.cancel()
            await self._world.clock.sleep(self._chance.uniform(0.1, 3) * SECOND)

    def begin(self, deliveries: Sequence[PushView]) -> list[asyncio.Task[None]]:
        """Work on what came, unless it came before."""
        begun: list[asyncio.Task[None]] = []
        for delivery in deliveries:
            key = (delivery.handoff.id, delivery.attempt)
            if key in self._sent:
                self._world.figures["delivered again"] += 1
                continue
            self._sent.add(key)
            errand = Errand(self._world, self._line, delivery, self._chance, self.awake)
            task = self._errands[key] = self._world.spawn(errand.run())
            task.add_done_callback(lambda _, key=key: self._errands.pop(key, None))
            begun.append(task)
        return begun


class _Connection:
    """Where deliveries are pushed to, until it breaks."""

    def __init__(self, process: Process, life: Life, beat_seconds: float) -> None:
        self._process = process
        self._life = life
        self._closed = False
        process.agent_signs.sent_at = process.now
        self._subscription = life.relay.subscribe(
            process.caller,
            process=process.name,
            heartbeat_seconds=beat_seconds,
            deliver=self._deliver,
        )

    async def open(self, credit: int) -> None:
        """Take what comes, beginning with what did not arrive before; return if that is refused."""
        self._process.signs.sent_at = self._process.now  # who connects again is alive
        try:
            await self._subscription.resume()
        except UnavailableError:
            return
        finally:
            self._process.signs.sent_at = self._process.now
        self._process.agent_signs.sent_at = self._process.now
        self._subscription.grant(credit)
        await self._life.store.crashed.wait()

    def close(self) -> None:
        """Break. What is still pushed goes into the void."""
        self._closed = True
        self._subscription.close()

    def _deliver(self, deliveries: Sequence[PushView]) -> None:
        if self._closed:
            return
        for task in self._process.begin(deliveries):
            task.add_done_callback(self._done)

    def _done(self, _: object) -> None:
        if not (self._closed or self._life.over):
            self._process.agent_signs.sent_at = self._process.now
            self._subscription.grant(1)
