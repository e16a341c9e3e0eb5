"""The evaluation on made logs: precision and recall per family and size, and what clean logs give.

The seeds here were never used for choosing a threshold; those were chosen on seeds 1 to 15.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from nodrop.analysis.analyze import analyze
from nodrop.analysis.findings import RANK, Finding, Severity
from nodrop.analysis.record import Record
from nodrop.analysis.sources import log
from nodrop.audit.verify.verifier import Verifier
from nodrop_proof.emergence import scenarios
from nodrop_proof.emergence.score import FAMILIES, Score, scores
from nodrop_proof.emergence.script import Label, Script
from nodrop_proof.emergence.writer import TEAM, Writer

SIZES: Final = (60, 200, 500)
FIRST_SEED: Final = 20_261_401
SEEDS: Final = 10
CLEAN_SEEDS: Final = 500_000
"""How far the seeds of clean logs are away from those of the others."""
LEAST: Final = 0.95
CLEAN_EVENTS_PER_FALSE: Final = 250_000
CLEAN_CHANNELS_MAX: Final = 0.02
_STRUCTURAL: Final = frozenset(
    {
        *("ping-pong", "loop", "livelock", "orphan", "retry-storm", "escalation-storm", "clique"),
        *("hot-spot", "bottleneck", "duplicated-effort"),
    }
)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one pair of logs gave: one with everything in it, one clean."""

    agents: int
    seed: int
    events: int
    clean_events: int
    scores: dict[str, Score]
    clean: tuple[str, ...]
    """Structural findings of medium or high severity in the clean log."""
    channels: int
    clean_channels: int
    """Channels of the clean log that were called drifted."""
    controls: dict[str, int]
    """How often each hard control was there."""
    failed_controls: tuple[str, ...]
    verified: bool | None
    """Whether the log holds; None: it was not verified."""
    seconds: float


def run(agents: int, seed: int, *, verify: bool) -> Run:
    """Make two logs, analyse them, and compare with what was put in."""
    began = time.perf_counter()
    script = scenarios.make("all", agents=agents, seed=seed)
    record, held = _logged(script, seed, verify=verify)
    found, events = analyze(record), record.events
    clean_script = scenarios.make("clean", agents=agents, seed=seed + CLEAN_SEEDS)
    record, _ = _logged(clean_script, seed + CLEAN_SEEDS, verify=False)
    clean = analyze(record)
    channels = [c for c in clean_script.controls if c.family == "language"]
    drifted = {f.subject for f in clean.findings if f.detector == "language"}
    controls = Counter(f"{c.family}: {c.kind}" for c in (*script.controls, *clean_script.controls))
    failed = [
        f"{control.family}: {control.kind} ({found_false.says})"
        for findings, known in ((found.findings, script), (clean.findings, clean_script))
        for control in known.controls
        for found_false in _against(findings, control, known.labels)
    ]
    return Run(
        agents=agents,
        seed=seed,
        events=events,
        clean_events=record.events,
        scores=scores(found.findings, script.labels),
        clean=tuple(
            f"{f.detector}: {f.says}"
            for f in clean.findings
            if f.detector in _STRUCTURAL and RANK[f.severity] >= RANK[Severity.MEDIUM]
        ),
        channels=len(channels),
        clean_channels=len(drifted),
        controls=dict(controls),
        failed_controls=tuple(failed),
        verified=held,
        seconds=round(time.perf_counter() - began, 1),
    )


def _logged(script: Script, seed: int, *, verify: bool) -> tuple[Record, bool | None]:
    """Write a script to a file and read it, as a user's would be."""
    writer, record = Writer(seed), Record()
    verifier = Verifier(TEAM)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log.jsonl")
        with path.open("wb") as file:
            file.writelines(writer.lines(script))
        read = log.reader(record)
        with path.open("rb") as file:
            for line in file:
                if verify:
                    verifier.read(msgspec.json.decode(line))
                read(line)
    return record, verifier.verdict().holds if verify else None


def _against(
    findings: Iterable[Finding], control: Label, labels: Sequence[Label]
) -> Iterable[Finding]:
    """Yield the findings that a control should not have given."""
    agents = set(control.subject.split(", "))
    planted = {
        a for label in labels if label.family == "cliques" for a in label.subject.split(", ")
    }
    for finding in findings:
        if finding.detector not in FAMILIES[control.family]:
            continue
        if RANK[finding.severity] < RANK[Severity.MEDIUM]:
            continue
        match control.family:
            case "language":
                if finding.subject == control.subject:
                    yield finding
            case "cliques":
                # An agent of a control may be in a planted clique as well: that is none of it.
                if agents <= set(finding.agents) and not agents & planted:
                    yield finding
            case "coordination":
                if set(finding.agents) & agents:
                    yield finding
            case _:
                pass  # a surge has no subject; a false storm shows in the table


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """All runs."""

    runs: tuple[Run, ...]
    seconds: float

    def score(self, family: str, agents: int | None = None) -> Score:
        """Return the score of a family, at one size or over all."""
        total = Score()
        for each in self.runs:
            if agents in {None, each.agents}:
                total.add(each.scores[family])
        return total

    def failures(self) -> list[str]:
        """Return what was not reached."""
        failed: list[str] = []
        for agents in dict.fromkeys(run.agents for run in self.runs):
            for family in FAMILIES:
                score = self.score(family, agents)
                if score.precision < LEAST or score.recall < LEAST:
                    failed.append(
                        f"{family} at {agents} agents: precision {score.precision:.3f}, "
                        f"recall {score.recall:.3f}"
                    )
        clean = sum(run.clean_events for run in self.runs)
        false = sum(len(run.clean) for run in self.runs)
        if false * CLEAN_EVENTS_PER_FALSE > clean:
            failed.append(f"{false} false structural findings in {clean} clean events")
        channels = sum(run.channels for run in self.runs)
        drifted = sum(run.clean_channels for run in self.runs)
        if drifted > CLEAN_CHANNELS_MAX * channels:
            failed.append(f"{drifted} of {channels} clean channels called drifted")
        failed += [f"control {c}" for run in self.runs for c in run.failed_controls]
        failed += [
            f"a log of seed {run.seed} does not verify"
            for run in self.runs
            if run.verified is False
        ]
        return failed


def evaluate(
    sizes: Sequence[int] = SIZES, *, first_seed: int = FIRST_SEED, seeds: int = SEEDS, jobs: int = 2
) -> Evaluation:
    """Return the evaluation. The first log of each size is verified entry by entry as well."""
    began = time.perf_counter()
    plan = [(size, first_seed + n, n == 0) for size in sizes for n in range(seeds)]
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(run, size, seed, verify=verify) for size, seed, verify in plan]
        runs = [each.result() for each in waiting]
    return Evaluation(runs=tuple(runs), seconds=round(time.perf_counter() - began, 1))


def table(evaluation: Evaluation) -> str:
    """Return the evaluation for people."""
    sizes = list(dict.fromkeys(run.agents for run in evaluation.runs))
    seeds = [run.seed for run in evaluation.runs]
    lines = [
        f"seeds {min(seeds)} to {max(seeds)}, {len(evaluation.runs)} pairs of logs",
        f"{sum(run.events + run.clean_events for run in evaluation.runs):,} events, {evaluation.seconds:g} s",
        "",
        f"{'family':14}" + "".join(f"{f'{size} agents':>22}" for size in sizes) + f"{'all':>22}",
        f"{'':14}" + f"{'P / R (n)':>22}" * (len(sizes) + 1),
    ]
    for family in FAMILIES:
        cells = [evaluation.score(family, size) for size in (*sizes, None)]
        shown = "".join(
            f"{f'{s.precision:.3f} / {s.recall:.3f} ({s.found + s.missed})':>22}" for s in cells
        )
        lines.append(f"{family:14}{shown}")
    clean = sum(run.clean_events for run in evaluation.runs)
    false = [said for run in evaluation.runs for said in run.clean]
    channels = sum(run.channels for run in evaluation.runs)
    drifted = sum(run.clean_channels for run in evaluation.runs)
    controls = sum((Counter(run.controls) for run in evaluation.runs), Counter[str]())
    broken = [c for run in evaluation.runs for c in run.failed_controls]
    verified = sum(run.verified is True for run in evaluation.runs)
    lines += [
        "",
        f"clean logs: {len(false)} false structural findings in {clean:,} events",
        f"clean channels called drifted: {drifted} of {channels}",
        f"hard controls: {len(broken)} of {controls.total()} not clean ({len(controls)} kinds)",
        f"logs that were verified entry by entry, and hold: {verified}",
    ]
    for what, several in (("false", false), ("control", broken)):
        lines += [f"  {what}: {said}" for said in several[:10]]
    for family in FAMILIES:
        score = evaluation.score(family)
        lines += [f"  missed {family}: {said}" for said in score.misses[:5]]
        lines += [f"  false {family}: {said}" for said in score.falses[:5]]
    return "\n".join(lines)
