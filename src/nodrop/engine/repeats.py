"""Repeats: a command that was carried out before, under the same id."""

from collections.abc import Mapping, Sequence
from typing import Final

from nodrop.core import events
from nodrop.core.errors import IdempotencyConflictError
from nodrop.core.events import Event
from nodrop.engine.batch import Batch
from nodrop.engine.shows import Caller
from nodrop.store import Place
from nodrop.wire import events as wire_events
from nodrop.wire import requests

_LEAVES: Final[Mapping[type[requests.Command], tuple[type[Event], ...]]] = {
    requests.Ack: (events.Acknowledged, events.Updated),
    requests.Update: (events.Acknowledged, events.Updated),
    requests.Reject: (events.Rejected, events.Reassigned),
    requests.Counter: (events.Blocked,),
    requests.Block: (events.Blocked,),
    requests.Complete: (events.Completed, events.LateResultKept),
    requests.Fail: (events.Failed, events.Returned),
    requests.Release: (events.Returned, events.Parked, events.Failed),
    requests.Step: (events.StepRecorded,),
    requests.Checkpoint: (events.Checkpointed,),
    requests.Answer: (events.Answered, events.LateAnswerKept),
    requests.Agree: (events.Agreed,),
    requests.Decline: (events.Rejected, events.Reassigned),
    requests.Cancel: (events.Cancelled,),
    requests.Reassign: (events.Reassigned,),
    requests.Settle: (events.Settled,),
    requests.Redrive: (events.Redriven,),
    requests.AcceptLate: (events.AcceptedLate,),
    requests.Discard: (events.Discarded,),
    requests.Erase: (events.Erased,),
    requests.Note: (events.Noted,),
}
"""What a command about a handoff leaves in the log, whatever else: one of these."""


def leaves(request: requests.Command | None) -> frozenset[str]:
    """Return the types of entries by which a repeat of `request` is known as one."""
    kinds = type(request).__mro__ if request else ()
    left = next((_LEAVES[kind] for kind in kinds if kind in _LEAVES), ())
    return frozenset(wire_events.NAMES[kind] for kind in left)


def done_before(
    batch: Batch,
    caller: Caller,
    command_id: str | None,
    *,
    leaves: frozenset[str],
    about: str | None = None,
) -> Sequence[Place]:
    """Return what the caller's command of this id wrote; nothing if there was none.

    Args:
        batch: the working set.
        caller: whose id it is.
        command_id: the id.
        leaves: the types of entries of which such a command writes one.
        about: the handoff that the command is about.

    Raises:
        IdempotencyConflictError: the id was used for something else.
    """
    places = batch.places(caller.team, caller.agent, command_id)
    another = about is not None and all(place.handoff_id != about for place in places)
    if places and (another or leaves.isdisjoint(place.type for place in places)):
        raise IdempotencyConflictError(
            f"command_id {command_id} was used for another command",
            next_step="Make a new command_id for every command.",
        )
    return places
