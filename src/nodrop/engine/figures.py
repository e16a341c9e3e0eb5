"""Figures: how much of what happened, for whoever watches a relay from outside.

Counted since the start from commits, a whole batch at a time; a restart begins at nothing, as
counters may. Told in the text format that Prometheus reads.
"""

from collections import Counter
from collections.abc import Iterator

from nodrop.engine.jobs import Committed
from nodrop.engine.room import Room
from nodrop.store import Store

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Figures:
    """What a relay has counted."""

    def __init__(self, store: Store, room: Room) -> None:
        self._store = store
        self._room = room
        self._entries: Counter[tuple[str, str]] = Counter()
        self._commits = 0

    def note(self, committed: Committed) -> None:
        """Count a commit."""
        self._commits += 1
        self._entries.update([(draft.team, draft.type) for draft in committed.changes.entries])

    async def told(self, team: str) -> str:
        """Return what is to be told of a team."""
        size = (await self._store.head(team)).seq
        lines = [*self._lines(team, size)]
        return "\n".join(lines) + "\n"

    def _lines(self, team: str, size: int) -> Iterator[str]:
        yield "# HELP nodrop_entries_total Entries written to the log, by type."
        yield "# TYPE nodrop_entries_total counter"
        for (of, kind), count in sorted(self._entries.items()):
            if of == team:
                yield f'nodrop_entries_total{{team="{team}",type="{kind}"}} {count}'
        yield "# HELP nodrop_log_size Number of the last entry of the log."
        yield "# TYPE nodrop_log_size gauge"
        yield f'nodrop_log_size{{team="{team}"}} {size}'
        yield "# HELP nodrop_unfinished_handoffs Handoffs without an outcome, by recipient."
        yield "# TYPE nodrop_unfinished_handoffs gauge"
        for agent, count in sorted(self._room.waiting(team).items()):
            yield f'nodrop_unfinished_handoffs{{team="{team}",agent="{agent}"}} {count}'
        yield "# HELP nodrop_commits_total Commits of this relay, of all its teams."
        yield "# TYPE nodrop_commits_total counter"
        yield f"nodrop_commits_total {self._commits}"
