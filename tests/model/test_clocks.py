"""What the protocol says about time, told as stories with a clock."""

import pytest

from nodrop.model import clocks, commands, events
from nodrop.model.commands import RELAY, Candidate
from nodrop.model.errors import AlreadyFinishedError, StaleAttemptError
from nodrop.model.handoff import Backoff, ClockName, Escalation, Priority, State, When
from nodrop.model.limits import DAY, DEFAULT, HOUR, MINUTE, SECOND
from nodrop.testing.play import OPERATOR, OTHER, REQUESTER, T0, Play

LAPSE = commands.LapseLease(process="p1")


def test_an_unacknowledged_handoff_is_nudged_at_ever_longer_intervals() -> None:
    play = Play(deadline_at=T0 + 10 * DAY)
    play.pass_time(5 * DAY)
    nudges = [e for e in play.events if isinstance(e, events.Nudged)]
    assert [(n.again_at - n.length_ms - T0) // MINUTE for n in nudges[:6]] == [
        15, 45, 105, 225, 465, 945,
    ]  # fmt: skip
    assert {n.to for n in nudges} == {"code_agent"}
    assert max(n.length_ms for n in nudges) == DAY
    assert play.h.state is State.OFFERED


def test_the_seeds_escalation_fires_once_after_an_hour_of_no_response() -> None:
    step = Escalation(when=When.UNACKNOWLEDGED, after_ms=HOUR, notify="me")
    play = Play(escalation=(step,))
    play.pass_time(HOUR - 1)
    assert not any(isinstance(e, events.Escalated) for e in play.events)
    play.pass_time(10 * HOUR)
    escalated = [e for e in play.events if isinstance(e, events.Escalated)]
    assert escalated == [events.Escalated(step=0, when=When.UNACKNOWLEDGED, notify="me")]


def test_an_acknowledgement_ends_the_unacknowledged_episode() -> None:
    step = Escalation(when=When.UNACKNOWLEDGED, after_ms=HOUR, notify="me")
    play = Play(escalation=(step,))
    play.accept()
    play.pass_time(20 * HOUR)
    assert not any(isinstance(e, events.Escalated) for e in play.events)


def test_a_missed_promise_is_nudged_and_escalated_but_never_a_try() -> None:
    step = Escalation(when=When.SILENT, after_ms=10 * MINUTE, notify="me")
    play = Play(escalation=(step,))
    play.accept(next_update_at=T0 + 20 * MINUTE)
    assert play.running(ClockName.PROMISE) == 20 * MINUTE
    play.pass_time(20 * MINUTE)
    assert isinstance(play.events[-1], events.Nudged)
    play.pass_time(10 * MINUTE)
    assert isinstance(play.events[-1], events.Escalated)
    assert (play.h.state, play.h.tries) == (State.ACCEPTED, 0)


def test_an_update_ends_the_silence() -> None:
    step = Escalation(when=When.SILENT, after_ms=10 * MINUTE, notify="me")
    play = Play(escalation=(step,))
    attempt = play.accept()
    play.pass_time(30 * MINUTE)
    play.do(commands.Update(attempt=attempt))
    play.pass_time(29 * MINUTE)
    assert not any(isinstance(e, events.Escalated) for e in play.events)


def test_a_promise_is_never_later_than_the_terms_allow() -> None:
    play = Play()
    play.accept(next_update_at=T0 + 5 * HOUR)
    assert play.running(ClockName.PROMISE) == 30 * MINUTE


def test_a_lapsed_lease_uses_a_try_and_the_last_one_fails_the_handoff() -> None:
    play = Play()
    for tries in (1, 2):
        play.accept()
        assert play.do(LAPSE, by=RELAY) == ("Returned",)
        assert (play.h.state, play.h.tries) == (State.OFFERED, tries)
    play.accept()
    assert play.do(LAPSE, by=RELAY) == ("Failed",)
    assert play.h.outcome is not None
    assert play.h.outcome.code == "attempts_exhausted"


def test_an_attempt_whose_lease_merely_lapsed_goes_on_until_another_is_delivered() -> None:
    play = Play()
    first = play.accept()
    play.do(LAPSE, by=RELAY)
    assert play.do(commands.Update(attempt=first)) == ("Revived", "Updated")
    assert (play.h.state, play.h.tries) == (State.ACCEPTED, 1)
    play.do(LAPSE, by=RELAY)
    second = play.deliver(process="p2")
    for command in (commands.Update(attempt=first), commands.Complete(attempt=first, body=b"{}")):
        with pytest.raises(StaleAttemptError):
            play.do(command)
    assert play.h.attempt == second


def test_a_lapsed_attempt_may_complete_if_nobody_took_over() -> None:
    play = Play()
    attempt = play.accept()
    play.do(LAPSE, by=RELAY)
    assert play.do(commands.Complete(attempt=attempt, body=b"{}")) == ("Revived", "Completed")


def test_a_turn_based_taker_has_no_lease_after_its_ack() -> None:
    play = Play()
    play.deliver(heartbeat_ms=None)
    play.pass_time(60 * SECOND)
    assert (play.h.state, play.h.tries) == (State.OFFERED, 1)
    play.do(commands.Acknowledge(attempt=None))
    assert play.h.attempt == 2
    play.pass_time(20 * HOUR)
    assert (play.h.state, play.h.tries) == (State.ACCEPTED, 1)


def test_a_retry_waits_longer_each_time() -> None:
    play = Play(
        attempts_max=10, backoff=Backoff(first_ms=SECOND, factor_percent=300, max_ms=5 * SECOND)
    )
    waits: list[int] = []
    for _ in range(4):
        attempt = play.accept()
        play.do(commands.Fail(attempt=attempt, retryable=True, code="exception"))
        timer = clocks.running(play.h, ClockName.RETRY)
        assert timer is not None
        waits.append(timer.at - play.now)
        assert "Ready" in play.pass_time(timer.at - play.now)
    assert waits == [SECOND, 3 * SECOND, 5 * SECOND, 5 * SECOND]


def test_the_tenth_release_is_a_try() -> None:
    play = Play()
    for _ in range(9):
        play.do(commands.Release(attempt=play.deliver()))
    assert play.h.tries == 0
    play.do(commands.Release(attempt=play.deliver()))
    assert play.h.tries == 1


def test_active_time_stands_still_while_blocked() -> None:
    play = Play(timeout_ms=HOUR)
    attempt = play.accept()
    play.pass_time(40 * MINUTE)
    question = play.ask(attempt)
    play.pass_time(3 * HOUR)
    assert play.h.state is State.BLOCKED
    play.do(commands.AnswerQuestion(question=question, body=b"{}"), by=REQUESTER)
    play.pass_time(20 * MINUTE - 1)
    assert play.h.state is State.ACCEPTED
    play.pass_time(1)
    assert (play.h.state, play.h.tries, play.h.revivable) == (State.OFFERED, 1, False)


def test_a_lapsed_attempt_that_goes_on_has_no_more_active_time_than_before() -> None:
    play = Play(timeout_ms=10 * MINUTE)
    attempt = play.accept()
    play.pass_time(9 * MINUTE)
    play.do(LAPSE, by=RELAY)
    play.pass_time(MINUTE)
    play.do(commands.Update(attempt=attempt))
    assert play.pass_time(59 * SECOND) == ()
    assert play.pass_time(SECOND) == ("Returned",)
    assert play.h.tries == 2


def test_a_question_left_open_is_nudged_and_escalated() -> None:
    step = Escalation(when=When.BLOCKED, after_ms=HOUR, notify="me")
    play = Play(escalation=(step,))
    play.ask(play.accept(), asked="support_agent")
    happened = play.pass_time(4 * HOUR)
    assert happened == ("Escalated", "Nudged")
    assert [e.to for e in play.events if isinstance(e, events.Nudged)] == ["support_agent"]


def test_the_deadline_ends_it_and_the_overdue_steps_follow() -> None:
    steps = (
        Escalation(when=When.OVERDUE, after_ms=0, notify="me"),
        Escalation(when=When.OVERDUE, after_ms=HOUR, notify="boss"),
        Escalation(when=When.DEAD, after_ms=2 * HOUR, notify="boss"),
    )
    play = Play(escalation=steps, deadline_at=T0 + 4 * HOUR)
    play.accept()
    play.pass_time(4 * HOUR)
    assert play.h.state is State.EXPIRED
    play.pass_time(3 * HOUR)
    told = [e.notify for e in play.events if isinstance(e, events.Escalated)]
    assert told == ["me", "boss", "boss"]


def test_an_outcome_nobody_fetches_is_nudged_first_to_the_requester_then_to_me() -> None:
    play = Play()
    play.do(commands.Complete(attempt=play.accept(), body=b"{}"))
    play.pass_time(4 * DAY)
    told = [e.to for e in play.events if isinstance(e, events.Nudged)]
    assert told == ["inbox_monitor", "me", "me", "me"]
    assert play.h.settled_at is None
    play.do(commands.Settle(), by=REQUESTER)
    assert play.pass_time(30 * DAY) == ()


def test_the_relays_downtime_is_nobodys_silence() -> None:
    step = Escalation(when=When.UNACKNOWLEDGED, after_ms=HOUR, notify="me")
    play = Play(escalation=(step,))
    play.now = play.up_since = T0 + 6 * HOUR  # down from the start until now
    assert set(play.pass_time(0)) == {"Rearmed"}
    assert play.pass_time(15 * MINUTE - 1) == ()
    assert play.pass_time(1) == ("Nudged",)
    play.pass_time(45 * MINUTE)
    assert any(isinstance(e, events.Escalated) for e in play.events)


def test_the_deadline_passes_even_while_the_relay_is_down() -> None:
    play = Play(deadline_at=T0 + HOUR)
    play.now = play.up_since = T0 + 6 * HOUR
    play.pass_time(0)
    assert play.h.state is State.EXPIRED


def test_the_last_attempt_may_hand_in_its_result_after_the_end() -> None:
    play = Play(deadline_at=T0 + HOUR)
    attempt = play.accept()
    play.pass_time(HOUR)
    assert play.do(commands.Complete(attempt=attempt, body=b"{}")) == ("LateResultKept",)
    with pytest.raises(AlreadyFinishedError):
        play.do(commands.Complete(attempt=attempt, body=b"{}"))
    assert play.do(commands.AcceptLate(successor="h2"), by=OPERATOR) == ("AcceptedLate", "Settled")


def test_a_late_answer_is_kept_for_a_successor() -> None:
    play = Play(deadline_at=T0 + HOUR)
    question = play.ask(play.accept())
    play.pass_time(HOUR)
    answer = commands.AnswerQuestion(question=question, body=b"{}")
    assert play.do(answer, by=REQUESTER) == ("LateAnswerKept",)
    assert [a.by for a in play.h.answers] == ["inbox_monitor"]


def test_a_silent_candidate_makes_room_for_the_next_and_the_last_one_ends_it() -> None:
    play = Play(routed=True, candidates=("code_agent", "support_agent"))
    play.pass_time(15 * MINUTE)
    assert (play.h.recipient, play.h.state) == ("support_agent", State.OFFERED)
    play.pass_time(15 * MINUTE)
    assert play.h.outcome is not None
    assert (play.h.state, play.h.outcome.code) == (State.REJECTED, "no_candidate")


def test_what_is_old_enough_overtakes_what_is_more_urgent() -> None:
    def rank(priority: Priority, age: int) -> int:
        play = Play(priority=priority)
        old = play.h.stored_at - age
        return old - clocks.HEAD_START_MS[priority]

    ranked = clocks.rank(Play(priority=Priority.URGENT).h)
    assert ranked < rank(Priority.LOW, age=0)
    assert rank(Priority.LOW, age=DEFAULT.deadline_ms) < ranked


def test_an_update_keeps_what_it_does_not_mention() -> None:
    play = Play()
    attempt = play.accept(position=2, eta_at=T0 + 2 * HOUR)
    play.do(commands.Update(attempt=attempt))
    assert play.h.ack is not None
    assert (play.h.ack.position, play.h.ack.eta_at) == (2, T0 + 2 * HOUR)


def test_candidates_do_not_restart_the_unacknowledged_episode() -> None:
    step = Escalation(when=When.UNACKNOWLEDGED, after_ms=10 * MINUTE, notify="me")
    play = Play(escalation=(step,), routed=True, candidates=("code_agent", "support_agent"))
    play.accept()
    play.do(LAPSE, by=RELAY)  # the acceptance is void: a new episode begins
    assert "Escalated" in play.pass_time(10 * MINUTE)
    assert play.pass_time(5 * MINUTE) == ()
    assert play.pass_time(2 * SECOND) == ("Nudged", "Reassigned")  # it waited for its backoff
    assert "Escalated" not in play.pass_time(14 * MINUTE)


def test_a_lapsed_lease_waits_for_its_backoff_and_doubles_it() -> None:
    play = Play(attempts_max=4)
    for wait in (2 * SECOND, 4 * SECOND, 8 * SECOND):
        play.accept()
        assert play.do(LAPSE, by=RELAY) == ("Returned",)
        assert play.pass_time(wait - 1) == ()
        assert play.pass_time(1) == ("Ready",)


def test_an_attempt_that_comes_back_waits_for_no_backoff() -> None:
    play = Play()
    play.accept()
    play.do(LAPSE, by=RELAY)
    assert play.do(commands.Revive(process="p1"), by=RELAY) == ("Revived",)
    assert play.pass_time(2 * SECOND) == ()


def test_a_turn_based_lease_is_not_shortened_by_a_restart() -> None:
    play = Play()
    play.deliver(heartbeat_ms=None)
    play.pass_time(30 * SECOND)
    play.up_since = play.now
    assert play.pass_time(59 * SECOND) == ("Rearmed",)
    assert play.pass_time(SECOND) == ("Returned",)


def test_being_delivered_and_acknowledged_are_signs_of_life() -> None:
    play = Play()
    play.pass_time(MINUTE)
    attempt = play.deliver(heartbeat_ms=10_000)
    delivered_at = play.now
    assert clocks.lease_until(play.h, T0, DEFAULT, now=play.now) == delivered_at + 60 * SECOND
    play.pass_time(40 * SECOND)
    play.do(commands.Acknowledge(attempt=attempt))
    assert clocks.lease_until(play.h, T0, DEFAULT, now=play.now) == play.now + 30 * SECOND
    later = play.now + SECOND
    assert clocks.lease_until(play.h, later, DEFAULT, now=later) == later + 30 * SECOND
    set_back = play.now - HOUR
    assert clocks.lease_until(play.h, set_back, DEFAULT, now=set_back) == set_back + 30 * SECOND


def test_nobody_hands_in_a_late_result_of_what_was_never_delivered_to_it() -> None:
    play = Play()
    attempt = play.accept()
    play.do(commands.Reassign(to=Candidate(agent="support_agent")), by=REQUESTER)
    play.pass_time(DAY)
    assert play.h.state is State.EXPIRED
    with pytest.raises(AlreadyFinishedError):
        play.do(commands.Complete(attempt=attempt, body=b"{}"), by=OTHER)


def test_clocks_that_began_later_than_a_clock_set_back_says_begin_with_the_relay() -> None:
    step = Escalation(when=When.UNACKNOWLEDGED, after_ms=HOUR, notify="me")
    play = Play(escalation=(step,))
    play.pass_time(10 * MINUTE)
    play.now -= 365 * DAY
    play.up_since = play.now - MINUTE
    assert play.do(commands.CountAnew(), by=RELAY) == ("Rearmed", "Rearmed")
    assert play.running(ClockName.ACCEPT) == 15 * MINUTE + 9 * MINUTE - 365 * DAY
    assert play.running(ClockName.STEP) == HOUR + 9 * MINUTE - 365 * DAY
    assert play.running(ClockName.DEADLINE) == DAY
    assert play.do(commands.CountAnew(), by=RELAY) == ()


def test_clocks_that_began_before_run_on() -> None:
    play = Play()
    play.pass_time(10 * MINUTE)
    assert play.do(commands.CountAnew(), by=RELAY) == ()
    assert play.running(ClockName.ACCEPT) == 15 * MINUTE
