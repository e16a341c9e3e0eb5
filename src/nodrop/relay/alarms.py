"""Alarms: everybody who waits until some time, behind one sleeper.

A wait that ends early, as most do, costs a place in a dict and never a task or a timer of its own.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import Any

from nodrop.relay.ports import Clock

log = logging.getLogger("nodrop.relay")


class Alarm:
    """Somebody to be woken at a time, unless cancelled before."""

    __slots__ = ("at", "ring")

    def __init__(self, at: int, ring: Callable[[], object]) -> None:
        self.at = at
        self.ring = ring


class Alarms:
    """Who is to be woken when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._alarms: dict[int, dict[Alarm, None]] = {}
        """By time, and at one time in the order of asking: a simulation is the same each time."""
        self._times: list[int] = []
        """Every time in `_alarms`, earliest first, among times that nobody waits for any more."""
        self._sleeper: asyncio.Task[None] | None = None
        self._armed_at: int | None = None
        self._closed = False

    def set(self, at: int, ring: Callable[[], object]) -> Alarm:
        """Have `ring` called when it is `at`. It does not wait."""
        alarm = Alarm(at, ring)
        together = self._alarms.get(at)
        if together is None:
            self._alarms[at] = {alarm: None}
            heapq.heappush(self._times, at)
            if self._armed_at is None or at < self._armed_at:
                self._arm()
        else:
            together[alarm] = None
        return alarm

    def cancel(self, alarm: Alarm) -> None:
        """Let `alarm` not ring. Harmless if it did."""
        together = self._alarms.get(alarm.at)
        if together is not None:
            together.pop(alarm, None)
            if not together:
                del self._alarms[alarm.at]

    async def until(self, future: "asyncio.Future[Any]", at: int) -> None:
        """Return when `future` is done or it is `at`, whichever is first."""
        over = asyncio.get_running_loop().create_future()

        def end(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        alarm = self.set(at, end)
        future.add_done_callback(end)
        try:
            await over
        finally:
            future.remove_done_callback(end)
            self.cancel(alarm)

    def close(self) -> None:
        """Wake nobody any more."""
        self._closed = True
        if self._sleeper is not None:
            self._sleeper.cancel()

    def _arm(self) -> None:
        """Sleep until the earliest time that somebody waits for."""
        while self._times and self._times[0] not in self._alarms:
            heapq.heappop(self._times)
        self._armed_at = self._times[0] if self._times else None
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None
        if self._armed_at is not None and not self._closed:
            self._sleeper = asyncio.create_task(self._sleep(self._armed_at), name="nodrop alarms")

    async def _sleep(self, at: int) -> None:
        await self._clock.sleep_until(at)
        self._sleeper = None
        now = self._clock.now()
        while self._times and self._times[0] <= now:
            for alarm in self._alarms.pop(heapq.heappop(self._times), ()):
                try:
                    alarm.ring()
                except Exception:
                    log.exception("an alarm could not be heard")
        self._arm()
