"""What goes wrong: the store fails, stalls or takes the relay with it; the machine sleeps."""

from nodrop.model.errors import StoreFullError
from nodrop.model.limits import HOUR, MINUTE, SECOND
from nodrop_proof.kit.faulty import Fault
from nodrop_proof.simulate.world import World


class Nemesis:
    """Makes things go wrong, as the seed has it."""

    def __init__(self, world: World) -> None:
        self.sleep_ms = 0
        """For how long the machine falls asleep at the next step: nobody notices time pass."""
        self._world = world
        self._chance = world.chance("nemesis")

    def start(self) -> None:
        """Begin."""
        self._world.spawn(self._world.every(lambda: self._chance.about(6 * MINUTE), self._strike))

    async def relent(self) -> None:
        """Put right what is wrong: a strike that was cut short would never end."""
        self._world.life.store.relent()
        self._world.served_since = self._world.now
        if self._world.life.over:
            await self._world.start()

    async def _strike(self) -> None:
        strike = self._chance.pick(
            {
                self._fail: 40,
                self._stall: 20,
                self._crash: 15,
                self._crash_in_commit: 15,
                self._fall_asleep: 10,
            }
        )
        await strike()

    async def _fail(self) -> None:
        store = self._world.life.store
        for _ in range(self._chance.choice((1, 1, 1, 3, 10))):
            fault = self._chance.choice((Fault.BEFORE_COMMIT, Fault.AFTER_COMMIT))
            full = fault is Fault.BEFORE_COMMIT and self._chance.strikes(0.3)
            store.fail_next(fault, StoreFullError() if full else None)
            self._world.figures[f"faults: {fault.name.lower()}"] += 1

    async def _stall(self) -> None:
        store = self._world.life.store
        store.gate.clear()
        await self._world.clock.sleep(self._chance.choice((50, SECOND, 10 * SECOND, 2 * MINUTE)))
        store.gate.set()
        self._world.served_since = self._world.now
        self._world.figures["faults: stall"] += 1

    async def _crash(self) -> None:
        self._world.crash()
        await self._start_again("crash")

    async def _crash_in_commit(self) -> None:
        fault = self._chance.choice((Fault.CRASH_BEFORE_COMMIT, Fault.CRASH_AFTER_COMMIT))
        store = self._world.life.store
        store.fail_next(fault)
        await store.crashed.wait()
        self._world.crash()
        await self._start_again(fault.name.lower())

    async def _start_again(self, kind: str) -> None:
        self._world.figures[f"faults: {kind}"] += 1
        down = self._chance.pick({1: 30, SECOND: 30, 10 * SECOND: 20, 2 * MINUTE: 15, HOUR: 5})
        await self._world.clock.sleep(down)
        await self._world.start()

    async def _fall_asleep(self) -> None:
        self.sleep_ms = self._chance.choice((SECOND, MINUTE, 10 * MINUTE, HOUR))
        self._world.figures["faults: asleep"] += 1
