"""Virtual time: the fake clock, and when somebody waits for it next."""

import heapq

from nodrop.testing.clock import T0, FakeClock


class VirtualClock(FakeClock):
    """A clock that knows the next time anybody sleeps until."""

    def __init__(self, start: int = T0, *, grain_ms: int = 1) -> None:
        """Begin at `start`; sleeps end at multiples of `grain_ms`, so that many end together."""
        super().__init__(start)
        self._grain_ms = grain_ms
        self._alarms: list[int] = []

    async def sleep_until(self, at: int) -> None:
        """Return when the clock has been moved to `at` or past it."""
        if at > self.now():
            heapq.heappush(self._alarms, at)
        await super().sleep_until(at)

    async def sleep(self, ms: float) -> None:
        """Return when so much time has passed."""
        grains = -(-round(self.now() + ms) // self._grain_ms)
        await self.sleep_until(grains * self._grain_ms)

    def next_alarm(self) -> int | None:
        """Return the earliest time to come that somebody asked for, even if it is gone since."""
        while self._alarms and self._alarms[0] <= self.now():
            heapq.heappop(self._alarms)
        return self._alarms[0] if self._alarms else None
