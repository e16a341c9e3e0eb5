"""A clock that moves when told to."""

import asyncio
import heapq
from itertools import count
from typing import Final

T0: Final = 1_767_225_600_000
"""2026-01-01T00:00:00Z in milliseconds since the epoch."""


class FakeClock:
    """Starts at `T0`; `advance` and `set` are the only ways forward."""

    def __init__(self, start: int = T0) -> None:
        self._now = start
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = count()

    def now(self) -> int:
        """Return the current fake time."""
        return self._now

    async def sleep_until(self, at: int) -> None:
        """Return when the clock has been moved to `at` or past it."""
        if at <= self._now:
            # Still a suspension, as with a real clock: a loop that sleeps must let others run.
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (at, next(self._arrivals), woken))
        await woken

    def processor_seconds(self) -> float:
        """Return 0: nothing takes time, so that no test depends on how fast its machine is."""
        return 0.0

    def advance(self, ms: int) -> None:
        """Move time forward and wake whose time has come, earliest first."""
        self.set(self._now + ms)

    def set(self, at: int) -> None:
        """Move time forward to `at` and wake whose time has come, earliest first."""
        assert at >= self._now, "time does not run backwards"
        self._now = at
        while self._sleepers and self._sleepers[0][0] <= at:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # a cancelled sleeper is done already
                woken.set_result(None)
