"""Page, chart and data: made from what was measured, and none of it by hand."""

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest

from nodrop_proof.bench import results
from nodrop_proof.bench.driving import Measure, Window
from nodrop_proof.bench.finding import Finding, Timings
from nodrop_proof.bench.growth import Growth, GrowthSample
from nodrop_proof.bench.idle import Idle
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.report import Report, Sample
from nodrop_proof.bench.results import CHART, DATA, PAGE, Results
from nodrop_proof.bench.system import MANY, ONE, About

MACHINE = Machine(
    processor="abacus", cores=2, system="Linux", python="3", sync_p50_ms=1.25, load_average=0.5
)
ABOUT = {
    "nodrop-websocket": About(title="Nodrop, WebSocket", durability="d", cycle="c", ours=True),
    "peer": About(title="A <peer>", durability="d", cycle="c"),
    "gone": About(title="Gone", durability="d", cycle="c"),
}


def sample(system: str, cycles: int, load: object = MANY) -> Sample:
    measure = Measure(cycles=cycles, seconds=1.0, p50_ms=2.0, p99_ms=9.0, cpu_seconds=0.3)
    return Sample(system=system, load=MANY if load is MANY else ONE, round=1, measure=measure)


REPORT = Report(
    machine=MACHINE,
    rounds=1,
    window=Window(),
    about=ABOUT,
    versions={"nodrop-websocket": {"nodrop": "1.2"}, "peer": {"peer": "3.4"}},
    absent={"gone": ("gone-server",)},
    samples=[sample("nodrop-websocket", 3_000), sample("peer", 300), sample("peer", 30, ONE)],
)
GROWTH = Growth(
    machine=MACHINE,
    rounds=1,
    window=Window(),
    megabytes={0: 1, 1_000_000: 6_500},
    samples=[
        GrowthSample(past=past, load=MANY, round=1, measure=Measure(cycles=cycles, seconds=1.0))
        for past, cycles in ((0, 1_000), (1_000_000, 850))
    ],
)
IDLE = Idle(
    machine=MACHINE,
    idle_mb=67.4,
    open=100_000,
    open_mb=80.0,
    agents=10_000,
    agents_mb=400.0,
    agents_cpu=0.012,
    waiting=1_000,
    waiting_mb=70.0,
    waiting_cpu=0.0,
    deliveries=300,
    delivery_p50_ms=0.07,
    delivery_p99_ms=1.0,
)

FINDING = Finding(
    machine=MACHINE,
    timings=(
        Timings(
            agents=10_000,
            offering=100,
            start_ms=700.0,
            find_ms=1.46,
            find_again_ms=1.2,
            route_ms=0.76,
        ),
    ),
)


def parsed(chart: str) -> ET.Element:
    return ET.fromstring(chart)  # noqa: S314  # of our own making


def test_the_page_says_what_was_measured() -> None:
    page = results.made(Results(peers=REPORT, growth=GROWTH, idle=IDLE, finding=FINDING))[PAGE]
    for said in (
        "- Nodrop, WebSocket, 64 callers: 10.0 (10.0 to 10.0) times A <peer>, the fastest peer",
        "| **Nodrop, WebSocket** | 3,000 (3,000 to 3,000) | 2.0 | 9.0 | 0.10 |",
        "| A <peer> | 300 (300 to 300) | 2.0 | 9.0 | 1.00 | 10.0 (10.0 to 10.0) |",
        "Gone was not installed (gone-server)",
        "| A <peer> | peer 3.4 | d | c |",
        "| 1,000,000 | 6,500 | 64 callers | 850 (850 to 850) |",
        "0.85 (0.85 to 0.85)",
        "| 10,000 idle connected agents | 400 MiB | 1.2 % of a core |",
        "| 10,000 | 100 | 1.5 | 1.2 | 0.8 |",
        "fdatasync 1.2 ms",
        "load average 0.5",
    ):
        assert said in page


def test_relays_on_postgresql_are_held_against_its_other_users_and_each_other() -> None:
    cycles = {
        "nodrop-postgres": 600,
        "nodrop-postgres-http": 400,
        "nodrop-postgres-across": 450,
        "nodrop-postgres-apart": 660,
        "procrastinate": 50,
        "skip-locked": 200,
    }
    about = {name: About(title=name, durability="d", cycle="c") for name in cycles}
    measured = [sample(name, count) for name, count in cycles.items()]
    report = msgspec.structs.replace(REPORT, about=about, absent={}, versions={}, samples=measured)
    page = results.made(Results(peers=report))[PAGE]
    for said in (
        "- nodrop-postgres, 64 callers: 12.00 (12.00 to 12.00) times procrastinate",
        "- nodrop-postgres, 64 callers: 3.00 (3.00 to 3.00) times skip-locked",
        "- nodrop-postgres-http, 64 callers: 2.00 (2.00 to 2.00) times skip-locked",
        "- nodrop-postgres-across, 64 callers: 0.75 (0.75 to 0.75) times nodrop-postgres",
        "- nodrop-postgres-apart, 64 callers: 1.10 (1.10 to 1.10) times nodrop-postgres",
    ):
        assert said in page


def test_a_busy_machine_is_not_to_be_quoted() -> None:
    calm = results.made(Results(idle=IDLE))[PAGE]
    busy = msgspec.structs.replace(MACHINE, load_average=1.5)
    hurried = results.made(Results(idle=msgspec.structs.replace(IDLE, machine=busy)))[PAGE]
    assert "do not quote" not in calm
    assert "load average 1.5 before (**busy: do not quote**)" in hurried


def test_a_failed_round_is_on_the_page() -> None:
    lost = Sample(
        system="peer", load=MANY, round=2, measure=Measure(failure="1 of 3 cycles never came back")
    )
    report = Report(
        machine=MACHINE,
        rounds=2,
        window=Window(),
        about=ABOUT,
        versions={},
        absent={},
        samples=[sample("peer", 300), lost],
    )
    page = results.made(Results(peers=report))[PAGE]
    assert "- A <peer>, 64 callers, round 2: 1 of 3 cycles never came back" in page


def test_the_chart_has_a_bar_for_each_system_under_each_load() -> None:
    chart = parsed(results.made(Results(peers=REPORT))[CHART])
    words = [text.text for text in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("A <peer>") == 2
    assert words.count("Nodrop, WebSocket") == 1
    bars = list(chart.iter("{http://www.w3.org/2000/svg}rect"))[1:]  # the first is the paper
    ours, theirs, alone = (float(bar.attrib["width"]) for bar in bars)
    assert ours > theirs > alone
    # Decades are equally far apart: 3,000 to 300 as 300 to 30.
    assert ours - theirs == pytest.approx(theirs - alone, abs=0.2)


def test_a_chart_of_nothing_is_still_a_picture() -> None:
    report = Report(
        machine=MACHINE,
        rounds=1,
        window=Window(),
        about={},
        versions={},
        absent={},
        samples=[],
    )
    assert parsed(results.made(Results(peers=report))[CHART]).tag.endswith("svg")


def test_growth_on_postgresql_has_a_place_of_its_own(tmp_path: Path) -> None:
    there = msgspec.structs.replace(GROWTH, store="postgres", megabytes={0: 40, 1_000_000: 9_000})
    results.write(tmp_path, GROWTH)
    results.write(tmp_path, there)
    assert results.read(tmp_path) == Results(growth=GROWTH, growth_postgres=there)
    page = (tmp_path / PAGE).read_text()
    assert "## Growth\n" in page
    assert "## Growth on PostgreSQL\n" in page
    assert "| 1,000,000 | 9,000 |" in page


def test_a_run_renews_its_own_part_and_keeps_the_others(tmp_path: Path) -> None:
    assert results.read(tmp_path) == Results()
    for came in (REPORT, GROWTH, IDLE):
        results.write(tmp_path, came)
    assert results.read(tmp_path) == Results(peers=REPORT, growth=GROWTH, idle=IDLE)
    assert {file.name for file in tmp_path.iterdir()} == {DATA, PAGE, CHART}
