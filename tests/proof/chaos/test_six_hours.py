import random
from pathlib import Path

import pytest

from nodrop_proof.chaos import six_hours, staff
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.six_hours import Chain, Leg
from nodrop_proof.chaos.staff import ASKS, FAILS, FORGETFUL

pytestmark = pytest.mark.timeout(300)  # real processes, on a machine that does other things too

ROUNDS_MAX = 10


@pytest.fixture(autouse=True)
def hours_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer processes, and no less trouble."""
    monkeypatch.setattr(six_hours, "PROCESSES", 2)
    monkeypatch.setattr(six_hours, "RELAY_KILL_SECONDS", (1.0, 3.0))
    monkeypatch.setattr(six_hours, "WORKER_KILL_SECONDS", (0.5, 1.5))


async def test_every_chain_is_complete_or_a_dead_letter_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(six_hours, "FAILS_SHARE", 0.15)
    monkeypatch.setattr(six_hours, "ASKS_SHARE", 0.15)
    plan = Plan(fault="six-hours", count=24, seed=11, folder=tmp_path, seconds=4)
    report = await six_hours.run(plan, lambda _done, _of: None)
    assert report.ok, report.findings
    assert report.acknowledged == report.extras["outcomes"] == 24
    assert report.extras["relay_kills"] > 0
    assert report.extras["worker_kills"] > 0
    assert report.extras["completed"] + report.extras["dead_letters"] == 24
    assert min(report.extras["completed"], report.extras["dead_letters"]) > 0
    assert report.extras["waits_for_the_person"] >= report.extras["dead_letters"]
    assert report.extras["entries_verified"] >= report.extras["entries"]


async def test_a_worker_that_forgets_its_steps_is_found(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(six_hours, "RELAY_KILL_SECONDS", (60.0, 60.0))
    monkeypatch.setattr(six_hours, "WORKER_KILL_SECONDS", (0.2, 0.6))
    for seed in range(ROUNDS_MAX):
        plan = Plan(
            fault="six-hours",
            count=24,
            seed=seed,
            folder=tmp_path_factory.mktemp("round"),
            seconds=3,
            controls=frozenset([FORGETFUL]),
        )
        if (await six_hours.run(plan, lambda _done, _of: None)).steps_rerun:
            return
    pytest.fail(f"nothing found in {ROUNDS_MAX} rounds: the check could not fail either")


def chain(*legs: Leg) -> Chain:
    return Chain(ask="a", at=0, legs=legs)


def test_what_becomes_of_a_chain_follows_from_its_legs() -> None:
    fine, fails, asks = (Leg(agent="a", fate=fate) for fate in (staff.FINE, FAILS, ASKS))
    rescue = Leg(agent="b", fallback=True)
    assert chain(fine, fine).ends == "completed"
    assert chain(fine, fails).ends == "failed"
    assert chain(fine, asks).ends == "expired"
    assert chain(fails, rescue, fine).ends == "completed"
    assert chain(fine, rescue, fails).ends == "failed"
    assert chain(asks, rescue, fails).ends == "failed"


def test_all_kinds_of_chains_are_drawn() -> None:
    drawn = list(six_hours.draw(2_000, random.Random(1), within=360.0))
    assert {len([leg for leg in c.legs if not leg.fallback]) for c in drawn} == {2, 3, 4}
    assert {c.ends for c in drawn} == {"completed", "failed", "expired"}
    saved = [c for c in drawn if c.ends == "completed" and any(g.fate != "fine" for g in c.legs)]
    assert saved, "some that fail have somebody behind them"
    assert all(c.legs[0].fate != ASKS for c in drawn), "its deadline would be the chain's"
    assert [c.at for c in drawn] == sorted(c.at for c in drawn)
