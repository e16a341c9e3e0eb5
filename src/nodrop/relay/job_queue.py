"""The queue of jobs for the next commits, fair between agents: it takes from each in turn.

An agent with thousands of commands on their way delays its own, and one command of others goes into the
next batch. The jobs of one agent stay in order. The relay's own jobs count as one agent's.
"""

from collections import deque
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from nodrop.log.port import Key
from nodrop.relay.jobs import Job


class JobQueue:
    """A queue of jobs, fair between agents."""

    def __init__(self) -> None:
        self._lines: dict[Key | None, deque[Job[Any]]] = {}
        """By agent, the one whose turn it is first."""
        self.count = 0
        """How many jobs wait."""

    def __iter__(self) -> Iterator[Job[Any]]:
        for line in self._lines.values():
            yield from line

    def of(self, agent: Key | None) -> int:
        """Return how many jobs of an agent wait."""
        return len(self._lines.get(agent, ()))

    def append(self, job: Job[Any]) -> None:
        """Have `job` wait behind the others of its agent."""
        line = self._lines.get(job.by)
        if line is None:
            line = self._lines[job.by] = deque()
        line.append(job)
        self.count += 1

    def take(self, most: int) -> list[Job[Any]]:
        """Return the next jobs, one of each agent in turn, at most so many."""
        if self.count <= most:
            turns = zip_longest(*self._lines.values())
            taken = [job for turn in turns for job in turn if job is not None]
            self._lines.clear()
            self.count = 0
            return taken
        taken: list[Job[Any]] = []
        while self._lines and len(taken) < most:
            agent = next(iter(self._lines))
            line = self._lines.pop(agent)
            alone = not self._lines
            count = min(most - len(taken), len(line)) if alone else 1
            taken += [line.popleft() for _ in range(count)]
            if line:
                self._lines[agent] = line
        self.count -= len(taken)
        return taken

    def clear(self) -> None:
        """Forget all of them."""
        self._lines.clear()
        self.count = 0
