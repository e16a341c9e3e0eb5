import json
import subprocess
import sys
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from kit import mutations
from nodrop.cli.tree import app
from nodrop_proof.simulate import simulation
from nodrop_proof.simulate.plan import Plan

pytestmark = pytest.mark.timeout(180)  # seconds of work, which others may want to share

SHORT: Final = ("--seed", "1", "--hours", "0.5", "--agents", "4")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["prove", "simulate", *arguments], env={"COLUMNS": "100"})


@pytest.mark.parametrize(
    "proof", [("simulate", *SHORT), ("chaos", "power-cut", "--count", "5", "--seed", "1")]
)
def test_what_a_proof_provokes_is_not_on_its_screen(proof: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "nodrop.cli", "prove", *proof]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    for words in ("dead letter", "lost its lease", "stay in memory"):
        assert words not in ran.stderr


def test_hours_are_simulated_and_told_as_one_document() -> None:
    ran = invoke("--seed", "1", "--hours", "2", "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert (told["seed"], told["runs"], told["hours"], told["agents"]) == (1, 1, 2, 12)
    assert (told["lost"], told["duplicated"], told["violations"]) == (0, 0, [])
    assert told["stored"] > 0
    assert told["bound_95"] == 3 / told["stored"]
    assert told["steps"] > told["entries"] > told["stored"]
    assert len(told["heads"]) == 1
    assert told["figures"]["relay started"] > 1


def test_a_person_is_shown_what_was_looked_at() -> None:
    ran = invoke(*SHORT)
    assert ran.exit_code == 0, ran.output
    assert "✓ 0.5 hours of 4 agents" in ran.stdout
    assert "seed 1" in ran.stdout
    assert "duplicated" in ran.stdout


def test_every_run_takes_the_next_seed() -> None:
    told = json.loads(invoke(*SHORT, "--runs", "2", "--json").stdout)
    second = simulation.run(Plan(seed=2, hours=0.5, agents=4)).head
    assert told["runs"] == 2
    assert told["heads"][0] != second
    assert told["heads"][1] == second


def test_a_promise_that_is_not_kept_is_exit_1_with_the_command_that_shows_it_again() -> None:
    with mutations.late_timers():
        ran = invoke(*SHORT, "--json")
        shown = invoke(*SHORT)
    assert (ran.exit_code, shown.exit_code) == (1, 1)
    told = json.loads(ran.stdout)
    again = "nodrop prove simulate --seed 1 --hours 0.5 --agents 4"
    [violation] = told["violations"]
    assert "was due" in violation["what"]
    assert (violation["seed"], violation["again"]) == (1, again)
    assert told["bound_95"] is None
    assert f"→ {again}" in shown.stdout


def test_a_duplicate_that_only_the_books_show_is_exit_1_too() -> None:
    with mutations.no_keys():
        ran = invoke("--seed", "7", "--hours", "1", "--agents", "8", "--json")
    told = json.loads(ran.stdout)
    assert ran.exit_code == 1
    assert told["duplicated"] > 0
    assert "is also" in told["violations"][0]["what"]
