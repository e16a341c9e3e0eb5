"""Topics: who wants to hear of what. At hand for every status; kept as records of the team."""

from collections import defaultdict
from typing import Final

import msgspec

from nodrop.log.port import Record, Store

KIND: Final = "topic"


class Topics:
    """The subscribers of every topic."""

    def __init__(self) -> None:
        self._subscribers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    async def load(self, store: Store, team: str | None = None) -> None:
        """Read what the store knows, of one team or of all, and nothing else."""
        records = await store.records(KIND, of=None if team is None else (team, ""))
        for of, topic in list(self._subscribers):
            if team in {None, of}:
                del self._subscribers[of, topic]
        for record in records:
            self.put(record)

    def put(self, record: Record) -> None:
        """Know the subscribers of a topic as they are now."""
        self._subscribers[record.team, record.id] = set(
            msgspec.json.decode(record.json, type=list[str])
        )

    def of(self, team: str, topic: str) -> set[str]:
        """Return who hears of a topic."""
        return set(self._subscribers.get((team, topic), ()))

    def heard_by(self, team: str, agent: str) -> tuple[str, ...]:
        """Return what an agent hears of."""
        topics = (t for (of, t), who in self._subscribers.items() if of == team and agent in who)
        return tuple(sorted(topics))

    def count(self, team: str) -> int:
        """Return how many topics of a team anybody hears of."""
        return sum(of == team and bool(who) for (of, _), who in self._subscribers.items())


def record(team: str, topic: str, subscribers: set[str]) -> Record:
    """Return a topic as a store keeps it."""
    return Record(team=team, kind=KIND, id=topic, json=msgspec.json.encode(sorted(subscribers)))
