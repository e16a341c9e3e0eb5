"""Those who wait: for work, for a handoff to move, for mail, for the log.

Waiting costs a place in a dict and nothing else: nobody polls. A commit wakes exactly those whom
it concerns; being woken is a hint, and whoever is woken looks again.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from nodrop.core.model import Handoff
from nodrop.store import Key

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
        doubt: Callable[[], object],
        command_id: str | None = None,
        request: bytes | None = None,
        once: bool = False,
    ) -> None:
        self.team = team
        self.agent = agent
        self.process = process
        self.heartbeat_ms = heartbeat_ms
        self.deliver = deliver
        self.doubt = doubt
        """Called when a commit with deliveries to it failed: they may have been kept all the same."""
        self.command_id = command_id
        self.request = request
        """The digest of what it asked for under that id."""
        self.once = once
        self.free = 0

    def replaces(self, other: "Taker") -> bool:
        """Whether this is `other` asking again, over another connection.

        Whoever asks again has given the earlier connection up, whether or not its end has arrived:
        what would still be delivered there is delivered to nobody.
        """
        if self.once or other.once:
            return self.command_id is not None and self.command_id == other.command_id
        return self.process == other.process


class Takers:
    """Who waits for work, by agent. Takers of one agent are served in turn."""

    def __init__(self) -> None:
        self._by_agent: defaultdict[Key, deque[Taker]] = defaultdict(deque)
        self._hungry: dict[Key, None] = {}
        self._emptied: set[Key] = set()
        """Agents that were given all there was in their inboxes: what comes in later is seen coming."""

    def join(self, taker: Taker, *, free: int) -> None:
        """Let `taker` wait for `free` deliveries, in place of whom it replaces."""
        waiting = self._by_agent[taker.team, taker.agent]
        for other in [other for other in waiting if taker.replaces(other)]:
            waiting.remove(other)
        waiting.append(taker)
        self.grant(taker, free)

    def grant(self, taker: Taker, n: int) -> None:
        """Let `taker` have `n` more."""
        taker.free += n
        key = (taker.team, taker.agent)
        if taker.free > 0 and key not in self._emptied:
            self._hungry[key] = None

    def emptied(self, team: str, agent: str) -> None:
        """Know that an inbox holds nothing more to be taken."""
        self._emptied.add((team, agent))

    def leave(self, taker: Taker) -> None:
        """Forget `taker`. Harmless if it is not there."""
        key = (taker.team, taker.agent)
        waiting = self._by_agent.get(key)
        if waiting is not None and taker in waiting:
            waiting.remove(taker)
            if not waiting:
                del self._by_agent[key]

    def waits(self, taker: Taker) -> bool:
        """Whether `taker` is still there."""
        return taker in self._by_agent.get((taker.team, taker.agent), ())

    def connected(self, team: str, agent: str) -> bool:
        """Whether anybody waits for this agent's work."""
        return (team, agent) in self._by_agent

    def agents(self) -> list[Key]:
        """Return the agents that somebody waits for."""
        return list(self._by_agent)

    def wanting(self) -> list[Key]:
        """Return the agents whose takers can have something."""
        return [key for key in self._by_agent if self.free(*key)]

    def hungry(self) -> list[Key]:
        """Return, once, the agents for which the inbox must be looked through."""
        keys = [key for key in self._hungry if self.free(*key)]
        self._emptied.difference_update(self._hungry)  # who can have nothing now looks later
        self._hungry.clear()
        return keys

    def starve(self, keys: Iterable[Key] | None = None) -> None:
        """Look through these inboxes again; None: through all, because nobody knows what is there."""
        starved = list(self._by_agent if keys is None else keys)
        self._hungry.update(dict.fromkeys(starved))
        if keys is None:
            self._emptied.clear()
        else:
            self._emptied.difference_update(starved)

    def free(self, team: str, agent: str) -> int:
        """Return how many deliveries the agent's takers can have."""
        return sum(max(t.free, 0) for t in self._by_agent.get((team, agent), ()))

    def assign(
        self, team: str, agent: str, handoffs: Sequence[Handoff]
    ) -> list[tuple[Taker, Handoff]]:
        """Return who gets what, in turn; credit is used up only by `served`."""
        waiting = self._by_agent.get((team, agent), deque[Taker]())
        left = {id(t): t.free for t in waiting}
        assigned: list[tuple[Taker, Handoff]] = []
        for handoff in handoffs:
            taker = next((t for t in waiting if left[id(t)] > 0), None)
            if taker is None:
                break
            left[id(taker)] -= 1
            assigned.append((taker, handoff))
            waiting.rotate(-1)
        return assigned

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
        taker.doubt()


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
        self._waiting: defaultdict[K, set[asyncio.Future[None]]] = defaultdict(set)

    def watch(self, key: K) -> "Watch[K]":
        """Wait for the next change of `key`. Enter before looking, so that none is missed."""
        return Watch(self._waiting, key)

    def __contains__(self, key: K) -> bool:
        return key in self._waiting

    def wake(self, key: K) -> None:
        """Wake everybody who waits for `key`."""
        for future in self._waiting.get(key, ()):
            if not future.done():
                future.set_result(None)

    def wake_all(self) -> None:
        """Wake everybody: the relay is about to stop."""
        for key in list(self._waiting):
            self.wake(key)
