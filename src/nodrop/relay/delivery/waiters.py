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


class Life:
    """The signs of life of a process, whatever connections it has."""

    __slots__ = ("heard_at", "silent", "takers")

    def __init__(self) -> None:
        self.heard_at = 0
        """When it last showed one."""
        self.silent = False
        """It lost a lease, and has shown no sign of life since."""
        self.takers: set[Taker] = set()


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
        self.key: Key = (team, agent)
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
        self.life = Life()
        """Of its process: shared with its other connections from when it joins."""

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

    def __init__(self, limits: Limits, *, wake: Callable[[], None]) -> None:
        """Call `wake` when an inbox must be looked through."""
        self._limits = limits
        self._wake = wake
        self.by_agent: defaultdict[Key, deque[Taker]] = defaultdict(deque)
        """Nobody is here without a connection."""
        self.lives: dict[Key, Life] = {}
        """By process."""
        self.unchecked: dict[Key, None] = {}
        """Agents whose inboxes must be looked through. See `to_check`."""
        self.emptied: set[Key] = set()
        """Agents that were given all there was in their inboxes: what comes in later is seen coming."""

    def join(self, taker: Taker, *, free: int, now: int) -> None:
        """Let `taker` wait for `free` deliveries, in place of whom it replaces."""
        taker.life = self.lives.setdefault((taker.team, taker.process), taker.life)
        taker.life.takers.add(taker)
        waiting = self.by_agent[taker.key]
        for other in [other for other in waiting if taker.replaces(other)]:
            waiting.remove(other)
            self._disconnect(other)
        waiting.append(taker)
        self.grant(taker, free, now=now)

    def grant(self, taker: Taker, n: int, *, now: int) -> None:
        """Let `taker` have `n` more. It asks for them, so its process is alive."""
        life = taker.life
        life.heard_at = now
        if life.silent:
            self._heard_again(life)
        taker.free += n
        if taker.free > 0 and taker.key not in self.emptied:
            self.unchecked[taker.key] = None
        if self.unchecked:
            self._wake()

    def leave(self, taker: Taker) -> None:
        """Forget `taker`. Harmless if it is not there."""
        waiting = self.by_agent.get(taker.key)
        if waiting is not None and taker in waiting:
            waiting.remove(taker)
            if not waiting:
                del self.by_agent[taker.key]
            self._disconnect(taker)

    def _disconnect(self, taker: Taker) -> None:
        takers = taker.life.takers
        takers.discard(taker)
        if not takers:
            del self.lives[taker.team, taker.process]

    def hear(self, team: str, process: str, at: int) -> None:
        """Note a sign of life of a process: it may be delivered to again."""
        life = self.lives.get((team, process))
        if life is not None:
            life.heard_at = at
            if life.silent:
                self._heard_again(life)

    def _heard_again(self, life: Life) -> None:
        life.silent = False
        self.recheck([taker.key for taker in life.takers])
        self._wake()

    def learn(self, team: str, process: str, seen_at: int) -> None:
        """Note a sign of life that another node saw, unless a later one is known."""
        life = self.lives.get((team, process))
        if life is not None and life.heard_at < seen_at:
            self.hear(team, process, seen_at)

    def lapsed(self, team: str, process: str, at: int) -> None:
        """Deliver nothing to a process that lost a lease until it shows a sign of life."""
        life = self.lives.get((team, process))
        if life is not None and life.heard_at < at:
            life.silent = True

    def waits(self, taker: Taker) -> bool:
        """Whether `taker` is still there."""
        return taker in self.by_agent.get(taker.key, ())

    def connected(self, team: str, agent: str) -> bool:
        """Whether anybody waits for this agent's work."""
        return (team, agent) in self.by_agent

    def listening(self, team: str, agent: str) -> Taker | None:
        """Return a connection of an agent that wants to know what waits without credit."""
        takers = self.by_agent.get((team, agent), ())
        return next((t for t in takers if t.offered is not None and not t.life.silent), None)

    def agents(self) -> list[Key]:
        """Return the agents that somebody waits for."""
        return list(self.by_agent)

    def with_credit(self) -> list[Key]:
        """Return the agents whose takers can have something."""
        return [key for key in self.by_agent if self.free(*key)]

    def to_check(self) -> list[Key]:
        """Return, once, the agents for which the inbox must be looked through."""
        keys = [key for key in self.unchecked if self.free(*key)]
        self.emptied.difference_update(self.unchecked)  # who can have nothing now looks later
        self.unchecked.clear()
        return keys

    def recheck(self, keys: Iterable[Key] | None = None) -> None:
        """Look through these inboxes again; None: through all, because nobody knows what is there."""
        rechecked = list(self.by_agent if keys is None else keys)
        self.unchecked.update(dict.fromkeys(rechecked))
        if keys is None:
            self.emptied.clear()
        else:
            self.emptied.difference_update(rechecked)

    def free(self, team: str, agent: str) -> int:
        """Return how many deliveries the agent's takers can have."""
        free = 0
        for taker in self.by_agent.get((team, agent), ()):
            if taker.free > 0 and not taker.life.silent:
                free += taker.free
        return free

    def assign(
        self, key: Key, handoffs: Sequence[Handoff], *, now: int
    ) -> list[tuple[Taker, Handoff]]:
        """Return who gets what, in turn; credit is used up only by `served`."""
        waiting = self.by_agent.get(key)
        if waiting is None:
            return []
        if len(waiting) == 1:
            [only] = waiting
            free = 0 if only.life.silent else max(only.free, 0)
            return [(only, handoff) for handoff in handoffs[:free]]
        left = {id(t): 0 if t.life.silent else t.free for t in waiting}
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
        return taker.life.heard_at + self._limits.lease_heartbeats * taker.heartbeat_ms <= now

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
