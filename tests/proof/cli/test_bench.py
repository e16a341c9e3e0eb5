import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from nodrop.cli.tree import app
from nodrop_proof.bench import growth, idle, rounds
from nodrop_proof.bench.driving import Measure
from nodrop_proof.bench.growth import Growth, GrowthPlan, GrowthSample
from nodrop_proof.bench.idle import Idle, IdlePlan
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.plan import Plan
from nodrop_proof.bench.report import Report, Sample
from nodrop_proof.bench.system import MANY, About, Load, Progress

MACHINE = Machine(
    processor="abacus", cores=2, system="Linux", python="3", sync_p50_ms=1.0, load_average=0.5
)
GOOD = Measure(cycles=30, seconds=3.0, p50_ms=1.0, p99_ms=2.0, cpu_seconds=0.03)
LOST = Measure(failure="1 of 31 cycles never came back")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["prove", "bench", *arguments], env={"COLUMNS": "160"})


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was planned. NATS is not there, and huey loses a cycle."""
    plans: list[Any] = []

    async def peers(plan: Plan, progress: Progress) -> Report:
        plans.append(plan)
        progress("huey", 1, 2)
        about = {
            name: About(title=name.upper(), durability="", cycle="", ours="nodrop" in name)
            for name in plan.systems
        }
        samples = [
            Sample(system=name, load=MANY, round=1, measure=LOST if name == "huey" else GOOD)
            for name in plan.systems
            if name != "nats"
        ]
        return Report(
            machine=MACHINE,
            rounds=plan.rounds,
            window=plan.window,
            about=about,
            versions={},
            absent={"nats": ("nats-py",)} if "nats" in plan.systems else {},
            samples=samples,
        )

    async def grow(plan: GrowthPlan, _: Progress) -> Growth:
        plans.append(plan)
        samples = [GrowthSample(past=past, load=MANY, round=1, measure=GOOD) for past in plan.past]
        return Growth(
            machine=MACHINE,
            rounds=plan.rounds,
            window=plan.window,
            megabytes=dict.fromkeys(plan.past, 5),
            samples=samples,
        )

    async def rest(plan: IdlePlan, _: Progress) -> Idle:
        plans.append(plan)
        figures = dict.fromkeys(("idle_mb", "open_mb", "agents_mb", "waiting_mb"), 64.0)
        figures |= dict.fromkeys(("agents_cpu", "waiting_cpu"), 0.01)
        return Idle(
            machine=MACHINE,
            open=plan.open,
            agents=plan.agents,
            waiting=plan.waiting,
            deliveries=plan.deliveries,
            delivery_p50_ms=0.25,
            delivery_p99_ms=1.0,
            **figures,
        )

    monkeypatch.setattr(rounds, "run", peers)
    monkeypatch.setattr(growth, "run", grow)
    monkeypatch.setattr(idle, "run", rest)
    return plans


def test_by_default_everybody_is_measured_in_three_rounds(plans: list[Any]) -> None:
    assert invoke("--json").exit_code == 1  # huey
    (plan,) = plans
    assert plan.rounds == 3
    assert plan.window.seconds == 3.0
    assert plan.window.warm_up_seconds == 1.0
    assert {"nodrop-websocket", "nodrop-http", "nodrop-embedded"} < set(plan.systems)
    assert plan.loads is None  # those that each is meant for
    peers = {"nats", "skip-locked", "procrastinate", "dbos", "huey", "a2a"}
    peers |= {"rabbitmq", "celery", "dramatiq", "restate"}
    assert peers < set(plan.systems)
    assert not plan.folder.exists()  # it was removed afterwards


def test_databases_go_into_a_folder_that_is_made(plans: list[Any], tmp_path: Path) -> None:
    folder = tmp_path / "fast" / "disk"
    invoke("--folder", str(folder))
    (plan,) = plans
    assert plan.folder.parent == folder


def test_the_answer_is_told_as_json(plans: list[Any]) -> None:
    ran = invoke(
        *("--only", "nodrop-websocket,nats", "--rounds", "2", "--seconds", "0.5"),
        *("--callers", "512,1", "--json"),
    )
    assert ran.exit_code == 0
    told = json.loads(ran.stdout)
    assert told["ok"] is True
    assert told["absent"] == {"nats": ["nats-py"]}
    assert told["lines"][0]["rate"] == {"median": 10.0, "low": 10.0, "high": 10.0}
    assert plans[0].systems == ("nodrop-websocket", "nats")
    assert plans[0].window.warm_up_seconds == 0.5
    assert plans[0].loads == (Load(callers=1), Load(callers=512))


@pytest.mark.usefixtures("plans")
def test_a_table_shows_rates_and_ratios_and_who_is_missing() -> None:
    ran = invoke("--only", "nodrop-websocket,a2a,nats")
    assert ran.exit_code == 0
    assert "NODROP-WEBSOCKET" in ran.stdout
    assert "1.0 (1.0–1.0)" in ran.stdout
    assert "nats: not installed (nats-py)" in ran.stdout


@pytest.mark.usefixtures("plans")
def test_a_lost_cycle_is_told_and_exit_1() -> None:
    ran = invoke("--only", "nodrop-websocket,huey")
    assert ran.exit_code == 1
    assert "HUEY, 64 callers, round 1: 1 of 31 cycles never came back" in ran.stdout


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize(
    "arguments", [["--only", "kafka"], ["speed"], ["growth", "--past", "many"], ["--rounds", "0"]]
)
def test_what_is_not_known_is_wrong_usage(arguments: list[str]) -> None:
    assert invoke(*arguments).exit_code == 2


def test_growth_keeps_its_stores_where_it_is_told_to(plans: list[Any], tmp_path: Path) -> None:
    ran = invoke("growth", "--past", "1000,0", "--folder", str(tmp_path / "stores"))
    assert ran.exit_code == 0
    assert plans[0].past == (0, 1_000)
    assert plans[0].store == "sqlite"
    assert plans[0].folder == tmp_path / "stores"
    assert plans[0].folder.exists()
    assert "1,000" in ran.stdout
    assert "1.00 (1.00–1.00)" in ran.stdout


def test_growth_is_measured_on_postgresql_too(plans: list[Any], tmp_path: Path) -> None:
    ran = invoke("growth", "--store", "postgres", "--past", "0", "--folder", str(tmp_path / "s"))
    assert ran.exit_code == 0
    assert plans[0].store == "postgres"
    assert invoke("growth", "--store", "oracle").exit_code == 2


@pytest.mark.usefixtures("plans")
def test_the_idle_relay_is_told_in_megabytes_and_shares() -> None:
    ran = invoke("idle")
    assert ran.exit_code == 0
    assert "10,000 connected agents" in ran.stdout
    assert "64 MiB" in ran.stdout
    assert "1.0 % of a core" in ran.stdout
    assert "p50 0.25 ms" in ran.stdout


def test_a_busy_machine_is_told_of(plans: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    assert "busy" not in invoke("idle").stderr
    monkeypatch.setattr(f"{__name__}.MACHINE", msgspec.structs.replace(MACHINE, load_average=7.0))
    assert "The machine was busy: load 7.0" in invoke("idle").stderr
    assert len(plans) == 2


@pytest.mark.usefixtures("plans")
def test_a_run_can_renew_the_page(tmp_path: Path) -> None:
    for arguments in (["--only", "a2a"], ["growth", "--past", "0"], ["idle"]):
        assert invoke(*arguments, "--write", str(tmp_path)).exit_code == 0
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert "A2A" in page
    assert "## Growth" in page
    assert "## Idle" in page
