"""The cycle on stores with a past, interleaved: what is old must not slow down what is new."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop_proof.bench import past, past_postgres
from nodrop_proof.bench.driving import Measure, Window
from nodrop_proof.bench.figures import Spread, ratios
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.stage import OURS, Environment, staged
from nodrop_proof.bench.system import MANY, ONE, Load, Progress

SYSTEMS: Final = {"sqlite": "nodrop-websocket", "postgres": "nodrop-postgres"}
"""What is measured, by what it keeps its past in."""
SQLITE: Final = "sqlite"
POSTGRES: Final = "postgres"


class GrowthPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much past, and how often it is measured."""

    past: tuple[int, ...]
    store: str = SQLITE
    folder: Path
    """Stores that were filled in it before are used again."""
    now_ms: int
    loads: tuple[Load, ...] = (ONE, MANY)
    rounds: int = 3
    window: Window = Window()
    ours: Environment = OURS


class GrowthSample(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement."""

    past: int
    load: Load
    round: int
    measure: Measure


class GrowthLine(msgspec.Struct, frozen=True, kw_only=True):
    """One store under one load, over all rounds."""

    past: int
    load: Load
    rate: Spread | None
    p50_ms: Spread | None
    p99_ms: Spread | None
    over_least: Spread | None
    """Its rate divided by that of the store with the least past, per round."""
    failures: tuple[str, ...]


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    store: str = SQLITE
    machine: Machine
    rounds: int
    window: Window
    megabytes: dict[int, int]
    """The size of each store before it was measured."""
    samples: Sequence[GrowthSample]

    @property
    def ok(self) -> bool:
        """Whether every round counts."""
        return all(sample.measure.failure is None for sample in self.samples)

    def lines(self) -> list[GrowthLine]:
        """Return what the samples add up to."""
        keys = sorted({(s.load.callers, s.past) for s in self.samples})
        return [self._line(callers, past) for callers, past in keys]

    def document(self) -> dict[str, Any]:
        """Return it in plain values."""
        return {
            "ok": self.ok,
            "lines": msgspec.to_builtins(self.lines()),
            **msgspec.to_builtins(self, str_keys=True),
        }

    def _line(self, callers: int, past: int) -> GrowthLine:
        mine = [s for s in self.samples if (s.load.callers, s.past) == (callers, past)]
        good = [s.measure for s in mine if s.measure.failure is None]
        least = min(sample.past for sample in self.samples)
        return GrowthLine(
            past=past,
            load=mine[0].load,
            rate=Spread.of([m.rate for m in good]),
            p50_ms=Spread.of([m.p50_ms for m in good]),
            p99_ms=Spread.of([m.p99_ms for m in good]),
            over_least=ratios(self._rates(callers, past), self._rates(callers, least)),
            failures=tuple(
                f"round {s.round}: {s.measure.failure}" for s in mine if s.measure.failure
            ),
        )

    def _rates(self, callers: int, past: int) -> dict[int, float]:
        return {
            s.round: s.measure.rate
            for s in self.samples
            if (s.load.callers, s.past) == (callers, past) and s.measure.failure is None
        }


async def run(plan: GrowthPlan, progress: Progress) -> Growth:
    """Fill the stores that are missing, then measure all of them in turn."""
    folders = {count: plan.folder / f"past-{count}" for count in plan.past}
    most = max(plan.past)
    template = await past.record(finished=True)
    await asyncio.to_thread(
        past.filled,
        folders,
        template,
        now_ms=plan.now_ms,
        progress=lambda done: progress("writing the past", done, most),
    )
    sizes = _megabytes
    if plan.store == POSTGRES:
        sizes = past_postgres.megabytes
        for number, folder in enumerate(folders.values()):
            progress("copying it to PostgreSQL", number, len(folders))
            await past_postgres.filled(folder)
    megabytes = {count: sizes(folder) for count, folder in folders.items()}
    machine = Machine.look(plan.folder)
    samples: list[GrowthSample] = []
    total = plan.rounds * len(plan.past) * len(plan.loads)
    for number in range(1, plan.rounds + 1):
        order = plan.past if number % 2 else plan.past[::-1]
        for count in order:
            progress(f"round {number}: {count:,} past handoffs", len(samples), total)
            system = SYSTEMS[plan.store]
            async with staged(system, environment=plan.ours, folder=folders[count]) as stage:
                for load in plan.loads:
                    measure = await stage.measure(load, plan.window)
                    samples.append(
                        GrowthSample(past=count, load=load, round=number, measure=measure)
                    )
    return Growth(
        store=plan.store,
        machine=machine,
        rounds=plan.rounds,
        window=plan.window,
        megabytes=megabytes,
        samples=samples,
    )


def _megabytes(folder: Path) -> int:
    return (folder / "home" / past.DATABASE).stat().st_size // 1_000_000
