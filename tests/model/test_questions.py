"""Questions and counters: who owes the next move, and what becomes of the attempt that asked."""

import pytest

from nodrop.model import commands, events
from nodrop.model.commands import RELAY, Candidate
from nodrop.model.errors import (
    AlreadyBlockedError,
    ForbiddenError,
    InvalidRequestError,
    StaleAttemptError,
    StaleQuestionError,
    WrongStateError,
)
from nodrop.model.handoff import ClockName, Proposal, QuestionKind, State
from nodrop.model.limits import DAY, HOUR, MINUTE
from nodrop.model.mail import items
from nodrop.protocol.showing import holder
from nodrop.testing.play import OPERATOR, OTHER, RECIPIENT, REQUESTER, T0, Play

LONGER = Proposal(deadline_at=T0 + 2 * DAY, update_every_ms=HOUR)


def answer(question: int) -> commands.AnswerQuestion:
    return commands.AnswerQuestion(question=question, body=b'{"answer":"1.2"}')


def test_a_live_question_wakes_the_attempt_that_asked() -> None:
    play = Play()
    attempt = play.accept()
    question = play.ask(attempt)
    assert holder(play.h) == "inbox_monitor"
    assert play.do(answer(question), by=REQUESTER) == ("Answered", "Resumed")
    assert (play.h.state, play.h.attempt, play.h.live) == (State.ACCEPTED, attempt, True)


def test_a_parked_question_brings_the_handoff_back_to_the_inbox() -> None:
    play = Play()
    attempt = play.accept()
    question = play.ask(attempt, park=True)
    assert play.h.parked
    with pytest.raises(StaleAttemptError):
        play.do(commands.Update(attempt=attempt))
    assert play.do(answer(question), by=REQUESTER) == ("Answered", "Returned")
    assert (play.h.state, play.h.tries) == (State.OFFERED, 0)


def test_a_lapsed_lease_only_parks_a_question_and_uses_no_try() -> None:
    play = Play()
    question = play.ask(play.accept())
    assert play.do(commands.LapseLease(process="p1"), by=RELAY) == ("Parked",)
    assert (play.h.state, play.h.tries) == (State.BLOCKED, 0)
    assert play.do(answer(question), by=REQUESTER) == ("Answered", "Returned")


def test_a_release_only_parks_a_question() -> None:
    play = Play()
    attempt = play.accept()
    play.ask(attempt)
    assert play.do(commands.Release(attempt=attempt)) == ("Parked",)
    assert play.h.releases == 0


def test_there_is_one_open_question_at_a_time() -> None:
    play = Play()
    attempt = play.accept()
    play.ask(attempt)
    with pytest.raises(AlreadyBlockedError):
        play.ask(attempt)
    with pytest.raises(AlreadyBlockedError):
        play.do(commands.Counter(attempt=attempt, proposal=LONGER))


def test_the_first_answer_counts() -> None:
    play = Play()
    question = play.ask(play.accept(), asked="support_agent")
    play.do(answer(question), by=OTHER)
    with pytest.raises(StaleQuestionError):
        play.do(answer(question), by=REQUESTER)


@pytest.mark.parametrize("actor", [OTHER, REQUESTER, OPERATOR], ids=lambda a: a.agent)
def test_the_asked_the_requester_or_a_person_may_answer(actor: commands.Actor) -> None:
    play = Play()
    question = play.ask(play.accept(), asked="support_agent")
    assert play.do(answer(question), by=actor)


def test_a_bystander_may_not_answer() -> None:
    play = Play()
    question = play.ask(play.accept())
    with pytest.raises(ForbiddenError):
        play.do(answer(question), by=OTHER)


def test_an_exit_withdraws_the_question_and_remembers_whom_to_tell() -> None:
    play = Play()
    play.ask(play.accept(), asked="support_agent")
    play.do(commands.Cancel(), by=REQUESTER)
    assert play.h.question is None
    assert play.h.withdrawn is not None
    assert play.h.withdrawn.asked == "support_agent"


def test_agreed_terms_hold_and_are_the_acceptance() -> None:
    play = Play()
    assert play.do(commands.Counter(attempt=None, proposal=LONGER)) == ("Delivered", "Blocked")
    assert play.h.question is not None
    assert (play.h.question.kind, holder(play.h)) == (QuestionKind.TERMS, "inbox_monitor")
    agree = commands.Agree(question=play.h.question.version)
    assert play.do(agree, by=REQUESTER) == ("Agreed", "Resumed")
    assert (play.h.state, play.h.terms.update_every_ms) == (State.ACCEPTED, HOUR)
    assert play.running(ClockName.DEADLINE) == 2 * DAY
    assert [r.rung for r in play.h.receipts] == ["stored", "delivered", "acknowledged"]


def test_declined_terms_end_a_named_handoff() -> None:
    play = Play()
    play.do(commands.Counter(attempt=None, proposal=LONGER))
    assert play.h.question is not None
    decline = commands.Decline(question=play.h.question.version)
    assert play.do(decline, by=REQUESTER) == ("Rejected",)


def test_declined_terms_move_a_routed_handoff_on() -> None:
    play = Play(routed=True, candidates=("code_agent", "support_agent"))
    play.do(commands.Counter(attempt=None, proposal=LONGER))
    assert play.h.question is not None
    play.do(commands.Decline(question=play.h.question.version), by=REQUESTER)
    assert (play.h.recipient, play.h.state) == ("support_agent", State.OFFERED)


def test_the_accept_clock_runs_on_while_terms_are_discussed() -> None:
    play = Play()
    play.pass_time(5 * MINUTE)
    play.do(commands.Counter(attempt=None, proposal=LONGER))
    assert play.running(ClockName.ACCEPT) == 15 * MINUTE


def test_the_reminder_that_nobody_accepted_is_for_who_has_to_agree() -> None:
    play = Play()
    play.do(commands.Counter(attempt=None, proposal=LONGER))
    assert play.pass_time(15 * MINUTE) == ("Nudged",)
    nudged = play.events[-1]
    assert isinstance(nudged, events.Nudged)
    assert (nudged.clock, nudged.to) == (ClockName.ACCEPT, play.h.origin)


def test_a_question_is_not_agreed_to_and_terms_are_not_answered() -> None:
    play = Play()
    question = play.ask(play.accept())
    with pytest.raises(InvalidRequestError) as refused:
        play.do(commands.Agree(question=question), by=REQUESTER)
    assert "answer" in refused.value.next_step


def test_a_blocked_recipient_may_still_update_and_finish() -> None:
    play = Play()
    attempt = play.accept()
    play.ask(attempt)
    assert play.do(commands.Update(attempt=attempt)) == ("Updated",)
    assert play.do(commands.Complete(attempt=attempt, body=b"{}")) == ("Completed",)
    assert RECIPIENT.agent == play.h.recipient


@pytest.mark.parametrize(
    "command",
    [
        commands.Acknowledge(attempt=1),
        commands.Update(attempt=1),
        commands.Checkpoint(attempt=1, body=b"{}"),
        commands.RecordStep(attempt=1, name="a", body=b"1"),
        commands.Complete(attempt=1, body=b"{}"),
        commands.Fail(attempt=1, retryable=True, code="failed"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_terms_under_discussion_are_no_acceptance(command: commands.Command) -> None:
    play = Play()
    play.do(commands.Counter(attempt=None, proposal=LONGER))
    with pytest.raises(WrongStateError):
        play.do(command)
    assert play.h.ack is None
    assert play.h.question is not None
    play.do(commands.Agree(question=play.h.question.version), by=REQUESTER)
    assert "acknowledged" in [receipt.rung for receipt in play.h.receipts]


def test_a_counter_that_the_end_took_away_is_not_answered_later() -> None:
    play = Play()
    play.do(commands.Counter(attempt=None, proposal=LONGER))
    assert play.h.question is not None
    counter = play.h.question.version
    play.pass_time(DAY)
    assert play.h.state is State.EXPIRED
    with pytest.raises(StaleQuestionError):
        play.do(answer(counter), by=REQUESTER)


@pytest.mark.parametrize(
    ("exit_by", "by"),
    [
        (commands.Fail(attempt=1, retryable=True, code="failed"), RECIPIENT),
        (commands.Reassign(to=Candidate(agent="support_agent")), OPERATOR),
        (commands.Complete(attempt=1, body=b"{}"), RECIPIENT),
    ],
    ids=["a retry", "a reassignment", "the end"],
)
def test_whoever_was_asked_is_told_that_the_question_is_withdrawn(
    exit_by: commands.Command, by: commands.Actor
) -> None:
    play = Play()
    play.ask(play.accept(), asked="somebody")
    told_before = len(play.events)
    play.do(exit_by, by=by)
    told = [item.reader for event in play.events[told_before:] for item in items(event, play.h)]
    assert "somebody" in told
    assert play.h.question is None


def test_the_accept_clock_runs_on_while_terms_are_discussed_and_no_faster() -> None:
    play = Play(routed=True, candidates=("code_agent", "support_agent"))
    play.now += HOUR  # the relay was down, so the clock counts anew
    play.up_since = play.now
    play.pass_time(5 * MINUTE)
    play.do(commands.Counter(attempt=None, proposal=LONGER))
    assert play.pass_time(10 * MINUTE - 1) == ()
    assert play.pass_time(1) == ("Nudged", "Reassigned")
