"""The checker against logs that were doctored: whatever it is for, it must find."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from nodrop_proof.chaos.check import Checker, Verdict
from nodrop_proof.chaos.crew import HEARTBEAT_SECONDS
from nodrop_proof.chaos.record import AnyLine, Asked, Ran, Recorded, Refused, Stored, Told

Line = dict[str, Any]

STEP = "step-0"


def entry(handoff_id: str, event: str, correlation_id: str = "ask-1", **data: Any) -> Line:
    return {
        "team": "default",
        "at": 1_000,
        "type": f"handoff.{event}.v1",
        "actor": "a",
        "handoff_id": handoff_id,
        "version": None,
        "correlation_id": correlation_id,
        "command_id": None,
        "data": data,
        "body_digest": None,
    }


def offered(handoff_id: str, ask: str = "ask-1", key: str | None = "ask-1", **data: Any) -> Line:
    return entry(handoff_id, "offered", ask, sender="caller", key=key, **data)


def chained(lines: Iterable[Line]) -> list[Line]:
    """The lines as a log of their own, chained with nothing but the standard library."""
    previous = "0" * 64
    log: list[Line] = []
    for seq, line in enumerate(lines, start=1):
        sealed = line | {"seq": seq, "prev_hash": previous}
        written = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
        previous = hashlib.sha256(written.encode()).hexdigest()
        log.append(sealed | {"hash": previous})
    return log


LOG = (
    offered("h1"),
    entry("h1", "delivered", attempt=1),
    entry("h1", "step_recorded", attempt=1, name=STEP),
    entry("h1", "completed", attempt=1),
    entry("h1", "settled"),
)
RECORDS: tuple[AnyLine, ...] = (
    Asked(ask="ask-1"),
    Stored(ask="ask-1", handoff_id="h1"),
    Ran(handoff_id="h1", step=STEP, attempt=1),
    Recorded(handoff_id="h1", step=STEP, attempt=1),
    Told(ask="ask-1", state="completed", result={"ask": "ask-1", "attempt": 1}),
)
"""What a caller and a worker write down of the same handoff."""


def view(handoff_id: str, state: str, *, holder: str | None = "b") -> Line:
    return {"id": handoff_id, "state": state, "holder": holder, "due_at": holder and "2026"}


def judged(
    log: Iterable[Line] = LOG,
    records: Iterable[AnyLine] = RECORDS,
    shown: Sequence[Line] = (),
) -> Verdict:
    checker = Checker()
    checker.read_records(records)
    lines = chained(log)
    checker.read_log(lines[:2])
    checker.read_log(lines[2:])
    checker.read_shown(shown)
    return checker.verdict()


def counts(verdict: Verdict) -> tuple[int, int, int, int]:
    kinds = (verdict.lost, verdict.duplicated, verdict.steps_rerun, verdict.wrong)
    lost, duplicated, steps_rerun, wrong = map(len, kinds)
    return lost, duplicated, steps_rerun, wrong


def without(event: str) -> list[Line]:
    return [line for line in LOG if line["type"] != f"handoff.{event}.v1"]


def test_what_adds_up_is_not_found_fault_with() -> None:
    verdict = judged()
    assert counts(verdict) == (0, 0, 0, 0)
    assert verdict.acknowledged == 1
    assert verdict.figures["outcomes"] == 1
    assert verdict.figures["entries"] == len(LOG)


def test_what_was_asked_and_never_answered_is_neither_lost_nor_kept() -> None:
    unknown = Asked(ask="ask-2", waits=False)
    assert counts(judged(records=(*RECORDS, unknown))) == (0, 0, 0, 0)


# --- lost ---------------------------------------------------------------------------------------


def test_a_stored_handoff_that_the_log_does_not_have_is_lost() -> None:
    verdict = judged(log=(), records=RECORDS[:2])
    assert verdict.lost == ("ask-1: answered as stored; the log has no offer of h1",)


def test_an_open_handoff_that_nobody_owes_is_lost() -> None:
    log, records = LOG[:1], (Asked(ask="ask-1", waits=False), RECORDS[1])
    kept = judged(log, records, shown=[view("h1", "offered")])
    assert counts(kept) == (0, 0, 0, 0)
    for shown in ([], [view("h1", "offered", holder=None)]):
        assert judged(log, records, shown).lost == ("h1: neither open nor ended",)


def test_an_outcome_that_was_told_and_is_not_in_the_log_is_lost() -> None:
    verdict = judged(without("completed"), shown=[view("h1", "accepted")])
    assert verdict.lost == ("ask-1: told as completed; the log has no outcome",)


def test_a_settlement_that_is_not_in_the_log_is_lost() -> None:
    verdict = judged(without("settled"), shown=[view("h1", "completed")])
    assert verdict.lost == ("ask-1: settled by its caller; the log does not say so",)


def test_a_recorded_step_that_is_not_in_the_log_is_lost() -> None:
    verdict = judged(without("step_recorded"))
    assert verdict.lost == ("h1: told that step-0 is recorded; the log does not say so",)


def test_a_handoff_whose_offer_is_gone_is_lost() -> None:
    verdict = judged(without("offered"))
    assert "h1: its offer is gone" in verdict.lost


def test_a_next_leg_that_was_never_stored_is_lost() -> None:
    log = [offered("h1", legs=[{"to": "b"}]), *LOG[1:]]
    assert judged(log).lost == ("h1: its next leg was never stored",)
    gone = [*log[:-1], entry("h1", "settled", next_leg="h2")]
    assert judged(gone).lost == ("h1: its next leg h2 is gone",)


# --- duplicated ---------------------------------------------------------------------------------


def second(handoff_id: str = "h2", **data: Any) -> list[Line]:
    """Another handoff, from its offer to its end."""
    rest = [line | {"handoff_id": handoff_id} for line in LOG[1:]]
    return [offered(handoff_id, **data), *rest]


def test_two_handoffs_for_one_key_are_a_duplicate() -> None:
    verdict = judged((*LOG, *second(ask="ask-2")))
    assert verdict.duplicated == ("caller/ask-1: h2 is also h1",)


def test_two_handoffs_for_one_ask_are_a_duplicate_even_without_a_key() -> None:
    verdict = judged((*LOG, *second(key=None)))
    assert verdict.duplicated == ("ask-1/leg 0: h2 is also h1",)


def test_a_duplicate_that_nobody_asks_about_does_not_make_the_other_lost() -> None:
    verdict = judged((*LOG, *second(key=None)[:-1]), shown=[view("h2", "completed")])
    assert verdict.duplicated == ("ask-1/leg 0: h2 is also h1",)
    assert verdict.lost == ()


def test_a_redriven_handoff_and_its_successor_are_no_duplicates() -> None:
    log = [
        line if line["type"] != "handoff.completed.v1" else entry("h1", "failed") for line in LOG
    ]
    assert judged((*log, *second(redrive_of="h1"))).duplicated == ()


def test_the_legs_of_one_chain_are_no_duplicates() -> None:
    first = [offered("h1", legs=[{"to": "b"}]), *LOG[1:4], entry("h1", "settled", next_leg="h2")]
    leg: dict[str, Any] = {"key": None, "legs_done": [{"id": "h1"}]}
    assert counts(judged((*first, *second(**leg)))) == (0, 0, 0, 0)
    assert judged((*first, *second(**leg), *second("h3", **leg))).duplicated == (
        "ask-1/leg 1: h3 is also h2",
    )


def test_one_ask_stored_as_two_handoffs_is_a_duplicate() -> None:
    again = Stored(ask="ask-1", handoff_id="h2")
    log = (*LOG, *second(ask="ask-2", key=None))
    assert judged(log, (*RECORDS, again)).duplicated == ("ask-1: stored as h1 and as h2",)


@pytest.mark.parametrize("event", ["completed", "failed", "rejected", "expired", "cancelled"])
def test_two_outcomes_for_one_handoff_are_a_duplicate(event: str) -> None:
    again = entry("h1", event, attempt=1)
    assert judged((*LOG, again)).duplicated == (f"h1: {event} after completed",)


def test_an_outcome_told_otherwise_than_logged_is_a_duplicate() -> None:
    told = Told(ask="ask-1", state="failed")
    assert judged(records=(*RECORDS[:-1], told)).duplicated == (
        "ask-1: its outcome is completed and failed",
    )


def test_a_result_of_a_superseded_attempt_is_a_duplicate() -> None:
    taken_over = entry("h1", "delivered", attempt=2)
    logged = judged((*LOG[:3], taken_over, *LOG[3:]))
    assert "h1: completed by attempt 1 while 2 had it" in logged.duplicated
    as_if_it_were_two = entry("h1", "completed", attempt=2)
    told = judged((*LOG[:3], taken_over, as_if_it_were_two, LOG[4]))
    assert told.duplicated == ("ask-1: the result is attempt 1's, while 2 had it",)


# --- run again ----------------------------------------------------------------------------------


def test_a_step_that_is_recorded_twice_was_run_again() -> None:
    again = entry("h1", "step_recorded", attempt=1, name=STEP)
    assert judged((*LOG, again)).steps_rerun == ("h1: step-0 recorded again by attempt 1",)


def test_a_recorded_step_that_a_later_attempt_runs_was_run_again() -> None:
    log = [*LOG[:3], entry("h1", "delivered", attempt=2), *LOG[3:]]
    ran = Ran(handoff_id="h1", step=STEP, attempt=2)
    assert judged(log, (*RECORDS, ran)).steps_rerun == ("h1: step-0 run again by attempt 2",)
    # The worker died before it could write down that the step is recorded; the log knows.
    unsaid = [line for line in RECORDS if not isinstance(line, Recorded)]
    assert judged(log, (*unsaid, ran)).steps_rerun == ("h1: step-0 run again by attempt 2",)


def test_a_recorded_step_that_the_same_attempt_runs_again_is_found() -> None:
    ran = Ran(handoff_id="h1", step=STEP, attempt=1)
    assert judged(records=(*RECORDS, ran)).steps_rerun == ("h1: step-0 run again by attempt 1",)


def test_an_effect_repeats_if_its_worker_died_before_the_record() -> None:
    log = [
        offered("h1"),
        entry("h1", "delivered", attempt=1),
        entry("h1", "delivered", attempt=2),
        entry("h1", "step_recorded", attempt=2, name=STEP),
        entry("h1", "completed", attempt=2),
        entry("h1", "settled"),
    ]
    records = [
        *RECORDS[:3],
        Ran(handoff_id="h1", step=STEP, attempt=2),
        Recorded(handoff_id="h1", step=STEP, attempt=2),
        Told(ask="ask-1", state="completed", result={"ask": "ask-1", "attempt": 2}),
    ]
    verdict = judged(log, records)
    assert counts(verdict) == (0, 0, 0, 0)
    assert verdict.figures["effects_repeated"] == 1
    # The first attempt stood still, and goes on now that the step is recorded.
    stalled = Ran(handoff_id="h1", step=STEP, attempt=1)
    again = judged(log, [*records, stalled])
    assert again.steps_rerun == ("h1: step-0 run again by attempt 1",)
    # It stood still inside the step: that no check before it can prevent.
    inside = Ran(handoff_id="h1", step=STEP, attempt=1, after_seconds=HEARTBEAT_SECONDS)
    excused = judged(log, [*records, inside])
    assert counts(excused) == (0, 0, 0, 0)
    assert excused.figures["effects_stalled"] == 1


# --- wrong --------------------------------------------------------------------------------------


def test_an_entry_that_was_taken_out_breaks_the_chain() -> None:
    checker = Checker()
    checker.read_records(RECORDS)
    lines = chained(LOG)
    checker.read_log([*lines[:2], *lines[3:]])
    verdict = checker.verdict()
    assert verdict.wrong == ("at 4: entry 3 is missing",)
    assert len(verdict.lost) == 1


def test_an_entry_that_was_changed_breaks_the_chain() -> None:
    checker = Checker()
    lines = chained(LOG)
    lines[1] = lines[1] | {"data": {"attempt": 7}}
    checker.read_log(lines)
    assert "at 2: was changed after it was written" in checker.verdict().wrong


def test_a_caller_without_an_outcome_is_wrong() -> None:
    verdict = judged(LOG[:1], RECORDS[:2], shown=[view("h1", "offered")])
    assert verdict.wrong == ("ask-1: stored, and its caller never had an outcome",)


def test_a_caller_that_was_refused_is_wrong() -> None:
    refused = Refused(ask="ask-2", code="idempotency_conflict")
    verdict = judged(records=(*RECORDS, Asked(ask="ask-2"), refused))
    assert verdict.wrong == ("ask-2: refused as idempotency_conflict",)


def test_somebody_elses_result_is_wrong() -> None:
    told = Told(ask="ask-1", state="completed", result={"ask": "ask-7", "attempt": 1})
    verdict = judged(records=(*RECORDS[:-1], told))
    assert verdict.wrong == ("ask-1: its result is {'ask': 'ask-7', 'attempt': 1}",)


def test_a_relay_that_shows_something_else_than_its_log_is_wrong() -> None:
    verdict = judged(shown=[view("h1", "failed", holder=None)])
    assert verdict.wrong == ("h1: the log says completed, the relay failed",)


def test_an_outcome_that_nobody_is_asked_to_settle_is_wrong() -> None:
    log, records = without("settled"), RECORDS[:4]
    stays = (Asked(ask="ask-1", waits=False), *records[1:])
    assert counts(judged(log, stays, shown=[view("h1", "completed")])) == (0, 0, 0, 0)
    verdict = judged(log, stays, shown=[view("h1", "completed", holder=None)])
    assert verdict.wrong == ("h1: completed, and nobody owes its settlement",)


def test_findings_of_two_relays_are_added() -> None:
    both = judged() + judged(log=(), records=RECORDS[:2])
    assert both.acknowledged == 2
    assert len(both.lost) == 1
    assert both.figures["entries"] == len(LOG)
