"""Figures: how much of what happened, for whoever watches a relay from outside.

Counted since the start from commits, a whole batch at a time; a restart begins at nothing, as
counters may. How they are told is a door's business.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from nodrop.log.port import Store
from nodrop.relay.room import Room


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is counted or weighed."""

    name: str
    about: str
    counter: bool
    """Whether it only ever grows, until the next start."""
    samples: Sequence[tuple[Mapping[str, str], int]]
    """What of, and how much."""


class Figures:
    """What a relay has counted."""

    def __init__(self, store: Store, room: Room) -> None:
        self._store = store
        self._room = room
        self.entries: defaultdict[tuple[str, str], int] = defaultdict(int)
        """By team and type."""
        self.commits = 0
        self._findings: Counter[tuple[str, str]] = Counter()

    def finding(self, team: str, detector: str) -> None:
        """Count a finding."""
        self._findings[team, detector] += 1

    async def of(self, team: str) -> Sequence[Figure]:
        """Return what is to be told of a team."""
        size = (await self._store.head(team)).seq
        return (
            Figure(
                name="entries",
                about="Entries written to the log, by type.",
                counter=True,
                samples=[
                    ({"team": team, "type": kind}, count)
                    for (of, kind), count in sorted(self.entries.items())
                    if of == team
                ],
            ),
            Figure(
                name="log_size",
                about="Number of the last entry of the log.",
                counter=False,
                samples=[({"team": team}, size)],
            ),
            Figure(
                name="unfinished_handoffs",
                about="Handoffs without an outcome, by recipient.",
                counter=False,
                samples=[
                    ({"team": team, "agent": agent}, count)
                    for agent, count in sorted(self._room.waiting(team).items())
                ],
            ),
            Figure(
                name="findings",
                about="Loops, storms, hot spots and orphaned work that the person was told of.",
                counter=True,
                samples=[
                    ({"team": team, "detector": detector}, count)
                    for (of, detector), count in sorted(self._findings.items())
                    if of == team
                ],
            ),
            Figure(
                name="commits",
                about="Commits of this relay, of all its teams.",
                counter=True,
                samples=[({}, self.commits)],
            ),
        )
