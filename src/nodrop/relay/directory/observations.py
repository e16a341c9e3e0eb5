"""What became of each agent's work, by capability: its last outcomes, and how long they took.

Seen in commits and kept in memory; written to the store now and then, together, so that work itself
writes nothing more for it. A crash takes at most the last moments away. These are statistics: the
log is the truth about every single handoff.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import median_low
from typing import Final

import msgspec

from nodrop.log.port import Record
from nodrop.model import events
from nodrop.model.handoff import Handoff
from nodrop.model.limits import Limits
from nodrop.model.standing import NO_RECORD, SaysNothingError, TrackRecord, outcome_ms
from nodrop.protocol.events import NAMES
from nodrop.relay.batch import Batch
from nodrop.relay.ports import NEVER

KIND: Final = "observed"
OUTCOMES: Final = frozenset(NAMES[e] for e in (events.Completed, events.Failed, events.Expired))
"""The entries after which a handoff may say something about its recipient."""
WRITTEN_TOGETHER_MAX: Final = 256
_NOT_DONE: Final = -1
"""Stands among the durations for an outcome that was no success."""

Place = tuple[str, str, str]
"""(team, agent, capability)."""


class Observations:
    """The outcomes lately of every agent and capability."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._outcomes: dict[Place, deque[int]] = {}
        self._records: dict[Place, TrackRecord] = {}
        self._unwritten: dict[Place, int] = {}
        """Since when, oldest first."""

    def restore(self, records: Iterable[Record]) -> None:
        """Begin with what the store remembers."""
        for record in records:
            agent, _, capability = record.id.partition("/")
            kept = msgspec.json.decode(record.json, type=list[int])
            place = (record.team, agent, capability)
            self._outcomes[place] = deque(kept, maxlen=self._limits.observations_max)

    def observe(self, handoff: Handoff, at: int) -> None:
        """Note how a handoff ended, if that says something about its recipient."""
        if handoff.capability is None or handoff.recipient == handoff.origin:
            return  # work for oneself is no recommendation
        try:
            took_ms = outcome_ms(handoff)
        except SaysNothingError:
            return
        place = (handoff.team, handoff.recipient, handoff.capability)
        outcomes = self._outcomes.get(place)
        if outcomes is None:
            outcomes = self._outcomes[place] = deque(maxlen=self._limits.observations_max)
        outcomes.append(_NOT_DONE if took_ms is None else took_ms)
        self._records.pop(place, None)
        self._unwritten.setdefault(place, at)

    def of(self, team: str, agent: str, capability: str) -> TrackRecord:
        """Return what is known about an agent's work on a capability."""
        place = (team, agent, capability)
        outcomes = self._outcomes.get(place)
        if outcomes is None:
            return NO_RECORD
        record = self._records.get(place)
        if record is None:
            record = self._records[place] = _summed_up(outcomes)
        return record

    # --- keeping ---

    def to_write(self, now: int | None = None) -> Sequence[Place]:
        """Return what should be written by now, a bounded part of it; without `now`, of all."""
        if now is not None and now < self.write_at():
            return ()
        return list(self._unwritten)[:WRITTEN_TOGETHER_MAX]

    def write_at(self) -> int:
        """Return when something should be written."""
        since = next(iter(self._unwritten.values()), None)
        return NEVER if since is None else since + self._limits.observations_kept_ms

    def write(self, places: Sequence[Place], batch: Batch) -> None:
        """Put what is known into a batch."""
        for place in places:
            team, agent, capability = place
            outcomes = msgspec.json.encode(list(self._outcomes[place]))
            batch.keep_record(
                Record(team=team, kind=KIND, id=f"{agent}/{capability}", json=outcomes)
            )

    def writing(self, places: Sequence[Place]) -> None:
        """Count what goes into a commit as written; what happens meanwhile is new."""
        for place in places:
            self._unwritten.pop(place, None)

    def unwritten(self, places: Sequence[Place], at: int) -> None:
        """Take that back: the commit failed."""
        for place in places:
            self._unwritten.setdefault(place, at)


def _summed_up(outcomes: Sequence[int]) -> TrackRecord:
    durations = [took for took in outcomes if took != _NOT_DONE]
    return TrackRecord(
        n=len(outcomes),
        completed=len(durations),
        duration_ms=median_low(durations) if durations else None,
    )
