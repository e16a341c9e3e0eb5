"""Loops are found along the path of a chain, and nowhere else."""

import pytest

from kit.small_log import Log
from nodrop.analysis.detectors import paths
from nodrop.analysis.findings import Finding, Severity


def found(log: Log, detector: str) -> list[Finding]:
    return [f for f in paths.detect(log.record).findings if f.detector == detector]


def test_a_b_a_b_a_is_a_ping_pong_with_its_entries(log: Log) -> None:
    log.path("xababa")
    [finding] = found(log, "ping-pong")
    assert finding.subject == "c"
    assert finding.agents == ("a", "b")
    assert finding.effect == {"hops": 4}
    assert finding.severity is Severity.MEDIUM
    offered = log.record.hops["seq"]
    assert finding.evidence == tuple(offered[1:])
    assert finding.action == "nodrop cancel h4"


@pytest.mark.parametrize("line", ["xabab", "xabcabc", "xabcba"])
def test_one_round_of_rework_is_none(log: Log, line: str) -> None:
    log.path(line)
    assert not found(log, "ping-pong")


def test_eight_hops_in_a_row_are_severe(log: Log) -> None:
    log.path("xababababa")
    assert [f.severity for f in found(log, "ping-pong")] == [Severity.HIGH]


def test_a_chain_that_comes_to_one_agent_four_times_is_a_loop(log: Log) -> None:
    log.path("xabcabcabca")
    [finding] = found(log, "loop")
    assert finding.effect["visits"] == 4
    assert set(finding.agents) == {"a", "b", "c"}


def test_three_visits_are_none(log: Log) -> None:
    log.path("xabcabca")
    assert not found(log, "loop")


def test_ten_items_for_one_worker_are_a_map_and_no_loop(log: Log) -> None:
    for n in range(10):
        log.do(log.offer("x", "a", digest=n))
    assert not paths.detect(log.record).findings


def test_an_agent_that_is_asked_for_something_else_is_another_visit(log: Log) -> None:
    for n, capability in enumerate(["plan", "write", "check", "publish"]):
        log.do(log.offer("x" if n == 0 else "a", "a", capability=capability, digest=n))
    assert not found(log, "loop")


def test_a_redrive_is_no_further_visit(log: Log) -> None:
    for n in range(6):
        log.do(log.offer("x", "a", again=n > 0, digest=7))
    assert not paths.detect(log.record).findings


def test_the_same_payload_along_a_path_is_a_livelock_and_told_once(log: Log) -> None:
    log.path("xababab", digest=7)
    assert [f.detector for f in paths.detect(log.record).findings] == ["livelock"]


def test_the_same_payload_with_the_same_result_each_time_is_a_livelock(log: Log) -> None:
    for _ in range(3):
        log.do(log.offer("x", "a", digest=7), result=9)
    [finding] = found(log, "livelock")
    assert finding.effect == {"repeats": 3}


def test_polling_with_another_result_each_time_is_none(log: Log) -> None:
    for n in range(6):
        log.do(log.offer("x", "a", digest=7), result=n)
    assert not paths.detect(log.record).findings


def test_a_vote_on_the_same_payload_at_the_same_time_is_none(log: Log) -> None:
    votes = [log.offer("x", agent, digest=7) for agent in "aaa"]
    for vote in votes:
        log.do(vote, result=9)
    assert not found(log, "livelock")


def test_without_payloads_the_report_says_that_livelock_was_not_looked_for(log: Log) -> None:
    log.offer("x", "a")
    [told] = paths.detect(log.record).too_little
    assert (told.detector, told.subject) == ("livelock", "log")
    log.path("xab", digest=7)
    assert not paths.detect(log.record).too_little


def test_two_chains_do_not_make_one_loop(log: Log) -> None:
    log.path("xaba", chain="one")
    log.path("xbab", chain="two")
    assert not paths.detect(log.record).findings
