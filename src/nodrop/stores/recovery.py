"""Recovery: folding what the journal has beyond the rows, at a start and after a commit in doubt."""

from collections.abc import Callable, Iterable, Sequence

from nodrop.core.machine import evolve
from nodrop.store import Key, Mail, row_of
from nodrop.stores import journal
from nodrop.stores.journal import Batch
from nodrop.stores.state import Kept, State
from nodrop.wire import events as wire_events

Load = Callable[[Sequence[Key]], Iterable[Kept]]
"""Returns the handoffs there are, as their rows have them."""


def replay(state: State, batch: Batch, load: Load) -> None:
    """Fold a batch into `state`. What a row or the memory has already is passed over."""
    team = state.teams[batch.team]
    entries = {entry.seq: entry for entry in journal.entries(batch)}
    events = [
        e for e in entries.values() if e.version is not None and e.type in wire_events.DECODED
    ]
    keys = dict.fromkeys((e.team, e.handoff_id or "") for e in events)
    for kept in load([key for key in keys if state.get(key) is None]):
        state.admit(kept)
    for entry in events:
        known = state.get((entry.team, entry.handoff_id or ""))
        if known is not None and entry.seq <= known.applied:
            continue
        after = evolve(
            known.handoff if known else None,
            wire_events.decode(entry.type, bytes(entry.data)),
            team=entry.team,
            handoff_id=entry.handoff_id or "",
            by=entry.actor,
            at=entry.at,
        )
        state.follow(team, row_of(after), [entry.seq], since=entry.seq)
    for item in journal.mail(batch):
        entry = entries[item.seq]
        told = Mail(
            seq=entry.seq,
            kind=item.kind,
            at=entry.at,
            actor=entry.actor,
            type=entry.type,
            handoff_id=entry.handoff_id,
            version=entry.version,
        )
        state.deliver(team, item.reader, told)
    team.head = journal.head_of(batch, None)
