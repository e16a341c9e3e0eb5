"""Storms, hot spots and bottlenecks stand out from what is usual, each beside a control."""

from collections.abc import Callable

import pytest

from kit.small_log import Log
from nodrop.analysis.detectors import load
from nodrop.analysis.findings import Finding

MINUTE = 60_000


def found(log: Log, detector: str) -> list[Finding]:
    return [f for f in load.detect(log.record).findings if f.detector == detector]


def steady(log: Log, *, retried: Callable[[int, int], int], hours: int = 24) -> None:
    """Thirty handoffs an hour for one capability; `retried(hour, n)` says with how many attempts."""
    for hour in range(hours):
        for n in range(30):
            handoff = log.offer("x", f"a{n % 5}", chain=f"{hour}/{n}", capability="fetch")
            log.do(handoff, attempts=retried(hour, n))


def usually(hour: int, n: int) -> int:
    return 1 + (hour < 0 or n < 0)


def test_an_hour_of_retries_is_a_storm(log: Log) -> None:
    steady(log, retried=lambda hour, _: 3 if hour == 12 else 1)
    [finding] = found(log, "retry-storm")
    assert finding.subject.startswith("fetch from ")
    assert 12 * 55 * MINUTE < finding.since < 14 * 65 * MINUTE
    assert finding.effect["share"] > 0.5


def test_a_steady_few_retries_are_none(log: Log) -> None:
    steady(log, retried=lambda hour, n: 2 if (hour + n) % 15 == 0 else 1)
    assert not found(log, "retry-storm")


def test_more_work_with_the_usual_retries_is_none(log: Log) -> None:
    steady(log, retried=usually)
    for n in range(300):
        log.do(log.offer("x", "a1", chain=f"more/{n}", capability="fetch"), attempts=1)
    assert not found(log, "retry-storm")


@pytest.mark.parametrize(("burst", "storms"), [(40, 1), (4, 0)])
def test_escalations_in_a_row_are_a_storm(log: Log, burst: int, storms: int) -> None:
    handoff = log.offer("x", "a", capability="fetch")
    for n in range(240):
        log.tick()
        if n % 60 == 0:
            log.record.escalate(handoff, seq=log.seq, at=log.at)
    for _ in range(burst):
        log.tick(6_000)
        log.record.escalate(handoff, seq=log.seq, at=log.at)
    for _ in range(240):
        log.tick()
    assert len(found(log, "escalation-storm")) == storms


@pytest.mark.parametrize(("share", "spots"), [(60, ["a0 for fetch"]), (25, [])])
def test_an_agent_with_most_of_the_work_of_its_peers_is_a_hot_spot(
    log: Log, share: int, spots: list[str]
) -> None:
    for n in range(100):
        whom = "a0" if n < share else f"a{1 + n % 7}"
        log.do(log.offer("x", whom, chain=str(n), capability="fetch"))
    assert [f.subject for f in found(log, "hot-spot")] == spots


def test_an_agent_that_all_wait_for_is_a_bottleneck(log: Log) -> None:
    for n in range(12):
        for agent in ("quick_1", "quick_2", "slow"):
            handoff = log.offer("x", agent, chain=f"{n}/{agent}", capability="fetch")
            if agent == "slow":
                log.tick(20 * MINUTE)
            log.record.accept(handoff, seq=log.seq, at=log.at)
            if agent == "slow":
                log.tick(400 * MINUTE)
            log.do(handoff)
    assert [f.subject for f in found(log, "bottleneck")] == ["slow for fetch"]


def test_the_same_work_in_several_chains_at_once_is_done_twice(log: Log) -> None:
    both = [log.offer("x", "a", chain="one", digest=7), log.offer("y", "b", chain="two", digest=7)]
    for handoff in both:
        log.do(handoff)
    [finding] = found(log, "duplicated-effort")
    assert finding.agents == ("a", "b")


def test_the_same_work_one_after_the_other_is_a_schedule(log: Log) -> None:
    for chain in ("one", "two", "three"):
        log.do(log.offer("x", "a", chain=chain, digest=7))
    assert not found(log, "duplicated-effort")
