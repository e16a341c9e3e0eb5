"""Activity log: the lines of `nodrop.relay` about what a commit did.

Trouble is told at WARNING (a lapsed lease, a timeout, an escalation, a dead letter), reminders and agents at
INFO, every other entry about a handoff at DEBUG. A line has names and references, never words or data.
"""

import logging
from typing import Final

from nodrop.model import events
from nodrop.model.limits import SECOND
from nodrop.protocol.entries import Draft
from nodrop.protocol.events import NAMES, decode
from nodrop.protocol.showing import ref
from nodrop.relay.jobs import Committed

LOG: Final = logging.getLogger("nodrop.relay")

NOTABLE: Final = frozenset(
    NAMES[kind]
    for kind in (
        events.Returned,
        events.Escalated,
        events.Nudged,
        events.Failed,
        events.Rejected,
        events.Expired,
    )
)
"""Entries that are told of at any level."""
_WHY: Final = {
    "lease_lapsed": "the process was silent and lost its lease",
    "timed_out": "timed out",
}


def tell(committed: Committed) -> None:
    """Log what a commit did, as far as the level of the logger lets it through."""
    entries = committed.changes.entries
    for agent, _ in committed.changes.agents:
        did = "registered" if agent.removed_at is None else "removed"
        LOG.info("agent %s %s: manifest version %d", agent.id, did, agent.version)
    if LOG.isEnabledFor(logging.DEBUG):
        told = [draft for draft in entries if draft.handoff_id is not None]
    elif LOG.isEnabledFor(logging.WARNING):
        told = [draft for draft in entries if draft.type in NOTABLE]
    else:
        return
    handoffs = [row.handoff for row in committed.changes.rows]
    refs = {(handoff.team, handoff.id): ref(handoff) for handoff in handoffs}
    for draft in told:
        _tell(draft, refs.get((draft.team, draft.handoff_id or ""), draft.handoff_id or ""))


def _tell(draft: Draft, name: str) -> None:
    event = decode(draft.type, bytes(draft.data)) if draft.type in NOTABLE else None
    match event:
        case events.Returned(reason=reason) if reason in _WHY:
            wait = max((event.not_before or draft.at) - draft.at, 0) / SECOND
            LOG.warning(
                "%s: attempt %d ended, %s; back in the inbox, to be delivered again in %g s",
                name,
                event.attempt,
                _WHY[reason],
                wait,
            )
        case events.Escalated():
            then = f"{event.notify} is notified" if event.notify else "its step is carried out"
            LOG.warning("%s escalated (%s): %s", name, event.when.value, then)
        case events.Nudged():
            LOG.info("%s: the %s clock ran out; %s is reminded", name, event.clock.value, event.to)
        case events.Failed(code=code) | events.Rejected(code=code):
            LOG.warning("%s is a dead letter: %s (%s)", name, _word(draft.type), code)
        case events.Expired():
            LOG.warning("%s is a dead letter: its deadline passed", name)
        case _:
            LOG.debug("%s %s by %s", name, _word(draft.type), draft.actor)


def _word(kind: str) -> str:
    """Return the middle of an entry's name: `handoff.offered.v1` is `offered`."""
    return kind.split(".")[1].replace("_", " ")
