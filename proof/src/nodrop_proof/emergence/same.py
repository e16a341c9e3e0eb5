"""The same script as a log that is written, and as one that a relay made: the same findings."""

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import msgspec

from nodrop.analysis.analyze import analyze
from nodrop.analysis.findings import Finding
from nodrop.analysis.record import Record
from nodrop.analysis.sources import log
from nodrop.audit.verify.verifier import Verifier
from nodrop_proof.emergence import scenarios
from nodrop_proof.emergence.player import TEAM, play
from nodrop_proof.emergence.script import Script
from nodrop_proof.emergence.writer import Writer

SIZES: Final = (60, 200, 500)
SEED: Final = 20_261_451
SCENARIOS: Final = ("market", "pipeline", "storm", "talk", "clean")

Known = tuple[str, str, str, tuple[str, ...], tuple[tuple[str, float], ...]]
"""All of a finding that does not name an entry or a handoff by its id."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """What one script gave in both ways."""

    scenario: str
    agents: int
    seed: int
    written: int
    """Entries that the generator wrote."""
    relayed: int
    """Entries that the relay made."""
    findings: int
    verified: bool
    """Whether the relay's log holds."""
    differing: tuple[str, ...]
    """Findings of one of them only."""
    seconds: float

    @property
    def same(self) -> bool:
        """Whether both gave the same, and the relay's log holds."""
        return self.verified and not self.differing


def compare(scenario: str, agents: int, seed: int) -> Pair:
    """Return what a scenario gives in both ways."""
    script = scenarios.make(scenario, agents=agents, seed=seed)
    return compared(script, seed, scenario=scenario, agents=agents)


def compared(script: Script, seed: int, *, scenario: str, agents: int) -> Pair:
    """Return what a script gives in both ways."""
    began = time.perf_counter()
    record, written = _found(Writer(seed).lines(script))
    lines = play(script, seed)
    verifier = Verifier(TEAM)
    for line in lines:
        verifier.read(msgspec.json.decode(line))
    relayed_record, relayed = _found(lines)
    return Pair(
        scenario=scenario,
        agents=agents,
        seed=seed,
        written=record.events,
        relayed=relayed_record.events,
        findings=len(relayed),
        verified=verifier.verdict().holds,
        differing=(
            *(f"only written: {known}" for known in sorted(written - relayed)),
            *(f"only by the relay: {known}" for known in sorted(relayed - written)),
        ),
        seconds=round(time.perf_counter() - began, 1),
    )


def compare_all(
    names: Sequence[str] = SCENARIOS, sizes: Sequence[int] = SIZES, *, seed: int, jobs: int = 2
) -> list[Pair]:
    """Return each scenario at each size."""
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(compare, name, size, seed) for size in sizes for name in names]
        return [each.result() for each in waiting]


def table(pairs: Sequence[Pair]) -> str:
    """Return the comparison for people."""
    lines = [
        f"seed {pairs[0].seed}",
        f"{'scenario':10}{'agents':>8}{'written':>10}{'by relay':>10}{'findings':>10}{'':3}",
    ]
    for pair in pairs:
        verdict = "same" if pair.same else f"{len(pair.differing)} differ"
        lines.append(
            f"{pair.scenario:10}{pair.agents:>8}{pair.written:>10,}{pair.relayed:>10,}"
            f"{pair.findings:>10}   {verdict if pair.verified else 'does not verify'}"
        )
        lines += [f"  {said}" for said in pair.differing[:5]]
    return "\n".join(lines)


def _found(lines: Iterable[bytes]) -> tuple[Record, set[Known]]:
    record = Record()
    read = log.reader(record)
    for line in lines:
        read(line)
    return record, {_known(finding) for finding in analyze(record).findings}


def _known(finding: Finding) -> Known:
    effect = tuple(sorted(finding.effect.items()))
    return finding.detector, finding.severity.value, finding.subject, finding.agents, effect
