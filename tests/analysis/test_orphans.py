"""A chain is orphaned where nobody carries it on, and the leg is named."""

from kit.small_log import Log
from nodrop.analysis import record as records
from nodrop.analysis.detectors import orphans
from nodrop.analysis.findings import Finding, Severity

HOUR = 60 * 60_000


def only(log: Log) -> Finding:
    [finding] = orphans.detect(log.record).findings
    return finding


def test_work_that_was_taken_on_and_never_finished(log: Log) -> None:
    handoff = log.offer("x", "a", deadline=HOUR)
    log.record.accept(handoff, **log.tick())
    log.tick(2 * HOUR)
    finding = only(log)
    assert finding.agents == ("a",)
    assert "a took it on, and nothing came" in finding.says
    assert finding.severity is Severity.MEDIUM
    assert finding.evidence == (1, 2)


def test_what_was_never_taken_is_the_trouble_of_the_queue(log: Log) -> None:
    log.offer("x", "a", deadline=HOUR)
    log.tick(2 * HOUR)
    assert only(log).severity is Severity.LOW


def test_a_question_that_was_never_answered_is_the_senders(log: Log) -> None:
    handoff = log.offer("x", "a", deadline=HOUR)
    log.record.ask(handoff, **log.tick(), counter=False)
    log.tick(2 * HOUR)
    assert only(log).agents == ("x",)


def test_a_result_that_nobody_collects(log: Log) -> None:
    log.do(log.offer("x", "a", deadline=HOUR), settle=False)
    log.tick(40 * HOUR)
    assert only(log).agents == ("x",)


def test_what_expired_names_the_silent_one(log: Log) -> None:
    handoff = log.offer("x", "a", deadline=HOUR)
    log.record.accept(handoff, **log.tick())
    log.record.end(handoff, **log.tick(HOUR), outcome=records.EXPIRED)
    log.tick(40 * HOUR)
    finding = only(log)
    assert finding.agents == ("a",)
    assert "until the deadline; nobody decided since" in finding.says


def test_what_is_still_in_time_settled_decided_or_cancelled_is_none(log: Log) -> None:
    log.offer("x", "a", chain="in time", deadline=100 * HOUR)
    log.do(log.offer("x", "a", chain="settled", deadline=HOUR))
    decided = log.offer("x", "a", chain="decided", deadline=HOUR)
    log.record.end(decided, **log.tick(), outcome=records.FAILED)
    log.record.decide(decided, **log.tick())
    log.record.end(
        log.offer("x", "a", chain="off", deadline=HOUR), **log.tick(), outcome=records.CANCELLED
    )
    log.tick(50 * HOUR)
    assert not orphans.detect(log.record).findings


def test_without_deadlines_it_cannot_tell(log: Log) -> None:
    log.offer("x", "a")
    log.tick(1_000 * HOUR)
    told = orphans.detect(log.record)
    assert not told.findings
    assert [each.detector for each in told.too_little] == ["orphan"]
