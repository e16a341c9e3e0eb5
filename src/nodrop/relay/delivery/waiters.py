"""Those who wait: for work, for a handoff to move, for mail, for the log.

Waiting costs a place in a dict and nothing else: nobody polls. A commit wakes exactly those whom
it concerns; being woken is a hint, and whoever is woken looks again.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from nodrop.log.port import Key
from nodrop.model.commands import Actor, Deliver
from nodrop.model.handoff import Handoff
from nodrop.model.limits import Limits
from nodrop.protocol.views import WaitingView

K = TypeVar("K", bound=Hashable)


class Taker:
    """A connection of an agent that can take so many more deliveries."""

    def __init__(
        self,
        *,
        team: str,
        agent: str,
        process: str,
        heartbeat_ms: int | None,
        deliver: Callable[[Sequence[Handoff]], None],
        doubt: Callable[["Taker"], object],
        command_id: str | None = None,
        request: bytes | None = None,
        once: bool = False,
        offered: Callable[[Sequence[WaitingView]], None] | None = None,
    ) -> None:
        self.team = team
        self.agent = agent
        self.actor = Actor(agent=agent)
        self.process = process
        self.heartbeat_ms = heartbeat_ms
        self.command = Deliver(process=process, heartbeat_ms=heartbeat_ms)
        """Gives it a handoff."""
        self.deliver = deliver
        self.doubt = doubt
        """Called with it when a commit with deliveries to it failed: they may have been kept all the same."""
        self.command_id = command_id
        self.request = request
        """The digest of what it asked for under that id."""
        self.once = once
        self.offered = offered
        """Told of what waits for its agent without credit; None: it does not want to know."""
        self.free = 0
        self.heard_at = 0
        """When its process last showed a sign of life."""
        self.silent = False
        """A lease of its process lapsed, and the process has shown no sign of life since."""

    def replaces(self, other: "Taker") -> bool:
        """Whether this is the process of `other` over another connection.

        A process that connects again has given the earlier connection up, whether or not its end
        has arrived: what would still be delivered there is delivered to nobody.
        """
        return not (self.once or other.once) and self.process == other.process


class Takers:
    """Who waits for work, by agent. Takers of one agent are served in turn.

    A process that lost a lease gets nothing until it shows a sign of life: the next try would be
    lost as well. One that has been quiet for as long, holding nothing, is served after the others.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.by_agent: defaultdict[Key, deque[Taker]] = defaultdict(deque)
        self._by_process: defaultdict[Key, set[Taker]] = defaultdict(set)
        self._unchecked: dict[Key, None] = {}
        self._emptied: set[Key] = set()
        """Agents that were given all there was in their inboxes: what comes in later is seen coming."""

    def join(self, taker: Taker, *, free: int, now: int) -> None:
        """Let `taker` wait for `free` deliveries, in place of whom it replaces."""
        waiting = self.by_agent[taker.team, taker.agent]
        for other in [other for other in waiting if taker.replaces(other)]:
            waiting.remove(other)
            self._disconnect(other)
        waiting.append(taker)
        self._by_process[taker.team, taker.process].add(taker)
        self.grant(taker, free, now=now)

    def grant(self, taker: Taker, n: int, *, now: int) -> bool:
        """Let `taker` have `n` more; return whether something may wait for it.

        It asks for them, so its process is alive.
        """
        self.hear(taker.team, taker.process, now)
        taker.free += n
        key = (taker.team, taker.agent)
        if taker.free > 0 and key not in self._emptied:
            self._unchecked[key] = None
        return bool(self._unchecked)

    def emptied(self, team: str, agent: str) -> None:
        """Know that an inbox holds nothing more to be taken."""
        self._emptied.add((team, agent))

    def leave(self, taker: Taker) -> None:
        """Forget `taker`. Harmless if it is not there."""
        key = (taker.team, taker.agent)
        waiting = self.by_agent.get(key)
        if waiting is not None and taker in waiting:
            waiting.remove(taker)
            if not waiting:
                del self.by_agent[key]
            self._disconnect(taker)

    def _disconnect(self, taker: Taker) -> None:
        connections = self._by_process[taker.team, taker.process]
        connections.discard(taker)
        if not connections:
            del self._by_process[taker.team, taker.process]

    def hear(self, team: str, process: str, at: int) -> bool:
        """Note a sign of life of a process; return whether it may be delivered to again."""
        back = False
        for taker in self._by_process.get((team, process), ()):
            taker.heard_at = at
            if taker.silent:
                taker.silent, back = False, True
                self.recheck([(team, taker.agent)])
        return back

    def learn(self, team: str, process: str, seen_at: int) -> bool:
        """Note a sign of life that another node saw, unless a later one is known."""
        connections = self._by_process.get((team, process), ())
        later = any(taker.heard_at < seen_at for taker in connections)
        return later and self.hear(team, process, seen_at)

    def lapsed(self, team: str, process: str, at: int) -> None:
        """Deliver nothing to a process that lost a lease until it shows a sign of life."""
        for taker in self._by_process.get((team, process), ()):
            taker.silent = taker.silent or taker.heard_at < at

    def waits(self, taker: Taker) -> bool:
        """Whether `taker` is still there."""
        return taker in self.by_agent.get((taker.team, taker.agent), ())

    def connected(self, team: str, agent: str) -> bool:
        """Whether anybody waits for this agent's work."""
        return (team, agent) in self.by_agent

    def listening(self, team: str, agent: str) -> Taker | None:
        """Return a connection of an agent that wants to know what waits without credit."""
        takers = self.by_agent.get((team, agent), ())
        return next((t for t in takers if t.offered is not None and not t.silent), None)

    def agents(self) -> list[Key]:
        """Return the agents that somebody waits for."""
        return list(self.by_agent)

    def with_credit(self) -> list[Key]:
        """Return the agents whose takers can have something."""
        return [key for key in self.by_agent if self.free(*key)]

    def to_check(self) -> list[Key]:
        """Return, once, the agents for which the inbox must be looked through."""
        if not self._unchecked:
            return []
        keys = [key for key in self._unchecked if self.free(*key)]
        self._emptied.difference_update(self._unchecked)  # who can have nothing now looks later
        self._unchecked.clear()
        return keys

    def recheck(self, keys: Iterable[Key] | None = None) -> None:
        """Look through these inboxes again; None: through all, because nobody knows what is there."""
        rechecked = list(self.by_agent if keys is None else keys)
        self._unchecked.update(dict.fromkeys(rechecked))
        if keys is None:
            self._emptied.clear()
        else:
            self._emptied.difference_update(rechecked)

    def free(self, team: str, agent: str) -> int:
        """Return how many deliveries the agent's takers can have."""
        free = 0
        for taker in self.by_agent.get((team, agent), ()):
            if taker.free > 0 and not taker.silent:
                free += taker.free
        return free

    def has_once(self, team: str, agent: str) -> bool:
        """Whether one of the agent's takers is given all that it gets in one answer."""
        return any([taker.once for taker in self.by_agent.get((team, agent), ())])  # noqa: C419  # a list is quicker for so few

    def assign(
        self, team: str, agent: str, handoffs: Sequence[Handoff], *, now: int
    ) -> list[tuple[Taker, Handoff]]:
        """Return who gets what, in turn; credit is used up only by `served`."""
        waiting = self.by_agent.get((team, agent))
        if waiting is None:
            return []
        if len(waiting) == 1:
            [only] = waiting
            free = 0 if only.silent else max(only.free, 0)
            return [(only, handoff) for handoff in handoffs[:free]]
        left = {id(t): 0 if t.silent else t.free for t in waiting}
        quiet = {id(t) for t in waiting if self._quiet(t, now)}
        assigned: list[tuple[Taker, Handoff]] = []
        for handoff in handoffs:
            free = [t for t in waiting if left[id(t)] > 0]
            taker = next((t for t in free if id(t) not in quiet), None)
            if taker is None and free:
                taker = free[0]
            if taker is None:
                break
            left[id(taker)] -= 1
            assigned.append((taker, handoff))
            waiting.rotate(-1)
        return assigned

    def _quiet(self, taker: Taker, now: int) -> bool:
        """Whether its process would have lost by now what it had accepted."""
        if taker.heartbeat_ms is None:
            return False
        return taker.heard_at + self._limits.lease_heartbeats * taker.heartbeat_ms <= now

    def served(self, taker: Taker, handoffs: Sequence[Handoff]) -> None:
        """Hand over what was committed."""
        taker.free -= len(handoffs)
        if taker.once:
            self.leave(taker)
        taker.deliver(handoffs)

    def doubted(self, taker: Taker) -> None:
        """Tell `taker` that nobody knows whether it was handed something over."""
        if taker.once:
            self.leave(taker)
        taker.doubt(taker)


class Watch(Generic[K]):
    """Somebody who waits, for as long as the block lasts."""

    def __init__(self, waiting: defaultdict[K, set[asyncio.Future[None]]], key: K) -> None:
        self._waiting = waiting
        self._key = key
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __enter__(self) -> asyncio.Future[None]:
        self._waiting[self._key].add(self._changed)
        return self._changed

    def __exit__(self, *exc_info: object) -> None:
        waiting = self._waiting.get(self._key)
        if waiting is not None:
            waiting.discard(self._changed)
            if not waiting:
                del self._waiting[self._key]


class Watchers(Generic[K]):
    """Who waits for something about `K` to change."""

    def __init__(self) -> None:
        self.waiting: defaultdict[K, set[asyncio.Future[None]]] = defaultdict(set)
        """By what is waited for: most commits have nobody to wake."""

    def watch(self, key: K) -> "Watch[K]":
        """Wait for the next change of `key`. Enter before looking, so that none is missed."""
        return Watch(self.waiting, key)

    def __contains__(self, key: K) -> bool:
        return key in self.waiting

    def wake(self, key: K) -> None:
        """Wake everybody who waits for `key`."""
        for future in self.waiting.get(key, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """Wake everybody: the relay is about to stop."""
        for key in list(self.waiting):
            self.wake(key)
