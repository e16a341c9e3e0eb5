"""Topics: who wants to hear of what. At hand for every status; kept as records of the team."""

from typing import Final

import msgspec

from nodrop.log.port import Record, Store

KIND: Final = "topic"


class Topics:
    """The subscribers of every topic."""

    def __init__(self) -> None:
        self._subscribers: dict[str, dict[str, set[str]]] = {}
        """By team and topic. A topic that nobody hears of is not here."""

    async def load(self, store: Store, team: str | None = None) -> None:
        """Read what the store knows, of one team or of all, and nothing else."""
        records = await store.records(KIND, of=None if team is None else (team, ""))
        if team is None:
            self._subscribers.clear()
        else:
            self._subscribers.pop(team, None)
        for record in records:
            self.put(record)

    def put(self, record: Record) -> None:
        """Know the subscribers of a topic as they are now."""
        of_team = self._subscribers.setdefault(record.team, {})
        if who := set(msgspec.json.decode(record.json, type=list[str])):
            of_team[record.id] = who
        else:
            of_team.pop(record.id, None)

    def of(self, team: str, topic: str) -> set[str]:
        """Return who hears of a topic."""
        return set(self._subscribers.get(team, {}).get(topic, ()))

    def heard_by(self, team: str, agent: str) -> tuple[str, ...]:
        """Return what an agent hears of."""
        of_team = self._subscribers.get(team, {})
        return tuple(sorted(topic for topic, who in of_team.items() if agent in who))

    def count(self, team: str) -> int:
        """Return how many topics of a team anybody hears of."""
        return len(self._subscribers.get(team, ()))


def record(team: str, topic: str, subscribers: set[str]) -> Record:
    """Return a topic as a store keeps it."""
    return Record(team=team, kind=KIND, id=topic, json=msgspec.json.encode(sorted(subscribers)))
