"""The queued acknowledgement: a busy recipient says at once that it has it, and when it will be heard."""

import pytest

from nodrop.model import clocks, commands, events, machine
from nodrop.model.errors import (
    AlreadyFinishedError,
    ForbiddenError,
    InvalidRequestError,
    LimitReachedError,
    StaleAttemptError,
    WrongStateError,
)
from nodrop.model.handoff import ClockName, Escalation, Proposal, Rung, State, When
from nodrop.model.limits import DEFAULT, HOUR, MINUTE, SECOND
from nodrop.model.standing import outcome_ms
from nodrop.model.surroundings import Surroundings
from nodrop.testing.play import OPERATOR, OTHER, RECIPIENT, REQUESTER, T0, Play

UNACKNOWLEDGED = Escalation(when=When.UNACKNOWLEDGED, after_ms=HOUR, notify="me")
SILENT = Escalation(when=When.SILENT, after_ms=5 * MINUTE, notify="me")
QUEUED = commands.Acknowledge(attempt=None, queued=True)


def rungs(play: Play) -> list[tuple[Rung, int]]:
    return [(r.rung, r.at - T0) for r in play.h.receipts]


def test_it_is_acknowledged_and_nothing_else_has_changed() -> None:
    play = Play(escalation=(UNACKNOWLEDGED,))
    before = play.h
    play.pass_time(SECOND)
    assert play.do(QUEUED) == ("Queued",)
    kept = ("state", "recipient", "attempt", "tries", "live", "process", "terms")
    assert [getattr(play.h, name) for name in kept] == [getattr(before, name) for name in kept]
    assert rungs(play) == [(Rung.STORED, 0), (Rung.ACKNOWLEDGED, SECOND)]
    assert play.running(ClockName.ACCEPT) is None
    assert play.running(ClockName.STEP) is None
    assert play.running(ClockName.PROMISE) == SECOND + 30 * MINUTE
    assert clocks.due_at(play.h) == clocks.owed_at(play.h) == T0 + SECOND + 30 * MINUTE


def test_it_promises_no_later_than_was_agreed() -> None:
    play = Play(update_every_ms=10 * MINUTE)
    play.do(commands.Acknowledge(attempt=None, queued=True, next_update_at=T0 + HOUR))
    assert play.running(ClockName.PROMISE) == 10 * MINUTE
    play.do(commands.Acknowledge(attempt=None, queued=True, next_update_at=T0 + MINUTE))
    assert play.running(ClockName.PROMISE) == MINUTE


def test_the_relay_counts_the_position_where_the_recipient_does_not_say() -> None:
    play = Play()
    around = Surroundings(place=4)
    [fact] = machine.decide(play.h, QUEUED, by=RECIPIENT, now=play.now, around=around)
    assert isinstance(fact.event, events.Queued)
    assert fact.event.position == 4


def test_a_second_one_is_an_update() -> None:
    play = Play()
    play.do(commands.Acknowledge(attempt=None, queued=True, eta_at=T0 + HOUR))
    play.pass_time(20 * MINUTE)
    play.do(QUEUED)
    assert rungs(play)[1:] == [(Rung.ACKNOWLEDGED, 0), (Rung.UPDATED, 20 * MINUTE)]
    assert play.running(ClockName.PROMISE) == 50 * MINUTE
    assert play.h.queued is not None
    assert play.h.queued.eta_at == T0 + HOUR  # what an update does not mention stays


def test_delivery_is_ordinary_and_the_first_time_stays_on_the_ladder() -> None:
    play = Play(escalation=(UNACKNOWLEDGED,))
    play.do(QUEUED)
    play.pass_time(10 * MINUTE)
    attempt = play.deliver()
    assert (play.h.state, attempt) == (State.DELIVERED, 1)
    assert play.running(ClockName.ACCEPT) is None
    assert play.running(ClockName.STEP) is None
    assert play.running(ClockName.PROMISE) is None  # the lease is what runs now
    assert play.do(commands.Acknowledge(attempt=attempt)) == ("Acknowledged",)
    assert rungs(play) == [(Rung.STORED, 0), (Rung.DELIVERED, 10 * MINUTE), (Rung.ACKNOWLEDGED, 0)]
    assert play.h.queued is None


def test_the_ack_of_the_attempt_is_the_sign_of_life_that_it_always_was() -> None:
    play = Play()
    play.do(QUEUED)
    play.pass_time(10 * MINUTE)
    attempt = play.deliver(heartbeat_ms=10_000)
    seen = play.now
    play.pass_time(40 * SECOND)
    play.do(commands.Acknowledge(attempt=attempt))
    until = clocks.lease_until(play.h, seen, DEFAULT, now=play.now)
    assert until == play.now + 30 * SECOND
    play.do(commands.Update(attempt=attempt))
    assert clocks.lease_until(play.h, seen, DEFAULT, now=play.now) == until


def test_what_it_took_does_not_count_the_queue() -> None:
    play = Play()
    play.do(QUEUED)
    play.pass_time(20 * MINUTE)
    attempt = play.accept()
    play.pass_time(MINUTE)
    play.do(commands.Complete(attempt=attempt, body=b"{}"))
    assert outcome_ms(play.h) == MINUTE


# --- when it is void ----------------------------------------------------------------------------


def test_a_promise_that_passes_begins_another_episode() -> None:
    play = Play(escalation=(UNACKNOWLEDGED, SILENT), update_every_ms=10 * MINUTE)
    play.do(QUEUED)
    assert play.pass_time(10 * MINUTE) == ("Nudged", "QueueLapsed")
    assert play.h.queued is None
    assert rungs(play) == [(Rung.STORED, 0)]
    assert play.running(ClockName.ACCEPT) == 25 * MINUTE
    assert play.running(ClockName.PROMISE) is None
    assert clocks.owed_at(play.h) == T0 + 25 * MINUTE
    steps = sorted(t.at - T0 for t in play.h.timers if t.name is ClockName.STEP)
    assert steps == [15 * MINUTE, 10 * MINUTE + HOUR]
    assert play.do(QUEUED) == ("Queued",)  # the word ends both episodes
    assert play.running(ClockName.STEP) is None


def test_an_acceptance_after_a_missed_promise_ends_the_silence() -> None:
    play = Play(escalation=(SILENT,), update_every_ms=10 * MINUTE)
    play.do(QUEUED)
    play.pass_time(10 * MINUTE)
    attempt = play.deliver()
    assert play.running(ClockName.STEP) is not None
    play.do(commands.Acknowledge(attempt=attempt))
    assert play.running(ClockName.STEP) is None


def test_an_agent_that_is_gone_is_held_to_nothing() -> None:
    play = Play(escalation=(UNACKNOWLEDGED, SILENT))
    play.do(QUEUED)
    play.pass_time(MINUTE)
    assert play.do(commands.LapseQueue(), by=OPERATOR) == ("QueueLapsed", "Nudged")
    assert play.running(ClockName.ACCEPT) == 16 * MINUTE
    [step] = [t for t in play.h.timers if t.name is ClockName.STEP]
    assert (step.step, step.at - T0) == (0, MINUTE + HOUR)  # nobody broke a promise
    assert play.do(commands.LapseQueue(), by=OPERATOR) == ()


@pytest.mark.parametrize("silent", [False, True], ids=["promise passed", "agent silent"])
def test_what_was_routed_goes_to_the_next_candidate_at_once(silent: bool) -> None:  # noqa: FBT001  # by name
    play = Play(
        routed=True, candidates=("code_agent", "support_agent"), escalation=(UNACKNOWLEDGED, SILENT)
    )
    play.do(QUEUED)
    if silent:
        assert play.do(commands.LapseQueue(), by=OPERATOR) == ("QueueLapsed", "Reassigned")
    else:
        assert play.pass_time(30 * MINUTE) == ("Nudged", "QueueLapsed", "Reassigned")
    assert (play.h.recipient, play.h.queued) == ("support_agent", None)
    assert play.running(ClockName.ACCEPT) == play.now - T0 + 15 * MINUTE
    [step] = [t for t in play.h.timers if t.name is ClockName.STEP]
    assert (step.step, step.at) == (0, play.now + HOUR)


def test_a_lapsed_lease_is_a_return_like_any_other() -> None:
    play = Play(escalation=(UNACKNOWLEDGED,))
    play.do(QUEUED)
    play.pass_time(MINUTE)
    play.deliver()
    play.pass_time(MINUTE)
    assert play.do(commands.LapseLease(process="p1"), by=OPERATOR) == ("Returned",)
    assert play.h.queued is None
    assert Rung.ACKNOWLEDGED not in {r.rung for r in play.h.receipts}
    assert play.running(ClockName.STEP) == 2 * MINUTE + HOUR
    assert play.running(ClockName.ACCEPT) is not None


def test_it_does_not_bind_whom_it_is_given_to() -> None:
    play = Play(escalation=(UNACKNOWLEDGED,))
    play.do(QUEUED)
    play.pass_time(MINUTE)
    play.do(commands.Reassign(to=commands.Candidate(agent="support_agent")), by=REQUESTER)
    assert play.h.queued is None
    assert play.running(ClockName.ACCEPT) == 16 * MINUTE
    assert play.running(ClockName.STEP) == MINUTE + HOUR


def test_terms_that_are_discussed_do_not_start_the_accept_clock_again() -> None:
    play = Play(escalation=(UNACKNOWLEDGED,))
    play.do(QUEUED)
    attempt = play.deliver()
    proposal = Proposal(update_every_ms=HOUR)
    play.do(commands.Counter(attempt=attempt, proposal=proposal))
    assert play.running(ClockName.ACCEPT) is None
    assert play.h.question is not None
    play.pass_time(MINUTE)
    play.do(commands.Agree(question=play.h.question.version), by=REQUESTER)
    assert (play.h.state, play.h.queued) == (State.ACCEPTED, None)
    assert rungs(play)[-1] == (Rung.ACKNOWLEDGED, 0)


def test_a_lapsed_attempt_may_still_go_on() -> None:
    play = Play()
    attempt = play.accept()
    play.pass_time(MINUTE)
    play.do(commands.LapseLease(process="p1"), by=OPERATOR)
    play.pass_time(2 * SECOND)
    play.do(QUEUED)  # another process of the agent has it in its queue
    assert play.do(commands.Revive(process="p1")) == ("Revived",)
    assert play.h.queued is None
    play.do(commands.Complete(attempt=attempt, body=b"{}"))


# --- who may, and when --------------------------------------------------------------------------


def test_if_another_process_holds_it_nothing_is_recorded() -> None:
    play = Play()
    attempt = play.deliver()
    assert play.do(QUEUED) == ()
    play.do(commands.Acknowledge(attempt=attempt))
    assert play.do(QUEUED) == ()
    play.ask(attempt)
    assert play.do(QUEUED) == ()


def test_only_the_recipient_can_say_so() -> None:
    play = Play()
    for actor in (REQUESTER, OTHER, OPERATOR):
        with pytest.raises(ForbiddenError):
            play.do(QUEUED, by=actor)
    play.do(commands.Reassign(to=commands.Candidate(agent="support_agent")), by=REQUESTER)
    with pytest.raises(StaleAttemptError):
        play.do(QUEUED)


def test_it_names_no_attempt() -> None:
    play = Play()
    with pytest.raises(InvalidRequestError, match="names no attempt"):
        play.do(commands.Acknowledge(attempt=0, queued=True))


def test_nothing_is_queued_that_waits_for_its_retry() -> None:
    play = Play()
    attempt = play.accept()
    play.do(commands.Fail(attempt=attempt, retryable=True, code="failed"))
    with pytest.raises(WrongStateError, match="waits for its retry"):
        play.do(QUEUED)
    assert play.pass_time(2 * SECOND) == ("Ready",)
    assert play.do(QUEUED) == ("Queued",)


def test_what_has_ended_is_not_queued() -> None:
    play = Play()
    play.do(commands.Cancel(), by=REQUESTER)
    with pytest.raises(AlreadyFinishedError):
        play.do(QUEUED)


def test_so_many_are_in_force_at_most() -> None:
    play = Play()
    full = Surroundings(queued_acks=DEFAULT.queued_acks_max)
    with pytest.raises(LimitReachedError, match="1000 handoffs are acknowledged as queued"):
        machine.decide(play.h, QUEUED, by=RECIPIENT, now=play.now, around=full)
    play.do(QUEUED)
    assert machine.decide(play.h, QUEUED, by=RECIPIENT, now=play.now, around=full)  # an update
