"""Repeats: a command that was carried out before, under the same id."""

from collections.abc import Sequence

from nodrop.core.errors import IdempotencyConflictError
from nodrop.engine.batch import Batch
from nodrop.engine.shows import Caller
from nodrop.store import Place


def done_before(
    batch: Batch,
    caller: Caller,
    command_id: str | None,
    *,
    about: str | None = None,
    first: str | None = None,
) -> Sequence[Place]:
    """Return what the caller's command of this id wrote; nothing if there was none.

    Args:
        batch: the working set.
        caller: whose id it is.
        command_id: the id.
        about: the handoff that the command is about.
        first: the type of the first entry that such a command writes.

    Raises:
        IdempotencyConflictError: the id was used for something else.
    """
    places = batch.places(caller.team, caller.agent, command_id)
    another = about is not None and all(place.handoff_id != about for place in places)
    if places and (another or first not in {None, places[0].type}):
        raise IdempotencyConflictError(
            f"command_id {command_id} was used for another command",
            next_step="Make a new command_id for every command.",
        )
    return places
