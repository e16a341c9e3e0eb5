"""The made logs hold, and what was put into them is found; without it, nothing is."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nodrop.analysis.analyze import analyze
from nodrop.analysis.findings import RANK, Finding, Severity
from nodrop.analysis.record import Record
from nodrop.analysis.sources import log
from nodrop.audit.verify.verifier import Verifier
from nodrop.cli.tree import app
from nodrop_proof.emergence import market, same, talk
from nodrop_proof.emergence.player import play
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


def small(*, clean: bool) -> Script:
    script = Script()
    work = Work(script, Chance(3, "work"), 20)
    work.usual(30)
    if not clean:
        work.plant_loops(2)
        work.plant_livelocks(2)
        work.plant_orphans(3)
    cut(script)
    return script


def found(script: Script) -> tuple[Sequence[Finding], list[bytes]]:
    writer, record = Writer(3), Record()
    lines = list(writer.lines(script))
    read = log.reader(record)
    for line in lines:
        read(line)
    return analyze(record).findings, lines


def test_what_was_put_in_is_found_in_a_log_that_verifies() -> None:
    script = made(clean=False)
    findings, lines = found(script)
    verifier = Verifier("default")
    for line in lines:
        verifier.read(json.loads(line))
    assert verifier.verdict().holds
    for family, score in scores(findings, script.labels).items():
        assert (score.missed, score.false) == (0, 0), (family, score.misses, score.falses)


def test_a_clean_log_with_every_control_gives_nothing_serious() -> None:
    findings, _ = found(made(clean=True))
    assert not [f for f in findings if RANK[f.severity] >= RANK[Severity.MEDIUM]]


def test_the_same_seed_writes_the_same_log() -> None:
    assert found(made(clean=False))[1][-1] == found(made(clean=False))[1][-1]


@pytest.mark.parametrize("clean", [False, True])
def test_a_relay_that_is_played_the_script_has_a_log_with_the_same_findings(*, clean: bool) -> None:
    pair = same.compared(small(clean=clean), 3, scenario="small", agents=20)
    assert pair.differing == ()
    assert pair.verified
    assert pair.relayed > pair.written  # it tells what was delivered, and reminds
    assert bool(pair.findings) is not clean


def test_a_relay_whose_log_gives_other_findings_is_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: it is played another script."""

    def play_another(_: Script, seed: int) -> list[bytes]:
        return play(small(clean=True), seed)

    monkeypatch.setattr(same, "play", play_another)
    pair = same.compared(small(clean=False), 3, scenario="small", agents=20)
    assert not pair.same
    assert any(said.startswith("only written") for said in pair.differing)


def test_simulate_writes_the_log_of_a_scenario_and_what_was_put_into_it(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("The parcel is late and nobody told the customer.\n", encoding="utf-8")
    command = ["prove", "simulate", "--scenario", "talk", "--agents", "20", "--seed", "7"]
    done = CliRunner().invoke(app, [*command, "--corpus", str(corpus), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    written = (tmp_path / "log.jsonl").read_text(encoding="utf-8")
    assert "nobody told the customer" in written
    assert {json.loads(line)["type"] for line in written.splitlines()} >= {"message.said.v1"}
    put_in = json.loads((tmp_path / "labels.json").read_text(encoding="utf-8"))
    assert {label["family"] for label in put_in["labels"]} == {"language"}
    assert put_in["controls"]


@pytest.mark.parametrize(
    ("option", "value", "said"), [("--scenario", "riot", "choose"), ("--agents", "3", "needs 20")]
)
def test_simulate_refuses_a_scenario_that_there_is_not(
    tmp_path: Path, option: str, value: str, said: str
) -> None:
    command = ["prove", "simulate", "--scenario", "talk", "--seed", "7", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, [*command, option, value])
    assert done.exit_code == 2
    assert said in done.output
    assert not list(tmp_path.iterdir())


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
    labels = [Label(family="livelock", kind="x", subject=chain) for chain in ("one", "two")]
    several = [finding("livelock", subject) for subject in subjects]
    score = scores(several, labels)["livelock"]
    assert (score.found, score.missed, score.false) == expected


def test_precision_and_recall() -> None:
    score = Score(found=3, missed=1, false=2)
    assert (score.precision, score.recall) == (0.6, 0.75)
