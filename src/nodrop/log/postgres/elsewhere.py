"""What the other nodes know of agents, read again only where it has changed.

With many agents on many nodes somebody comes or goes all the time: what that costs must not depend
on how many stay.
"""

from collections.abc import Mapping
from typing import Final

from nodrop.log.port import Attending, Key
from nodrop.log.postgres.driver import Ask
from nodrop.log.postgres.place import GONE_AFTER_MS
from nodrop.log.records import value_of


class Elsewhere:
    """The agents that other nodes hear of."""

    def __init__(self) -> None:
        self.agents: dict[Key, Attending] = {}
        """Each as whoever knows most of it."""
        self._versions: dict[str, int] = {}
        self._known: dict[str, dict[Key, Attending]] = {}

    async def learn(self, ask: Ask, nodes: Mapping[str, int]) -> None:
        """Read what each of `nodes` has told since; forget those that are not among them.

        With each node goes a number that grows with every change of what it knows; by time where it
        had to begin again.
        """
        since = {
            node: -1 if self._begins_anew(node, told) else self._versions[node]
            for node, told in nodes.items()
            if self._versions.get(node) != told
        }
        rows = await ask(_NEWER, list(since), list(since.values())) if since else ()
        anew = {node for node, version in since.items() if version < 0}
        stale: set[Key] = set()
        for node in [*(self._known.keys() - nodes.keys()), *(self._known.keys() & anew)]:
            stale |= self._known.pop(node).keys()
        for node, *columns in rows:
            agent = value_of(Attending, tuple(columns))
            self._known.setdefault(node, {})[agent.team, agent.agent] = agent
            stale.add((agent.team, agent.agent))
        self._versions = dict(nodes)
        for key in stale:
            self._merge(key)

    def _begins_anew(self, node: str, told: int) -> bool:
        """Whether what was known of a node says nothing about what it tells now."""
        before = self._versions.get(node)
        if before is None:
            return True
        return not 0 < told - before < GONE_AFTER_MS

    def _merge(self, key: Key) -> None:
        told = [known[key] for known in self._known.values() if key in known]
        if not told:
            self.agents.pop(key, None)
            return
        self.agents[key] = Attending(
            team=key[0],
            agent=key[1],
            connected=any(each.connected for each in told),
            seen_at=max(each.seen_at for each in told),
        )


_NEWER: Final = """
    select a.node, a.team, a.agent, a.connected, a.seen_at
    from unnest($1::text[], $2::bigint[]) u(node, version), lateral (
        select node, team, agent, connected, seen_at from attendance
        where node = u.node and version > u.version offset 0
    ) a
"""
