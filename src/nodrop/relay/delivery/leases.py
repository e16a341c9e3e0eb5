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
from nodrop.relay.ports import NEVER


class _Known:
    """A process that was heard of."""

    __slots__ = ("kept", "look_at", "process")

    def __init__(self, process: Process) -> None:
        self.process = process
        self.kept: int | None = None
        """Its heartbeat as the store has it, where no other engine writes there."""
        self.look_at = NEVER
        """When to look after it."""


class Leases:
    """The signs of life of every process, and when to look after one."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._beats_min = min(limits.lease_heartbeats, limits.lease_heartbeats_unacknowledged)
        """Heartbeats that a process may miss before it can lose anything."""
        self.now = 0
        """As of the last commit."""
        self._known: dict[Key, _Known] = {}
        self._checks: list[tuple[int, Key]] = []
        """When to look after whom, earliest first, among times that no longer count."""
        self.next_at = NEVER
        """Nobody must be looked after before this. See `next_check`."""

    def restore(self, processes: list[Process], *, up_since: int) -> None:
        """Begin with what the store remembers."""
        self.now = up_since
        for process in processes:
            # Whatever the clock said when it was last heard of: it may have been set back since.
            self.see(replace(process, seen_at=up_since))

    def learn(self, processes: Iterable[Process], *, up_since: int) -> None:
        """Take over what other engines heard; before `up_since` nobody listened."""
        for process in processes:
            self.see(replace(process, seen_at=max(process.seen_at, up_since)))

    def ignore_before(self, up_since: int) -> None:
        """Count no silence before `up_since`: no relay served then."""
        self.learn([known.process for known in self._known.values()], up_since=up_since)

    def see(self, process: Process) -> Process:
        """Note a sign of life; return the process as it is known from now on."""
        key = (process.team, process.id)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _Known(process)
        else:
            # Looked after as often as the most impatient of its deliveries needs it.
            before = known.process
            beat = min(before.heartbeat_ms, process.heartbeat_ms)
            seen_at = max(before.seen_at, process.seen_at)
            known.process = process = replace(process, heartbeat_ms=beat, seen_at=seen_at)
        self._schedule(key, known, self._lapses_first_at(process))
        return process

    def hear(self, team: str, process: str, now: int) -> None:
        """Note a sign of life of a process, if it is known."""
        known = self._known.get((team, process))
        if known is not None:
            self.see(replace(known.process, seen_at=now))

    def get(self, team: str, process: str) -> Process | None:
        """Return a known process."""
        known = self._known.get((team, process))
        return None if known is None else known.process

    def forget(self, team: str, process: str) -> None:
        """Drop a process that is gone and holds nothing."""
        self._known.pop((team, process), None)

    def kept(self, processes: Iterable[Process]) -> None:
        """Know that the store has these, and that only this engine can drop them from it."""
        for process in processes:
            known = self._known.get((process.team, process.id))
            if known is not None:
                known.kept = process.heartbeat_ms

    def is_kept(self, team: str, process: str, *, heartbeat_ms: int) -> bool:
        """Whether a process is known, looked after at least as often as that, and kept so."""
        known = self._known.get((team, process))
        if known is None or known.process.heartbeat_ms > heartbeat_ms:
            return False
        return known.kept == known.process.heartbeat_ms

    def doubt(self) -> None:
        """Know no longer what the store has: a commit failed, and may have been kept all the same."""
        for known in self._known.values():
            known.kept = None

    def until(self, handoff: Handoff) -> int | None:
        """Return when the process that holds `handoff` loses it; None where no lease runs."""
        if not handoff.live or handoff.heartbeat_ms is None:
            return None
        known = self._known.get((handoff.team, handoff.process or ""))
        if known is None:
            return None
        return clocks.lease_until(handoff, known.process.seen_at, self._limits, now=self.now)

    def expect(self, handoff: Handoff) -> None:
        """Look after the process that holds `handoff` before it may have lost it."""
        key, beat = (handoff.team, handoff.process or ""), handoff.heartbeat_ms
        known = self._known.get(key)
        if known is None or beat is None:
            return
        seen_at = known.process.seen_at
        if known.look_at > seen_at + self._beats_min * beat:
            until = clocks.lease_until(handoff, seen_at, self._limits, now=self.now)
            if until is not None:
                self._schedule(key, known, until)

    def next_check(self) -> int:
        """Return when some process must be looked after."""
        while self._checks:
            at, key = self._checks[0]
            known = self._known.get(key)
            if known is not None and known.look_at == at:
                break
            heapq.heappop(self._checks)
        self.next_at = self._checks[0][0] if self._checks else NEVER
        return self.next_at

    def to_check(self) -> list[Process]:
        """Return, once, the processes that have been silent long enough by now to lose something."""
        silent: list[Process] = []
        while self.next_check() <= self.now:
            _, key = heapq.heappop(self._checks)
            known = self._known[key]
            known.look_at = NEVER
            first = self._lapses_first_at(known.process)
            if first <= self.now:
                silent.append(known.process)
            else:  # it was heard of since: look again when that runs out
                self._schedule(key, known, first)
        return silent

    def check_at(self, team: str, process: str, at: int) -> None:
        """Look after a process at `at` at the latest."""
        known = self._known.get((team, process))
        if known is not None:
            self._schedule((team, process), known, at)

    def _schedule(self, key: Key, known: _Known, at: int) -> None:
        if at < known.look_at:
            known.look_at = at
            heapq.heappush(self._checks, (at, key))
            self.next_at = min(self.next_at, at)

    def _lapses_first_at(self, process: Process) -> int:
        return process.seen_at + self._limits.lease_heartbeats * process.heartbeat_ms
