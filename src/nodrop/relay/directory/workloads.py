"""How much waits for each agent, and how much it has in its hands: two numbers, for ranking.

Counted from commits, read from the store at the start. Counts and no promises: after a commit of
which nobody knows whether it was kept they may be one off.
"""

from collections.abc import Iterable
from typing import Final

from nodrop.log.port import Key, Page, Store
from nodrop.model.handoff import Handoff, State

_HELD: Final = (State.DELIVERED, State.ACCEPTED, State.BLOCKED)
READ_MAX: Final = 10_000
"""Handoffs in one state that a start reads to know who is at work."""


class Workloads:
    """The unfinished handoffs of every agent."""

    def __init__(self) -> None:
        self._unfinished: dict[Key, int] = {}
        self._held: dict[Key, int] = {}

    async def load(self, store: Store, team: str, agents: Iterable[str]) -> None:
        """Begin with what the store has."""
        for agent in agents:
            await self.recount(store, team, agent)
        await self._load_held(store, team)

    async def _load_held(self, store: Store, team: str) -> None:
        for state in _HELD:
            for handoff in await store.list_handoffs(
                Page(team=team, state=state.value, limit=READ_MAX)
            ):
                if handoff.live:
                    _add(self._held, (team, handoff.recipient), 1)

    async def recount(self, store: Store, team: str, agent: str) -> None:
        """Read what waits for one agent: mail may have come before it joined."""
        queue = await store.queue(team, agent)
        self._unfinished.pop((team, agent), None)
        _add(self._unfinished, (team, agent), len(queue))

    async def recount_all(self, store: Store) -> None:
        """Read what waits for everybody."""
        unfinished: dict[Key, int] = {}
        for team, _, recipient, count in await store.unfinished():
            _add(unfinished, (team, recipient), count)
        self._unfinished = unfinished
        self._held = {}
        for team in {team for team, _ in unfinished}:
            await self._load_held(store, team)

    def queued(self, team: str, agent: str) -> int:
        """Return how many unfinished handoffs an agent is the recipient of."""
        return self._unfinished.get((team, agent), 0)

    def holds(self, team: str, agent: str) -> bool:
        """Whether an agent has something in its hands."""
        return (team, agent) in self._held

    def move(self, before: Handoff | None, after: Handoff) -> None:
        """Count what became of a handoff."""
        if before is not None:
            if (
                before.live is after.live
                and before.outcome is after.outcome
                and before.recipient == after.recipient
            ):
                return
            self._count(before, -1)
        self._count(after, 1)

    def _count(self, handoff: Handoff, n: int) -> None:
        if handoff.outcome is None:
            key = (handoff.team, handoff.recipient)
            _add(self._unfinished, key, n)
            if handoff.live:
                _add(self._held, key, n)


def _add(counts: dict[Key, int], key: Key, n: int) -> None:
    """Add `n`; what comes to nothing is not kept."""
    count = counts.get(key, 0) + n
    if count > 0:
        counts[key] = count
    else:
        counts.pop(key, None)
