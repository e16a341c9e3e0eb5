"""The table, pinned in full: a diff here is a change to what a handoff is."""

from nodrop.model import events
from nodrop.model.handoff import DEAD, FINAL, State
from nodrop.model.machine import TRANSITIONS

STAYS = {
    State.OFFERED: "Dismissed Escalated Noted Nudged QueueLapsed Queued Ready Rearmed",
    State.DELIVERED: "Dismissed Escalated Noted Nudged Rearmed",
    State.ACCEPTED: (
        "Checkpointed Dismissed Escalated MemberMoved Noted Nudged Rearmed StepRecorded Updated"
    ),
    State.BLOCKED: (
        "Agreed Answered Checkpointed Dismissed Escalated Noted Nudged Parked Rearmed StepRecorded "
        "Updated"
    ),
    State.COMPLETED: (
        "Discarded Dismissed Erased Escalated Noted Nudged OutcomeDelivered Rearmed Settled"
    ),
    State.FAILED: (
        "AcceptedLate Discarded Dismissed Erased Escalated Joined LateAnswerKept LateResultKept "
        "Noted Nudged OutcomeDelivered Rearmed Redriven Settled"
    ),
    State.REJECTED: (
        "AcceptedLate Discarded Dismissed Erased Escalated Joined LateAnswerKept LateResultKept "
        "Noted Nudged OutcomeDelivered Rearmed Redriven Settled"
    ),
    State.EXPIRED: (
        "AcceptedLate Discarded Dismissed Erased Escalated Joined LateAnswerKept LateResultKept "
        "Noted Nudged OutcomeDelivered Rearmed Redriven Settled"
    ),
    State.CANCELLED: (
        "Discarded Dismissed Erased Escalated Noted Nudged OutcomeDelivered Rearmed Settled"
    ),
}

MOVES = """\
accepted  --Blocked--> blocked
accepted  --Cancelled--> cancelled
accepted  --Completed--> completed
accepted  --Expired--> expired
accepted  --Failed--> failed
accepted  --Reassigned--> offered
accepted  --Rejected--> rejected
accepted  --Returned--> offered
blocked   --Cancelled--> cancelled
blocked   --Completed--> completed
blocked   --Expired--> expired
blocked   --Failed--> failed
blocked   --Reassigned--> offered
blocked   --Rejected--> rejected
blocked   --Resumed--> accepted
blocked   --Returned--> offered
delivered --Acknowledged--> accepted
delivered --Blocked--> blocked
delivered --Cancelled--> cancelled
delivered --Expired--> expired
delivered --Failed--> failed
delivered --Reassigned--> offered
delivered --Rejected--> rejected
delivered --Returned--> offered
offered   --Cancelled--> cancelled
offered   --Completed--> completed
offered   --Delivered--> delivered
offered   --Expired--> expired
offered   --Reassigned--> offered
offered   --Reclaimed--> delivered
offered   --Rejected--> rejected
offered   --Revived--> accepted
"""


def test_the_moves_are_exactly_these() -> None:
    rows = sorted(
        f"{state:<9} --{event.__name__}--> {to}\n"
        for state, moves in TRANSITIONS.items()
        for event, to in moves.items()
        if to is not state or event is events.Reassigned
    )
    assert "".join(rows) == MOVES


def test_what_happens_without_a_move_is_exactly_this() -> None:
    stays = {
        state: " ".join(
            sorted(
                event.__name__
                for event, to in moves.items()
                if to is state and event is not events.Reassigned
            )
        )
        for state, moves in TRANSITIONS.items()
    }
    assert stays == STAYS


def test_every_state_has_a_row_and_is_reachable() -> None:
    assert set(TRANSITIONS) == set(State)
    reachable = {State.OFFERED} | {to for moves in TRANSITIONS.values() for to in moves.values()}
    assert reachable == set(State)


def test_final_states_are_never_left() -> None:
    """Spelled out: deriving the expectation from the table would prove nothing."""
    ended = {State.COMPLETED, State.FAILED, State.REJECTED, State.EXPIRED, State.CANCELLED}
    assert ended == FINAL
    assert {State.FAILED, State.REJECTED, State.EXPIRED} == DEAD
    for state in ended:
        assert set(TRANSITIONS[state].values()) == {state}
