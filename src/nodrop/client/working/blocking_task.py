"""The blocking twin of a task, for handlers that are plain functions and run in a thread."""

import concurrent.futures
import inspect
import threading
from collections import defaultdict
from collections.abc import Awaitable
from typing import Any

from nodrop.client.blocking import BlockingClient
from nodrop.client.portal import Portal, Twin, blocking
from nodrop.client.working.lease import lapsed
from nodrop.client.working.task import Action, Task, TaskShown, bound


class BlockingTask(Twin, TaskShown):
    """The blocking twin of `Task`."""

    def __init__(self, inner: Task, portal: Portal) -> None:
        Twin.__init__(self, inner, portal)
        self.cancelled = threading.Event()
        """Set when the work is no longer wanted from this process: a thread cannot be stopped."""
        self._stepping: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def cancel(self) -> None:
        """Tell the handler that it may stop, and wake it from what it waits for."""
        self.cancelled.set()
        self.portal.interrupt()

    @property
    def view(self) -> dict[str, Any]:
        """The whole handoff, as it came."""
        return self.inner.view

    @property
    def attempt(self) -> int:
        """The number of this delivery."""
        return self.inner.attempt

    @property
    def last_checkpoint(self) -> Any:
        """What was last left by `checkpoint`, in this attempt or an earlier one; None if nothing."""
        return self.inner.last_checkpoint

    @property
    def steps(self) -> dict[str, Any]:
        """The values of recorded steps, by name."""
        return self.inner.steps

    @property
    def answers(self) -> dict[str, Any]:
        """The answers so far, by the question's name or its text."""
        return self.inner.answers

    @property
    def client(self) -> BlockingClient:
        """The worker's own connection: to hand off further, pass `parent_id=task.id`."""
        return BlockingClient(self.inner.client, self.portal)

    update = blocking(Task.update)
    ask = blocking(Task.ask)
    counter = blocking(Task.counter)
    park = blocking(Task.park)
    checkpoint = blocking(Task.checkpoint)
    note = blocking(Task.note)
    tell = blocking(Task.tell)
    record = blocking(Task.record)

    def once(self, name: str, fn: Action) -> Any:
        """Do a step, here in this thread, that no other attempt shall repeat; see `Task.once`."""
        with self._stepping[name]:
            if name not in self.steps:
                action = bound(fn, self.inner.step_key(name))
                self._require_lease()
                value = action()
                if inspect.isawaitable(value):
                    value = self.portal.call(_awaited(value))
                self.record(name, value)
            return self.steps[name]

    def _require_lease(self) -> None:
        """Ask the relay unless the lease is sure; see `Lease.require`."""
        lease = self.inner.lease
        try:
            while not lease.sure:  # again: this thread may stall before it has the answer
                self.portal.call(lease.require())
        except concurrent.futures.CancelledError:
            if lease.lost:  # which is why the wait was interrupted
                raise lapsed() from None
            raise


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value
