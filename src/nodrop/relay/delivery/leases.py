"""Leases: which processes have been heard of lately.

A heartbeat keeps everything that its process holds, so it costs one row however much that is. The
relay's own downtime is nobody's silence: after a start every known process counts as just seen.
"""

import heapq
from collections.abc import Iterable

from msgspec.structs import replace

from nodrop.log.port import Key, Process
from nodrop.model import clocks
from nodrop.model.handoff import Handoff
from nodrop.model.limits import Limits


class Leases:
    """The signs of life of every process, and when to look after one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._beats_min = min(limits.lease_heartbeats, limits.lease_heartbeats_unacknowledged)
        """Heartbeats that a process may miss before it can lose anything."""
        self._now = 0
        """As of the last commit."""
        self._processes: dict[Key, Process] = {}
        self._kept: dict[Key, int] = {}
        """The heartbeat of each process as the store has it, where no other engine writes there."""
        self._look_at: dict[Key, int] = {}
        self._checks: list[tuple[int, Key]] = []
        """Everything in `_look_at`, earliest first, among times that no longer count."""

    def restore(self, processes: list[Process], *, up_since: int) -> None:
        """Begin with what the store remembers."""
        self._now = up_since
        for process in processes:
            # Whatever the clock said when it was last heard of: it may have been set back since.
            self.see(replace(process, seen_at=up_since))

    def learn(self, processes: Iterable[Process], *, up_since: int) -> None:
        """Take over what other engines heard; before `up_since` nobody listened."""
        for process in processes:
            self.see(replace(process, seen_at=max(process.seen_at, up_since)))

    def ignore_before(self, up_since: int) -> None:
        """Count no silence before `up_since`: no relay served then."""
        self.learn(list(self._processes.values()), up_since=up_since)

    def see(self, process: Process) -> Process:
        """Note a sign of life; return the process as it is known from now on."""
        key = (process.team, process.id)
        known = self._processes.get(key)
        if known is not None:
            # Looked after as often as the most impatient of its deliveries needs it.
            beat = min(known.heartbeat_ms, process.heartbeat_ms)
            process = replace(
                process, heartbeat_ms=beat, seen_at=max(known.seen_at, process.seen_at)
            )
        self._processes[key] = process
        self._schedule(key, self._lapses_first_at(process))
        return process

    def hear(self, team: str, process: str, now: int) -> None:
        """Note a sign of life of a process, if it is known."""
        known = self._processes.get((team, process))
        if known is not None:
            self.see(replace(known, seen_at=now))

    def get(self, team: str, process: str) -> Process | None:
        """Return a known process."""
        return self._processes.get((team, process))

    def forget(self, team: str, process: str) -> None:
        """Drop a process that is gone and holds nothing."""
        self._processes.pop((team, process), None)
        self._kept.pop((team, process), None)
        self._look_at.pop((team, process), None)

    def kept(self, processes: Iterable[Process]) -> None:
        """Know that the store has these, and that only this engine can drop them from it."""
        for process in processes:
            self._kept[process.team, process.id] = process.heartbeat_ms

    def is_kept(self, team: str, process: str, *, heartbeat_ms: int) -> bool:
        """Whether a process is known, looked after at least as often as that, and kept so."""
        known = self._processes.get((team, process))
        if known is None or known.heartbeat_ms > heartbeat_ms:
            return False
        return self._kept.get((team, process)) == known.heartbeat_ms

    def doubt(self) -> None:
        """Know no longer what the store has: a commit failed, and may have been kept all the same."""
        self._kept.clear()

    def until(self, handoff: Handoff) -> int | None:
        """Return when the process that holds `handoff` loses it; None where no lease runs."""
        if not handoff.live or handoff.heartbeat_ms is None:
            return None
        process = self._processes.get((handoff.team, handoff.process or ""))
        if process is None:
            return None
        return clocks.lease_until(handoff, process.seen_at, self._limits, now=self._now)

    def expect(self, handoff: Handoff) -> None:
        """Look after the process that holds `handoff` before it may have lost it."""
        key = (handoff.team, handoff.process or "")
        process = self._processes.get(key)
        if process is None or handoff.heartbeat_ms is None or not handoff.live:
            return
        look_at = self._look_at.get(key)
        if look_at is None or look_at > process.seen_at + self._beats_min * handoff.heartbeat_ms:
            until = clocks.lease_until(handoff, process.seen_at, self._limits, now=self._now)
            if until is not None:
                self._schedule(key, until)

    def next_check(self) -> int | None:
        """Return when some process must be looked after."""
        while self._checks and self._look_at.get(self._checks[0][1]) != self._checks[0][0]:
            heapq.heappop(self._checks)
        return self._checks[0][0] if self._checks else None

    def to_check(self, now: int) -> list[Process]:
        """Return, once, the processes that have been silent long enough to lose something."""
        self._now = now
        silent: list[Process] = []
        if not self._checks or self._checks[0][0] > now:
            return silent
        while (at := self.next_check()) is not None and at <= now:
            _, key = heapq.heappop(self._checks)
            del self._look_at[key]
            process = self._processes[key]
            first = self._lapses_first_at(process)
            if first <= now:
                silent.append(process)
            else:  # it was heard of since: look again when that runs out
                self._schedule(key, first)
        return silent

    def check_at(self, team: str, process: str, at: int) -> None:
        """Look after a process at `at` at the latest."""
        if (team, process) in self._processes:
            self._schedule((team, process), at)

    def _schedule(self, key: Key, at: int) -> None:
        if at < self._look_at.get(key, at + 1):
            self._look_at[key] = at
            heapq.heappush(self._checks, (at, key))

    def _lapses_first_at(self, process: Process) -> int:
        return process.seen_at + self._limits.lease_heartbeats * process.heartbeat_ms
