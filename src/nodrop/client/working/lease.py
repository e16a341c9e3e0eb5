"""The lease of a delivery, as far as this process can be sure of it.

The relay gives a delivery to another process once it has missed three heartbeats. A process that
was stopped, swapped out or suspended does not notice: it goes on where it was. So before it does
something that cannot be undone, it compares its own clock with the last confirmation of the lease.
"""

import asyncio
import functools
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from nodrop.model.errors import StaleAttemptError
from nodrop.model.limits import Limits

MARGIN_HEARTBEATS: Final = 1
"""The part of a lease that must be left for an effect to begin. Heartbeats in time never leave less."""
_SURE_HEARTBEATS: Final = Limits().lease_heartbeats - MARGIN_HEARTBEATS


def _clock() -> Callable[[], float]:
    if sys.platform == "linux":
        return functools.partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # where `time.monotonic` stands still
        return functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    return time.monotonic


seconds_since_boot: Final = _clock()
"""A clock that never goes back, and that goes on while the machine is suspended."""


class ActiveTime:
    """How long an attempt has been worked on: since it arrived, without waiting for answers."""

    def __init__(self, now: Callable[[], float], since: float) -> None:
        self.runs = asyncio.Event()
        """Cleared while the attempt waits for an answer."""
        self.runs.set()
        self._now = now
        self._since = since
        """When it would have begun, had it never waited."""

    @property
    def seconds(self) -> float:
        """The active time so far, any wait for an answer that goes on included."""
        return self._now() - self._since

    @contextmanager
    def paused(self) -> Generator[None]:
        """Let the active time stand still, as the relay does."""
        began = self._now()
        self.runs.clear()
        try:
            yield
        finally:
            self._since += self._now() - began
            self.runs.set()


class Lease:
    """A delivery's lease. Confirmed by an answered ack, and by every answered heartbeat."""

    lost = False
    """The relay said that the delivery is no longer this process's."""
    handling: asyncio.Task[Any] | None = None
    """The task that runs the handler, while it does."""
    _active: ActiveTime | None = None
    _confirmed_at = float("-inf")

    def __init__(
        self,
        *,
        heartbeat_seconds: float,
        now: Callable[[], float],
        renew: Callable[[], Awaitable[object]],
        renewing: asyncio.Lock,
    ) -> None:
        """Begin without a confirmation.

        Args:
            heartbeat_seconds: how often the process promised a heartbeat.
            now: the clock, in seconds.
            renew: sends a heartbeat, and returns when the leases it renewed are confirmed and the
                others are lost.
            renewing: held meanwhile, so that one heartbeat does for all deliveries.
        """
        self.now = now
        self.arrived_at = now()
        self._sure_seconds = _SURE_HEARTBEATS * heartbeat_seconds
        self._renew = renew
        self._renewing = renewing

    @property
    def active(self) -> ActiveTime:
        """How long the attempt has been worked on."""
        if self._active is None:  # few ask: those with a timeout, or a question
            self._active = ActiveTime(self.now, self.arrived_at)
        return self._active

    def lose(self) -> None:
        """Cancel the handler: another process has the delivery, or the handoff has ended.

        Once: a handler that is cancelled a second time cannot clean up.
        """
        if not self.lost and self.handling is not None:
            self.handling.cancel()
        self.lost = True

    def confirmed(self, asked_at: float) -> None:
        """Count the lease from when its confirmation was asked for, not from the answer.

        The answer may have waited for this process to go on.
        """
        self._confirmed_at = max(self._confirmed_at, asked_at)

    @property
    def sure(self) -> bool:
        """Whether the delivery is this process's, without asking."""
        return not self.lost and self.now() - self._confirmed_at < self._sure_seconds

    async def check(self) -> bool:
        """Ask the relay now, however long that takes; return whether the delivery is still ours."""
        async with self._renewing:
            if not self.lost:
                await self._renew()
        return not self.lost

    async def require(self) -> None:
        """Return at once if sure; else ask the relay, however long that takes.

        Raises:
            StaleAttemptError: the delivery is no longer this process's.
        """
        if self.sure:
            return
        async with self._renewing:
            while not self.sure:  # a stall may fall between the question and its answer
                if self.lost:
                    raise lapsed()
                await self._renew()


def lapsed() -> StaleAttemptError:
    """Return the error of a process whose delivery went on without it."""
    return StaleAttemptError("this process lost the delivery, and the handoff went on")
