"""Leases: which processes have been heard of lately.

A heartbeat keeps everything that its process holds, so it costs one row however much that is. The
relay's own downtime is nobody's silence: after a start every known process counts as just seen.
"""

import heapq

from msgspec.structs import replace

from nodrop.core import clocks
from nodrop.core.limits import Limits
from nodrop.core.model import Handoff
from nodrop.store import Key, Process


class Leases:
    """The signs of life of every process, and when to look after one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._processes: dict[Key, Process] = {}
        self._checks: list[tuple[int, Key]] = []

    def restore(self, processes: list[Process], *, up_since: int) -> None:
        """Begin with what the store remembers."""
        for process in processes:
            self.see(replace(process, seen_at=max(process.seen_at, up_since)))

    def see(self, process: Process) -> None:
        """Note a sign of life."""
        key = (process.team, process.id)
        known = self._processes.get(key)
        self._processes[key] = process
        if known is None or known.heartbeat_ms > process.heartbeat_ms:
            heapq.heappush(self._checks, (self._lapses_first_at(process), key))

    def get(self, team: str, process: str) -> Process | None:
        """Return a known process."""
        return self._processes.get((team, process))

    def forget(self, team: str, process: str) -> None:
        """Drop a process that is gone and holds nothing."""
        self._processes.pop((team, process), None)

    def until(self, handoff: Handoff) -> int | None:
        """Return when the process that holds `handoff` loses it; None where no lease runs."""
        process = self._processes.get((handoff.team, handoff.process or ""))
        if process is None:
            return None
        return clocks.lease_until(handoff, process.seen_at, self._limits)

    def next_check(self) -> int | None:
        """Return when some process must be looked after."""
        return self._checks[0][0] if self._checks else None

    def to_check(self, now: int) -> list[Process]:
        """Return, once, the processes that have been silent long enough to lose something."""
        silent: list[Process] = []
        while self._checks and self._checks[0][0] <= now:
            _, key = heapq.heappop(self._checks)
            process = self._processes.get(key)
            if process is None:
                continue
            first = self._lapses_first_at(process)
            if first <= now:
                silent.append(process)
            else:  # it was heard of since: look again when that runs out
                heapq.heappush(self._checks, (first, key))
        return silent

    def check_at(self, process: Process, at: int) -> None:
        """Look after `process` again at `at`."""
        heapq.heappush(self._checks, (at, (process.team, process.id)))

    def _lapses_first_at(self, process: Process) -> int:
        return process.seen_at + self._limits.lease_heartbeats * process.heartbeat_ms
