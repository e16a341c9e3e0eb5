"""What came of a run against peers: every measurement, and what it adds up to."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from nodrop_proof.bench.driving import Measure, Window
from nodrop_proof.bench.figures import Spread, ratios
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.system import About, Load

OURS: Final = ("nodrop-websocket", "nodrop-http", "nodrop-embedded")
"""The ways into Nodrop that peers are held against."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One system under one load in one round."""

    system: str
    load: Load
    round: int
    measure: Measure


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One system under one load, over all rounds in which it did its work."""

    system: str
    load: Load
    rate: Spread | None
    p50_ms: Spread | None
    p99_ms: Spread | None
    cpu_ms: Spread | None
    ours_over_it: dict[str, Spread]
    """The rate of each way into Nodrop under as many callers, divided by this one's, per round."""
    failures: tuple[str, ...]
    """Rounds that do not count, and why."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run."""

    machine: Machine
    rounds: int
    window: Window
    about: dict[str, About]
    versions: dict[str, dict[str, str]]
    absent: dict[str, tuple[str, ...]]
    """Systems that are not installed here, and what is missing."""
    samples: Sequence[Sample]

    @property
    def ok(self) -> bool:
        """Whether every round of every system counts."""
        return all(sample.measure.failure is None for sample in self.samples)

    def lines(self) -> list[Line]:
        """Return what the samples add up to, by load, the fastest first."""
        keys = {(sample.system, sample.load) for sample in self.samples}
        lines = [self._line(system, load) for system, load in keys]
        return sorted(
            lines,
            key=lambda line: (
                line.load.callers,
                line.load.connections,
                -line.rate.median if line.rate else 0.0,
                line.system,
            ),
        )

    def best_peer(self, load: Load) -> Line | None:
        """Return the fastest system that is not ours, under a load."""
        peers = [
            line for line in self.lines() if line.load == load and not self.about[line.system].ours
        ]
        return next((line for line in peers if line.rate is not None), None)

    def ratio(self, system: str, other: str, load: Load) -> Spread | None:
        """Return the rate of one system under a load divided by another's, per round."""
        return ratios(self._rates(system, load), self._rates(other, load))

    def document(self) -> dict[str, Any]:
        """Return the report in plain values."""
        return {
            "ok": self.ok,
            "lines": msgspec.to_builtins(self.lines()),
            **msgspec.to_builtins(self),
        }

    def _line(self, system: str, load: Load) -> Line:
        mine = [s for s in self.samples if (s.system, s.load) == (system, load)]
        good = [s.measure for s in mine if s.measure.failure is None]
        over: dict[str, Spread] = {}
        if system not in OURS:
            for way in OURS:
                ratio = self.ratio(way, system, load)
                if ratio is not None:
                    over[way] = ratio
        return Line(
            system=system,
            load=load,
            rate=Spread.of([m.rate for m in good]),
            p50_ms=Spread.of([m.p50_ms for m in good]),
            p99_ms=Spread.of([m.p99_ms for m in good]),
            cpu_ms=Spread.of([m.cpu_ms for m in good]),
            ours_over_it=over,
            failures=tuple(
                f"round {s.round}: {s.measure.failure}" for s in mine if s.measure.failure
            ),
        )

    def _rates(self, system: str, load: Load) -> dict[int, float]:
        return {
            s.round: s.measure.rate
            for s in self.samples
            if (s.system, s.load) == (system, load) and s.measure.failure is None
        }
