"""Recovery: folding what the journal has beyond the rows, at a start and after a commit in doubt."""

from collections.abc import Callable, Iterable, Sequence

from nodrop.log import journal
from nodrop.log.journal import Batch
from nodrop.log.port import Key, Mail, row_of
from nodrop.log.state import Kept, State, stub_of
from nodrop.model.machine import evolve
from nodrop.protocol import events as wire_events

Load = Callable[[Sequence[Key]], Iterable[Kept]]
"""Returns the handoffs there are, as their rows have them."""


def replay(state: State, batch: Batch, load: Load) -> None:
    """Fold a batch into `state`. What a row or the memory has already is passed over."""
    replaying = Replay(batch)
    replaying.fold(state, load(replaying.missing(state)))


class Replay:
    """A batch of the journal on its way into memory."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.entries = journal.entries(batch)
        self._events = [
            e for e in self.entries if e.version is not None and e.type in wire_events.DECODED
        ]

    def missing(self, state: State) -> list[Key]:
        """Return the handoffs that it changes and that are not in memory."""
        keys = dict.fromkeys((e.team, e.handoff_id or "") for e in self._events)
        return [key for key in keys if state.get(key) is None]

    def fold(self, state: State, rows: Iterable[Kept]) -> None:
        """Fold it into `state`; `rows` are what is missing, as far as there is a row of it."""
        batch = self.batch
        team = state.teams[batch.team]
        for row in rows:
            state.admit(row)
        for entry in self._events:
            key = (entry.team, entry.handoff_id or "")
            known = state.get(key)
            if known is not None and entry.seq <= known.applied:
                # A row that another node wrote may be ahead of what it was found by until now.
                state.admit_stub(key, stub_of(row_of(known.handoff)))
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
        for reader, told in self.mail():
            if told.seq > team.watermark:
                team.mail.append((reader, told))
        team.head = journal.head_of(batch, None)

    def mail(self) -> Iterable[tuple[str, Mail]]:
        """Yield what it put into inboxes: (reader, item)."""
        entries = {entry.seq: entry for entry in self.entries}
        for item in journal.mail(self.batch):
            of = entries[item.seq]
            told = Mail(of.seq, item.kind, of.at, of.actor, of.type, of.handoff_id, of.version)
            yield item.reader, told
