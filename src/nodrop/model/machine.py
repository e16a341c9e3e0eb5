"""The state machine: one table, two functions.

Rule 1: a move that is not in the table cannot happen.
Rule 2: nothing here knows over which door a command came or where state is kept.

`decide` turns a command into facts and may refuse; a refusal changes nothing. `evolve` applies one
event and may not refuse: it already happened. Time, actor and surroundings are arguments. What each
command means is in `decisions`, what each event does to a handoff in `evolution`.
"""

from collections.abc import Mapping
from typing import Final

from nodrop.model import commands, decisions, events, evolution
from nodrop.model.commands import Actor, Command
from nodrop.model.errors import NotFoundError, WrongStateError
from nodrop.model.events import Event, Fact
from nodrop.model.handoff import Handoff, State
from nodrop.model.surroundings import Surroundings

_OPEN: Final[Mapping[type[Event], str]] = {
    # What may happen in every open state.
    events.Reassigned: State.OFFERED,
    events.Cancelled: State.CANCELLED,
    events.Expired: State.EXPIRED,
    events.Rejected: State.REJECTED,
    events.Nudged: "same",
    events.Escalated: "same",
    events.Rearmed: "same",
    events.Dismissed: "same",
    events.Noted: "same",
}
_HELD: Final[Mapping[type[Event], str]] = {
    # While a process holds it: it can go back to the inbox, or use up its last try.
    events.Returned: State.OFFERED,
    events.Failed: State.FAILED,
}
_ENDED: Final[Mapping[type[Event], str]] = {
    events.OutcomeDelivered: "same",
    events.Settled: "same",
    events.Discarded: "same",
    events.Erased: "same",
    events.Nudged: "same",
    events.Escalated: "same",
    events.Rearmed: "same",
    events.Dismissed: "same",
    events.Noted: "same",
}
_DEAD: Final[Mapping[type[Event], str]] = {
    **_ENDED,
    events.LateResultKept: "same",
    events.LateAnswerKept: "same",
    events.Redriven: "same",
    events.AcceptedLate: "same",
    events.Joined: "same",
}

_MOVES: Final[Mapping[State, Mapping[type[Event], str]]] = {
    State.OFFERED: {
        **_OPEN,
        events.Ready: "same",
        events.Queued: "same",
        events.QueueLapsed: "same",
        events.Delivered: State.DELIVERED,
        events.Reclaimed: State.DELIVERED,
        events.Revived: State.ACCEPTED,
        events.Completed: State.COMPLETED,  # only a late result that was accepted is born so
    },
    State.DELIVERED: {
        **_OPEN,
        **_HELD,
        events.Acknowledged: State.ACCEPTED,
        events.Blocked: State.BLOCKED,
    },
    State.ACCEPTED: {
        **_OPEN,
        **_HELD,
        events.Updated: "same",
        events.StepRecorded: "same",
        events.Checkpointed: "same",
        events.MemberMoved: "same",
        events.Blocked: State.BLOCKED,
        events.Completed: State.COMPLETED,
    },
    State.BLOCKED: {
        **_OPEN,
        **_HELD,
        events.Parked: "same",
        events.Updated: "same",
        events.StepRecorded: "same",
        events.Checkpointed: "same",
        events.Answered: "same",
        events.Agreed: "same",
        events.Resumed: State.ACCEPTED,
        events.Completed: State.COMPLETED,
    },
    State.COMPLETED: _ENDED,
    State.FAILED: _DEAD,
    State.REJECTED: _DEAD,
    State.EXPIRED: _DEAD,
    State.CANCELLED: _ENDED,
}

TRANSITIONS: Final[Mapping[State, Mapping[type[Event], State]]] = {
    state: {event: state if to == "same" else State(to) for event, to in moves.items()}
    for state, moves in _MOVES.items()
}
"""Every legal move."""

_OFFERED: Final = State.OFFERED
_MEANING: Final = decisions.MEANING
_WHOLE: Final = evolution.WHOLE
_changed: Final = evolution.changed


def decide(
    handoff: Handoff | None, command: Command, by: Actor, now: int, around: Surroundings
) -> tuple[Fact, ...]:
    """Return what happens when `command` meets `handoff`; nothing, if it changes nothing.

    Raises:
        CallerError: one of its kinds says why the command is refused.
    """
    if handoff is not None:
        facts = moves = _MEANING[type(command)](handoff, command, by, now, around)
        state = handoff.state
    elif type(command) is commands.Offer:
        facts = decisions.offer(command, around)
        moves, state = facts[1:], _OFFERED
    else:
        raise NotFoundError
    try:
        for fact in moves:
            state = TRANSITIONS[state][type(fact.event)]
    except KeyError:
        raise WrongStateError(
            f"cannot {_verb(command)} a handoff that is {handoff.state if handoff else _OFFERED}"
        ) from None
    return facts


def evolve(  # noqa: PLR0917  # called for every event: names would take a third longer
    handoff: Handoff | None, event: Event, team: str, handoff_id: str, by: str, at: int
) -> Handoff:
    """Return `handoff` as it is after `event`. Total over every log `decide` can produce."""
    if handoff is None:
        assert type(event) is events.Offered, "a handoff begins with its offer"
        return evolution.born(event, team=team, handoff_id=handoff_id, at=at)
    kind = type(event)
    state = TRANSITIONS[handoff.state][kind]
    return _WHOLE.get(kind, _changed)(handoff, event, state, by, at)


def _verb(command: Command) -> str:
    name = type(command).__name__
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
