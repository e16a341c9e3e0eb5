"""What rounds add up to, on samples made by hand."""

import pytest

from nodrop_proof.bench.driving import Measure, Window
from nodrop_proof.bench.figures import Spread
from nodrop_proof.bench.growth import Growth, GrowthSample
from nodrop_proof.bench.machine import Machine
from nodrop_proof.bench.report import Line, Report, Sample
from nodrop_proof.bench.system import MANY, ONE, About, Load

MACHINE = Machine(
    processor="abacus", cores=2, system="Linux", python="3", sync_p50_ms=1.0, load_average=0.5
)
OURS, FAST, SLOW = "nodrop-websocket", "fast", "slow"


def measure(cycles: int, *, p99_ms: float = 10.0, failure: str | None = None) -> Measure:
    if failure is not None:
        return Measure(failure=failure)
    return Measure(cycles=cycles, seconds=2.0, p50_ms=5.0, p99_ms=p99_ms, cpu_seconds=1.0)


def sample(system: str, number: int, cycles: int, load: Load = MANY) -> Sample:
    return Sample(system=system, load=load, round=number, measure=measure(cycles))


def report(*samples: Sample) -> Report:
    about = {
        name: About(title=name, durability="", cycle="", ours=name == OURS)
        for name in (OURS, FAST, SLOW)
    }
    return Report(
        machine=MACHINE,
        rounds=2,
        window=Window(),
        about=about,
        versions={},
        absent={},
        samples=samples,
    )


TWO_ROUNDS = (
    sample(OURS, 1, 2_000),  # 1,000 cycles/s
    sample(FAST, 1, 500),  # 250
    sample(SLOW, 1, 100),  # 50
    sample(OURS, 2, 1_200),  # 600
    sample(FAST, 2, 400),  # 200
    sample(SLOW, 2, 120),  # 60
)


def line(found: Report, system: str, load: Load = MANY) -> Line:
    (only,) = [each for each in found.lines() if (each.system, each.load) == (system, load)]
    return only


def test_rates_are_medians_over_rounds() -> None:
    assert line(report(*TWO_ROUNDS), OURS).rate == Spread(median=800.0, low=600.0, high=1_000.0)


def test_processor_time_is_per_cycle() -> None:
    # One second in each round: over 2,000 and 1,200 cycles.
    spent = line(report(*TWO_ROUNDS), OURS).cpu_ms
    assert spent is not None
    assert spent.low == pytest.approx(0.5)
    assert spent.high == pytest.approx(0.8333, abs=1e-4)


def test_peers_are_held_against_us_round_by_round() -> None:
    found = report(*TWO_ROUNDS)
    assert line(found, FAST).ours_over_it == {OURS: Spread(median=3.5, low=3.0, high=4.0)}
    assert line(found, SLOW).ours_over_it == {OURS: Spread(median=15.0, low=10.0, high=20.0)}
    assert line(found, OURS).ours_over_it == {}


def test_the_fastest_peer_is_none_of_ours() -> None:
    best = report(*TWO_ROUNDS).best_peer(MANY)
    assert best is not None
    assert best.system == FAST
    assert report(*TWO_ROUNDS).best_peer(ONE) is None


def test_lines_come_by_load_the_fastest_first() -> None:
    found = report(*TWO_ROUNDS, sample(SLOW, 1, 10, ONE), sample(FAST, 1, 20, ONE))
    order = [(each.load.callers, each.system) for each in found.lines()]
    assert order == [(1, FAST), (1, SLOW), (64, OURS), (64, FAST), (64, SLOW)]


def test_a_round_with_a_lost_cycle_is_a_failure_and_no_speed() -> None:
    lost = Sample(
        system=FAST, load=MANY, round=3, measure=measure(0, failure="1 of 9 cycles never came back")
    )
    found = report(*TWO_ROUNDS, sample(OURS, 3, 5_000), lost)
    assert not found.ok
    assert line(found, FAST).failures == ("round 3: 1 of 9 cycles never came back",)
    assert line(found, FAST).rate == line(report(*TWO_ROUNDS), FAST).rate
    assert line(found, FAST).ours_over_it == line(report(*TWO_ROUNDS), FAST).ours_over_it


def test_a_system_that_never_finished_a_round_has_no_figures() -> None:
    failed = Sample(system=FAST, load=MANY, round=1, measure=measure(0, failure="gone"))
    found = report(sample(OURS, 1, 10), failed)
    assert line(found, FAST).rate is None
    assert found.best_peer(MANY) is None


def test_a_run_without_failures_is_ok() -> None:
    document = report(*TWO_ROUNDS).document()
    assert document["ok"] is True
    assert len(document["samples"]) == 6
    assert document["lines"][0]["rate"] == {"median": 800.0, "low": 600.0, "high": 1_000.0}


# --- growth ---


def grown(past: int, number: int, cycles: int, failure: str | None = None) -> GrowthSample:
    return GrowthSample(
        past=past, load=MANY, round=number, measure=measure(cycles, failure=failure)
    )


def test_stores_are_held_against_the_one_with_the_least_past() -> None:
    found = Growth(
        machine=MACHINE,
        rounds=2,
        window=Window(),
        megabytes={0: 1, 1_000: 7},
        samples=[grown(0, 1, 1_000), grown(1_000, 1, 900), grown(1_000, 2, 400), grown(0, 2, 800)],
    )
    empty, full = found.lines()
    assert (empty.past, full.past) == (0, 1_000)
    assert empty.over_least == Spread(median=1.0, low=1.0, high=1.0)
    assert full.over_least is not None
    assert full.over_least.low == 0.5
    assert full.over_least.high == 0.9
    assert found.ok


def test_a_store_that_loses_a_cycle_fails_the_run() -> None:
    found = Growth(
        machine=MACHINE,
        rounds=1,
        window=Window(),
        megabytes={0: 1},
        samples=[grown(0, 1, 0, failure="lost")],
    )
    assert not found.ok
    assert found.lines()[0].failures == ("round 1: lost",)
    assert found.document()["megabytes"] == {"0": 1}
