"""Everything at once, at random, for a while: relay kills, worker kills and stalls, a bad network.

Two relays, each with its own callers and workers behind its own bad network. The mortal one is
killed now and then; the steady one lives through, so that its memory can be compared: early, when
its caches are full, and at the end.

CONTROL `keyless`, of `callers`.
"""

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from nodrop_proof.chaos import export
from nodrop_proof.chaos.between import behind_proxy, mend
from nodrop_proof.chaos.caller import Caller
from nodrop_proof.chaos.callers import CHAIN_EVERY, calling, connected
from nodrop_proof.chaos.check import Verdict
from nodrop_proof.chaos.crew import Crew
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess, rss_mb
from nodrop_proof.chaos.report import Report
from nodrop_proof.chaos.worker import PROCESS_STEPS, worker, working
from nodrop_proof.kit.proxy import Proxy, Trouble

STRIKES: Final = ("relay kill", "worker kill", "worker stall", "network")
TROUBLES: Final = tuple(Trouble)
SECONDS: Final = 60.0
FAULT_SECONDS_MAX: Final = 2.0
"""Between two faults lies a random time of at most this."""
WORKERS: Final = 2
"""At each relay."""
PAUSE_SECONDS_MAX: Final = 2.0
"""Callers pause between two handoffs: the run is about time, not about load."""
FILL: Final = 40_000
"""So many handoffs fill every cache of a relay. They are like those that follow: larger ones would
leave holes in its memory that smaller ones cannot use."""
FILL_PER_SECOND: Final = 20
"""A short run is not kept waiting for that; its relay's memory tells little."""
FILLER: Final = "filler"
FILLERS: Final = 256
EARLY_SECONDS: Final = 120.0
WEIGH_SECONDS: Final = 1.0
WEIGHED: Final = 10
"""So many weighings are taken together, by their median."""


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Do what `plan.seed` says for `plan.seconds`."""
    began = time.monotonic()
    chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
    seconds = SECONDS if plan.seconds is None else plan.seconds
    verdicts: list[Verdict] = []
    fill = min(FILL, int(seconds * FILL_PER_SECOND))
    async with (
        _side(plan, "steady", chance, verdicts, fill=fill) as steady,
        _side(plan, "mortal", chance, verdicts) as mortal,
    ):
        storm = _Storm(mortal, steady, chance)
        await storm.rage(seconds, progress)
    at_mortal, at_steady = verdicts
    return (at_mortal + at_steady).report(
        plan,
        count=sum(storm.faults.values()),
        seconds=time.monotonic() - began,
        restarts_ms=storm.restarts_ms,
        extras={"faults": dict(sorted(storm.faults.items())), **_memory(storm.rss_mb, seconds)},
    )


class _Side(msgspec.Struct, frozen=True, kw_only=True):
    """A relay, and what can be done to it."""

    relay: RelayProcess
    crew: Crew
    proxy: Proxy


@asynccontextmanager
async def _side(
    plan: Plan,
    name: str,
    chance: random.Random,
    verdicts: list[Verdict],
    *,
    fill: int = 0,
) -> AsyncGenerator[_Side]:
    """Run a relay under load, after `fill` handoffs; at the end, all of it is checked."""
    folder: Path = plan.folder / name

    def pause() -> float:
        return chance.uniform(0, PAUSE_SECONDS_MAX)

    async with RelayProcess(folder / "relay") as relay:
        with Record(folder / "records.jsonl") as record:
            await _fill_caches(relay, record, fill)
            async with (
                behind_proxy(relay, folder / "clients") as (proxy, reached),
                Crew(reached, record.path, size=WORKERS) as crew,
                calling(
                    reached,
                    record,
                    callers=plan.callers // 2,
                    pause=pause,
                    controls=plan.controls,
                ),
            ):
                yield _Side(relay=relay, crew=crew, proxy=proxy)
                mend(proxy)
        async with relay.operator() as me:
            verdicts.append(await export.check(record.path, me))


async def _fill_caches(relay: RelayProcess, record: Record, handoffs: int) -> None:
    """Let handoffs live and end: what follows them takes their places, and no more room."""
    numbers = iter(range(handoffs))

    async def fill_in(caller: Caller) -> None:
        for number in numbers:
            ask = f"fill-{number}"
            legs = 2 if number % CHAIN_EVERY == 0 else 1
            handoff = await caller.hand_off(ask, to=FILLER, legs=legs)
            await caller.outcome(ask, handoff)

    filler = worker(record, name=FILLER, steps=PROCESS_STEPS, concurrency=FILLERS)
    async with working(filler, relay), connected(relay) as clients, asyncio.TaskGroup() as group:
        for _, client in zip(range(FILLERS), itertools.cycle(clients), strict=False):
            group.create_task(fill_in(Caller(client, record)))


class _Storm:
    """What happens to both sides, and what was seen meanwhile."""

    def __init__(self, mortal: _Side, steady: _Side, chance: random.Random) -> None:
        self.faults: Counter[str] = Counter()
        self.restarts_ms: list[float] = []
        self.rss_mb: list[float] = []
        self._mortal = mortal
        self._steady = steady
        self._chance = chance

    async def rage(self, seconds: float, progress: Callable[[int, int], None]) -> None:
        """Strike for so many seconds."""
        weighing = asyncio.create_task(self._weigh())
        began = time.monotonic()
        try:
            while (passed := time.monotonic() - began) < seconds:
                progress(int(passed), int(seconds))
                await asyncio.sleep(self._chance.uniform(0, FAULT_SECONDS_MAX))
                await self._strike()
            for side in (self._mortal, self._steady):
                await side.crew.recover()
        finally:
            weighing.cancel()
            await asyncio.gather(weighing, return_exceptions=True)
        progress(int(seconds), int(seconds))

    async def _strike(self) -> None:
        side = self._chance.choice((self._mortal, self._steady))
        fault = self._chance.choice(STRIKES)
        match fault:
            case "relay kill":
                await self._mortal.relay.kill()
                self.restarts_ms.append(await self._mortal.relay.start())
            case "worker kill":
                await side.crew.kill_one(self._chance)
            case "worker stall":
                side.crew.stall_one(self._chance)
            case _:
                fault = f"network {side.proxy.strike_at_random(self._chance, TROUBLES)}"
        self.faults[fault] += 1

    async def _weigh(self) -> None:
        while True:
            memory = rss_mb(self._steady.relay.pid)
            if memory is not None:
                self.rss_mb.append(memory)
            await asyncio.sleep(WEIGH_SECONDS)


def _memory(samples_mb: Sequence[float], seconds: float) -> dict[str, Any]:
    """Return the memory of the steady relay early on and at the end."""
    if not samples_mb:
        return {}  # not every system shows it
    early_seconds = min(EARLY_SECONDS, seconds / 2)
    at = int(early_seconds / WEIGH_SECONDS)
    early = median(samples_mb[max(at - WEIGHED, 0) : at] or samples_mb[:1])
    end = median(samples_mb[-WEIGHED:])
    return {
        "rss_mb_minute_2": round(early, 1),
        "rss_mb_end": round(end, 1),
        "rss_mb_max": round(max(samples_mb), 1),
        "rss_ratio": round(end / early, 3),
    }
