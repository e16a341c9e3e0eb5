"""How long a large log takes, part by part, each in a process of its own so that memory is told."""

import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from nodrop.analysis.analyze import analyze
from nodrop.analysis.record import Record
from nodrop.analysis.sources import log
from nodrop.audit.verify.verifier import Verifier
from nodrop_proof.emergence import scenarios
from nodrop_proof.emergence.writer import TEAM, Writer

STRUCTURE_SECONDS_MAX: Final = 10.0
MEMORY_MIB_MAX: Final = 1_024
_AGENTS: Final = 500
T = TypeVar("T")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    events: int
    megabytes: float
    writing: float
    verifying: float
    reading: float
    structure: float
    structure_cpu: float
    """Of the processor: what a machine that is not shared would need at most."""
    verifying_mib: int
    """The most memory of the process that verified."""
    analysing_mib: int
    """Same, of the one that read and analysed."""

    @property
    def ok(self) -> bool:
        """Whether it was fast and small enough."""
        small = max(self.verifying_mib, self.analysing_mib) < MEMORY_MIB_MAX
        return self.structure < STRUCTURE_SECONDS_MAX and small


def measure(events: int) -> Report:
    """Return how long `events` of the storm and pipeline scenarios take, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.jsonl")
        writing, size = _alone(partial(_write, path, events))
        verifying, verifying_mib = _alone(partial(_verify, path))
        reading, structure, cpu, count, analysing_mib = _alone(partial(_analyse, path))
    return Report(
        events=count,
        megabytes=round(size / 1e6, 1),
        writing=writing,
        verifying=verifying,
        reading=reading,
        structure=structure,
        structure_cpu=cpu,
        verifying_mib=verifying_mib,
        analysing_mib=analysing_mib,
    )


def _alone(work: Callable[[], T]) -> T:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(work).result()


def _write(path: Path, events: int) -> tuple[float, int]:
    began, written, seed = time.perf_counter(), 0, 1
    writer = Writer(seed)
    with path.open("wb") as file:
        while written < events:
            script = scenarios.make("pipeline", agents=_AGENTS, seed=seed)
            for line in writer.lines(script):
                file.write(line)
                written += 1
                if written >= events:
                    break
            writer.carry_on()
            seed += 1
    return _seconds(began), path.stat().st_size


def _verify(path: Path) -> tuple[float, int]:
    began, verifier = time.perf_counter(), Verifier(TEAM)
    with path.open("rb") as file:
        for line in file:
            verifier.read(msgspec.json.decode(line))
    verdict = verifier.verdict()
    assert verdict.holds, verdict.finding
    return _seconds(began), _mib()


def _analyse(path: Path) -> tuple[float, float, float, int, int]:
    began, record = time.perf_counter(), Record()
    read = log.reader(record)
    with path.open("rb") as file:
        for line in file:
            read(line)
    reading, began, cpu = _seconds(began), time.perf_counter(), time.process_time()
    analyze(record, structure_only=True)
    spent = round(time.process_time() - cpu, 2)
    return reading, _seconds(began), spent, record.events, _mib()


def _seconds(began: float) -> float:
    return round(time.perf_counter() - began, 2)


def _mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024


def table(report: Report) -> str:
    """Return the report for people."""
    return "\n".join(
        [
            f"{report.events:,} events, {report.megabytes:g} MB",
            f"verifying            {report.verifying:8.2f} s   {report.verifying_mib} MiB at most",
            f"reading              {report.reading:8.2f} s",
            f"structural analysis  {report.structure:8.2f} s   {report.analysing_mib} MiB at most",
            f"  of the processor   {report.structure_cpu:8.2f} s",
            f"(writing it took     {report.writing:8.2f} s)",
        ]
    )
