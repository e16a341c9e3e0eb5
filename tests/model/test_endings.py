"""Endings: cancelled, rejected, settled, redriven, discarded, each by whom it belongs to."""

import pytest

from nodrop.model import commands
from nodrop.model.commands import Candidate
from nodrop.model.errors import (
    AlreadyDecidedError,
    AlreadyFinishedError,
    AttemptRequiredError,
    ForbiddenError,
    NotFinishedError,
    StaleAttemptError,
    WrongStateError,
)
from nodrop.model.handoff import Decision, State
from nodrop.testing.play import OPERATOR, OTHER, RECIPIENT, REQUESTER, Play

LADDER = [
    "stored", "delivered", "acknowledged", "updated", "finished", "outcome_delivered", "settled",
]  # fmt: skip


def failed() -> Play:
    play = Play()
    play.do(commands.Fail(attempt=play.accept(), retryable=False, code="no_access"))
    return play


def test_the_ladder_is_climbed_rung_by_rung() -> None:
    play = Play()
    attempt = play.accept()
    play.do(commands.Update(attempt=attempt))
    play.do(commands.Complete(attempt=attempt, body=b"{}"))
    play.do(commands.Settle(), by=REQUESTER)
    assert [r.rung for r in play.h.receipts] == LADDER
    assert [r.by for r in play.h.receipts] == [
        "relay", "code_agent", "code_agent", "code_agent", "code_agent",
        "inbox_monitor", "inbox_monitor",
    ]  # fmt: skip


def test_settling_twice_changes_nothing() -> None:
    play = failed()
    play.do(commands.Settle(), by=REQUESTER)
    assert play.do(commands.Settle(), by=REQUESTER) == ()


def test_only_what_has_ended_can_be_settled_and_only_by_its_requester() -> None:
    play = Play()
    with pytest.raises(NotFinishedError):
        play.do(commands.Settle(), by=REQUESTER)
    with pytest.raises(ForbiddenError):
        failed().do(commands.Settle(), by=OTHER)


def test_a_requester_that_cancels_has_the_outcome_with_the_answer() -> None:
    play = Play()
    assert play.do(commands.Cancel(), by=REQUESTER) == ("Cancelled", "Settled")
    assert play.h.settled_at is not None


def test_a_person_that_cancels_leaves_the_outcome_to_the_requester() -> None:
    play = Play()
    assert play.do(commands.Cancel(), by=OPERATOR) == ("Cancelled",)


def test_the_holder_learns_of_the_cancellation_when_it_acts() -> None:
    play = Play()
    attempt = play.accept()
    play.do(commands.Cancel(), by=REQUESTER)
    with pytest.raises(AlreadyFinishedError):
        play.do(commands.Complete(attempt=attempt, body=b"{}"))


def test_a_delivery_must_be_named_once_there_is_one() -> None:
    play = Play()
    play.accept()
    with pytest.raises(AttemptRequiredError):
        play.do(commands.Complete(attempt=None, body=b"{}"))


def test_a_result_needs_an_acknowledgement_first() -> None:
    play = Play()
    attempt = play.deliver()
    with pytest.raises(WrongStateError) as refused:
        play.do(commands.Complete(attempt=attempt, body=b"{}"))
    assert "Acknowledge" in refused.value.next_step


def test_a_reassigned_handoff_is_lost_to_whoever_had_it() -> None:
    play = Play()
    attempt = play.accept()
    play.do(commands.Reassign(to=Candidate(agent="support_agent")), by=REQUESTER)
    assert (play.h.state, play.h.recipient, play.h.tries) == (State.OFFERED, "support_agent", 0)
    with pytest.raises(StaleAttemptError):
        play.do(commands.Complete(attempt=attempt, body=b"{}"), by=RECIPIENT)


def test_each_routed_candidate_is_asked_once() -> None:
    play = Play(routed=True, candidates=("code_agent", "support_agent", "code_agent"))
    play.do(commands.Reject(attempt=None), by=RECIPIENT)
    assert play.h.recipient == "support_agent"
    play.do(commands.Reject(attempt=None), by=OTHER)
    assert play.h.outcome is not None
    assert (play.h.state, play.h.outcome.code) == (State.REJECTED, "no_candidate")


def test_a_dead_letter_gets_one_decision() -> None:
    play = failed()
    assert play.do(commands.Redrive(successor="h2"), by=OPERATOR) == ("Redriven", "Settled")
    assert (play.h.decision, play.h.successor) == (Decision.REDRIVEN, "h2")
    for again in (commands.Redrive(successor="h3"), commands.Discard()):
        with pytest.raises(AlreadyDecidedError):
            play.do(again, by=OPERATOR)


def test_settlement_stops_the_clock_and_not_the_decision() -> None:
    play = failed()
    play.do(commands.Settle(), by=REQUESTER)
    assert play.h.timers == ()
    assert play.do(commands.Redrive(successor="h2"), by=REQUESTER) == ("Redriven",)


def test_what_was_cancelled_is_discarded_but_not_redriven() -> None:
    play = Play()
    play.do(commands.Cancel(), by=REQUESTER)
    with pytest.raises(WrongStateError):
        play.do(commands.Redrive(successor="h2"), by=OPERATOR)
    assert play.do(commands.Discard(), by=OPERATOR) == ("Discarded",)


def test_there_is_no_late_result_to_accept_where_none_came() -> None:
    with pytest.raises(WrongStateError):
        failed().do(commands.AcceptLate(successor="h2"), by=OPERATOR)


def test_a_step_is_recorded_once_whatever_is_recorded_again() -> None:
    play = Play()
    attempt = play.accept()
    step = commands.RecordStep(attempt=attempt, name="open-ticket", body=b"1")
    assert play.do(step) == ("StepRecorded",)
    assert play.do(step) == ()
    play.do(commands.Fail(attempt=attempt, retryable=True, code="exception"))
    again = play.accept()
    assert [s.name for s in play.h.steps] == ["open-ticket"]
    assert play.do(commands.RecordStep(attempt=again, name="open-ticket", body=b"2")) == ()
