"""The made logs hold, and what was put into them is found; without it, nothing is."""

import json
from collections.abc import Sequence

import pytest

from nodrop.analysis.analyze import analyze
from nodrop.analysis.findings import RANK, Finding, Severity
from nodrop.analysis.record import Record
from nodrop.analysis.sources import log
from nodrop.audit.verify.verifier import Verifier
from nodrop_proof.emergence import market, talk
from nodrop_proof.emergence.score import Score, scores
from nodrop_proof.emergence.script import Label, Script
from nodrop_proof.emergence.work import Work, cut
from nodrop_proof.emergence.writer import Writer
from nodrop_proof.simulate.chance import Chance

CHAINS = 250


def made(*, clean: bool) -> Script:
    script = Script()
    work = Work(script, Chance(3, "work"), 60)
    work.usual(CHAINS)
    if not clean:
        work.plant_loops(4)
        work.plant_livelocks(4)
        work.plant_orphans(3)
        work.plant_cliques(1)
    market.markets(script, Chance(3, "market"), 4, clean=clean)
    talk.channels(script, Chance(3, "talk"), 6, clean=clean)
    cut(script)
    return script


def found(script: Script) -> tuple[Sequence[Finding], dict[int, str], list[bytes]]:
    writer, record = Writer(3), Record()
    lines = list(writer.lines(script))
    read = log.reader(record)
    for line in lines:
        read(line)
    return analyze(record).findings, writer.chains, lines


def test_what_was_put_in_is_found_in_a_log_that_verifies() -> None:
    script = made(clean=False)
    findings, chains, lines = found(script)
    verifier = Verifier("default")
    for line in lines:
        verifier.read(json.loads(line))
    assert verifier.verdict().holds
    for family, score in scores(findings, script.labels, chains).items():
        assert (score.missed, score.false) == (0, 0), (family, score.misses, score.falses)


def test_a_clean_log_with_every_control_gives_nothing_serious() -> None:
    findings, _, _ = found(made(clean=True))
    assert not [f for f in findings if RANK[f.severity] >= RANK[Severity.MEDIUM]]


def test_the_same_seed_writes_the_same_log() -> None:
    assert found(made(clean=False))[2][-1] == found(made(clean=False))[2][-1]


def finding(detector: str, subject: str) -> Finding:
    return Finding(
        detector=detector,
        severity=Severity.HIGH,
        subject=subject,
        agents=("a",),
        says="",
        effect={},
        tested="",
        benign=(),
        evidence=(),
    )


@pytest.mark.parametrize(
    ("subjects", "expected"),
    [
        (["one"], (1, 1, 0)),
        (["one", "two"], (2, 0, 0)),
        (["one", "two", "other"], (2, 0, 1)),
        ([], (0, 2, 0)),
    ],
)
def test_a_score_counts_what_was_found_missed_and_false(
    subjects: list[str], expected: tuple[int, int, int]
) -> None:
    labels = [Label(family="livelock", kind="x", subject=str(n)) for n in range(2)]
    several = [finding("livelock", subject) for subject in subjects]
    score = scores(several, labels, {0: "one", 1: "two"})["livelock"]
    assert (score.found, score.missed, score.false) == expected


def test_precision_and_recall() -> None:
    score = Score(found=3, missed=1, false=2)
    assert (score.precision, score.recall) == (0.6, 0.75)
