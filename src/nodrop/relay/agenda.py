"""The agenda: the earliest time at which the loop must act without being asked.

It is the earliest due time of a handoff, or the time of the next lease check. One task sleeps until
then and wakes `relay.loop`, which knows what each clock means and handles what came due.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from nodrop.log.port import Store
from nodrop.model.errors import NodropError
from nodrop.model.limits import SECOND
from nodrop.relay.delivery.leases import Leases
from nodrop.relay.ports import NEVER, Clock


class Agenda:
    """The one time that matters next."""

    def __init__(
        self, store: Store, leases: Leases, *, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self._store = store
        self._leases = leases
        self._clock = clock
        self._wake = wake
        self.next_due = NEVER
        """No handoff must be looked after before this."""
        self.armed_at = NEVER
        """What the clock is watched for."""
        self._rearm = asyncio.Event()

    async def load(self) -> None:
        """Read the earliest due time of all."""
        self.expect(await self._store.next_due())

    def expect(self, due: int | None) -> None:
        """Know of a due time; the clock is watched for it after `rearm`."""
        if due is not None and due < self.next_due:
            self.next_due = due

    async def read_on(self, now: int, *, later_by: int) -> None:
        """Know what is left of what was due, and leave it alone for `later_by` at least."""
        try:
            next_due = await self._store.next_due()
        except NodropError:  # the commit stands all the same, and is to be told
            next_due = now + SECOND
        self.next_due = NEVER if next_due is None else max(next_due, now + later_by)

    def put_off(self, until: int) -> None:
        """Look after nothing before `until`: it cannot be done now."""
        self.next_due = until
        self._rearm.set()

    def rearm(self) -> None:
        """Watch the clock for what is the earliest now.

        What moved to a later time leaves the watch as it is: the loop is woken once for nothing,
        and comes back here.
        """
        if self._earliest() < self.armed_at:
            self._rearm.set()

    async def watch(self) -> None:
        """Wake the loop when something comes due. Sleeps for as long as nothing does."""
        while True:
            self._rearm.clear()
            self.armed_at = self._earliest()
            waits = {asyncio.create_task(self._rearm.wait())}
            alarm: asyncio.Task[Any] | None = None
            if self.armed_at < NEVER:
                alarm = asyncio.create_task(self._clock.sleep_until(self.armed_at))
            try:
                tasks = waits | ({alarm} if alarm else set[asyncio.Task[Any]]())
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*waits, *([alarm] if alarm else [])):
                    task.cancel()
            if alarm is not None and alarm.done():
                # The loop rearms the clock once it has looked after what came due.
                self._rearm.clear()
                self.armed_at = NEVER
                self._wake()
                await self._rearm.wait()

    def _earliest(self) -> int:
        return min(self.next_due, self._leases.next_check())
