"""Repeats: a command that was carried out before, under the same id, or an offer made before.

Who is turn-based (an assistant, a person at a terminal) has no id to repeat: what it sent is known
by its content, for a while and as long as it is under way.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from nodrop.core import events
from nodrop.core.errors import IdempotencyConflictError
from nodrop.core.events import Event
from nodrop.core.limits import Limits
from nodrop.engine.batch import Batch
from nodrop.engine.shows import Caller
from nodrop.store import KeyUse, Place
from nodrop.wire import canonical, requests
from nodrop.wire import events as wire_events

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
    return frozenset() if request is None else _left_by(type(request))


@functools.cache
def _left_by(command: type[requests.Command]) -> frozenset[str]:
    left = next((_LEAVES[kind] for kind in command.__mro__ if kind in _LEAVES), ())
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
    if not places:
        return ()
    another = about is not None and all(place.handoff_id != about for place in places)
    if another or leaves.isdisjoint(place.type for place in places):
        raise IdempotencyConflictError(
            f"command_id {command_id} was used for another command",
            next_step="Make a new command_id for every command.",
        )
    return places


# --- offers --------------------------------------------------------------------------------------

_CONTENT: Final = "≡"
"""Begins the name that an offer's content is remembered by: no key that a caller can send."""
_NOT_CONTENT: Final = ("command_id", "traceparent", "signature", "turn_based", "id", "op")
"""Also what a frame has besides a request, which is read as it came."""


class Unloaded(msgspec.Struct, frozen=True, kw_only=True):
    """An offer looks like one whose handoff is not at hand: to be decided again, with it."""

    handoff_id: str


def digest_of(request: requests.Offer, sender: str) -> str:
    """Return the digest of an offer as sent: what must be equal for it to be a repeat."""
    sent = msgspec.to_builtins(request)
    for name in _NOT_CONTENT:
        sent.pop(name, None)
    if sent["timeout"] is None:
        del sent["timeout"]  # as keys have it that were used before there was one
    sent["from"] = sender
    return canonical.sha256(canonical.dumps(sent))


def name_of(request: requests.Offer, digest: str) -> str | None:
    """Return what an offer is remembered by: its key, or its content where it is turn-based."""
    if request.idempotency_key is None and request.turn_based:
        return _CONTENT + digest
    return request.idempotency_key


def offered_before(
    batch: Batch, use: KeyUse | None, digest: str, limits: Limits
) -> str | Unloaded | None:
    """Return the handoff that an offer remembered as `use` made; None if there is none.

    Raises:
        IdempotencyConflictError: its key was used for another request.
    """
    if use is None:
        return None
    if not use.key.startswith(_CONTENT):
        if use.digest != digest:
            raise IdempotencyConflictError(
                f"{use.sender}/{use.key} is handoff {use.handoff_id}, made by another request"
            )
        return use.handoff_id
    first = batch.find(use.team, use.handoff_id)
    if first is None:
        return Unloaded(handoff_id=use.handoff_id)
    recent = batch.now <= first.stored_at + limits.recognise_ms
    return use.handoff_id if recent and not first.final else None
