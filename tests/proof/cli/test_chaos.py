import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nodrop.cli.tree import app
from nodrop_proof import chaos
from nodrop_proof.chaos import Fault, Progress
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.report import Report

RunAlone = Callable[[Sequence[str | Path]], str]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["prove", "chaos", *arguments], env={"COLUMNS": "100"})


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What was planned, by a fault that loses as many as there are faults beyond the first."""
    plans: list[Plan] = []

    async def run(plan: Plan, progress: Progress) -> Report:
        plans.append(plan)
        progress(plan.count, plan.count)
        lost = plan.count - 1
        return Report(
            fault=plan.fault,
            seed=plan.seed,
            count=plan.count,
            seconds=0.1,
            acknowledged=30,
            lost=lost,
            duplicated=0,
            steps_rerun=0,
            findings=("ask-1: gone",) * lost,
        )

    def load(_: str) -> Fault:
        return run

    monkeypatch.setattr(chaos, "load", load)
    return plans


@pytest.mark.timeout(90)  # a relay is killed in it, and waited for
def test_a_killed_relay_loses_nothing(run_alone: RunAlone) -> None:
    printed = run_alone(
        ["nodrop", "prove", "chaos", "relay-kill", "--count", "1", "--seed", "5", "--json"]
    )
    report = json.loads(printed)
    assert report["ok"] is True
    assert (report["lost"], report["duplicated"], report["steps_rerun"]) == (0, 0, 0)
    assert report["acknowledged"] > 0
    assert report["bound_95"] == 3 / report["acknowledged"]
    assert set(report["restarts_ms"]) == {"count", "p50", "p99", "max"}
    assert report["seed"] == 5


def test_anything_lost_is_exit_1_and_everything_is_left_for_a_look(plans: list[Plan]) -> None:
    ran = invoke("mix", "--count", "2", "--json")
    assert ran.exit_code == 1
    assert json.loads(ran.stdout)["lost"] == 1
    assert str(plans[0].folder) in ran.stderr
    plans[0].folder.rmdir()


def test_nothing_lost_is_exit_0_and_leaves_nothing_behind(plans: list[Plan]) -> None:
    ran = invoke("mix", "--count", "1", "--seconds", "2.5", "--callers", "7", "--open", "9")
    assert ran.exit_code == 0
    assert "✓ mix: 1 faults" in ran.stdout
    (plan,) = plans
    assert (plan.count, plan.seconds, plan.callers, plan.open) == (1, 2.5, 7, 9)
    assert not plan.folder.exists()


def test_the_seed_is_told_if_nobody_says_one(plans: list[Plan]) -> None:
    told = [invoke("mix", "--count", "1").stdout for _ in range(2)]
    assert all(f"seed {plan.seed}" in stdout for plan, stdout in zip(plans, told, strict=True))
    assert plans[0].seed != plans[1].seed


def test_a_person_is_told_what_was_found(plans: list[Plan], tmp_path: Path) -> None:
    ran = invoke("mix", "--count", "3", "--folder", str(tmp_path / "kept"))
    assert ran.stdout.count("✗ ask-1: gone") == 2
    assert plans[0].folder == tmp_path / "kept"
    assert plans[0].folder.exists()


def test_a_folder_must_be_empty(plans: list[Plan], tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    refused = invoke("mix", "--folder", str(tmp_path))
    assert refused.exit_code == 2
    assert "--folder" in refused.stderr
    assert not plans


def test_an_unknown_fault_is_wrong_usage() -> None:
    refused = invoke("meteorite")
    assert refused.exit_code == 2
    assert "relay-kill" in refused.stderr
