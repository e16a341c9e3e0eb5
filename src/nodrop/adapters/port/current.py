"""The handoff that is being worked on here: found by any code below the worker, in any framework.

It is a context variable, so it is there in tools, nodes and callbacks, and in threads that a
framework starts with the context of their caller; nobody has to pass it on. Once the delivery is no
longer this process's, everything here is refused: a thread cannot be stopped, but it can be fenced.
"""

import asyncio
import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from nodrop.client.durations import Due, spelled
from nodrop.client.endings import Fail
from nodrop.client.handoff import Handoff
from nodrop.client.portal import Portal
from nodrop.client.tracing import current_traceparent
from nodrop.client.values import given
from nodrop.client.working.task import Task
from nodrop.model.errors import IdempotencyConflictError, StaleAttemptError
from nodrop.model.limits import SECOND
from nodrop.protocol.times import format_time, parse_due, parse_time

_DIGEST_CHARS: Final = 24
_CURRENT: Final[ContextVar["Current | None"]] = ContextVar("nodrop_current", default=None)


def _now() -> float:
    return time.time()  # noqa: TID251  # the agent's own clock, for what is left of a deadline


class Current:
    """A delivery, as seen from inside the framework that works on it."""

    def __init__(self, task: Task, *, now: Callable[[], float] = _now) -> None:
        self._task = task
        self._now = now
        self._said: Counter[str] = Counter()
        self._open = True
        self.portal = Portal(asyncio.get_running_loop())
        """The way from a thread to the worker's event loop."""

    @property
    def handoff_id(self) -> str:
        """The handoff."""
        return self._task.id

    @property
    def correlation_id(self) -> str:
        """What all handoffs of the chain share."""
        return self._task.correlation_id

    @property
    def traceparent(self) -> str | None:
        """The trace context it came with (W3C)."""
        return self._task.traceparent

    @property
    def payload(self) -> Any:
        """What was handed over."""
        return self._task.payload

    @property
    def deadline(self) -> str:
        """When it expires."""
        return self._task.deadline

    @property
    def seconds_left(self) -> float:
        """What is left until the deadline; nothing is not less than nothing."""
        return max(parse_time(self.deadline) / SECOND - self._now(), 0.0)

    def due(self, own: Due | None) -> str:
        """Return when something that is part of this is due: never later than this itself."""
        above = parse_time(self.deadline)
        if own is None:
            return self.deadline
        return format_time(min(parse_due(spelled(own), now=round(self._now() * SECOND)), above))

    @property
    def task(self) -> Task:
        """The delivery itself.

        Raises:
            StaleAttemptError: it is no longer ours.
        """
        if not self._open:
            raise StaleAttemptError("the handoff that this code worked on went on without it")
        return self._task

    async def hand_on(
        self, to: str | None, payload: Any, *, due: Due | None = None, **own: Any
    ) -> Handoff:
        """Hand something over as a part of this: in its chain and trace, due with it, and once."""
        # The worker speaks: another agent may not even know of the handoff.
        client = self.task.client
        words = json.dumps([to, own.get("capability"), payload], sort_keys=True)
        key = f"{self.handoff_id}:{self.key('hand_off', words)}"
        terms: dict[str, Any] = {
            **given(traceparent=current_traceparent() or self.traceparent),
            "deadline": self.due(due),
            "parent_id": self.handoff_id,
            "idempotency_key": key,
            **own,
        }
        try:
            return await client.hand_off(to, payload=payload, **terms)
        except IdempotencyConflictError:
            if terms["idempotency_key"] != key:
                raise
            # Made by an earlier attempt, of the same content, when more was left of the deadline.
            return await client.handoff(f"{client.agent}/{key}")

    async def ask(self, question: str, to: str | None = None) -> Any:
        """Ask, and hold everything until there is an answer. A later attempt does not ask again."""
        return await self.task.ask(question, to, name=self.key("ask", question))

    def ask_sync(self, question: str, to: str | None = None) -> Any:
        """Ask from a thread; see `ask`."""
        return self.portal.call(self.ask(question, to))

    def key(self, *words: str) -> str:
        """Return a name for something this attempt does, the same when a later one does it too.

        Frameworks run code again, after a pause as after a crash: the second time that the same is
        said within an attempt is another thing, the first time in the next attempt is not.
        """
        digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:_DIGEST_CHARS]
        self._said[digest] += 1
        return f"{digest}-{self._said[digest]}"

    def close(self) -> None:
        """Fence what still runs: the delivery has ended or is no longer ours."""
        self._open = False
        self.portal.interrupt()


def current() -> Current | None:
    """Return the handoff that this code works on; None outside of one."""
    return _CURRENT.get()


def working() -> Current:
    """Return the handoff that this code works on.

    Raises:
        Fail: there is none.
    """
    here = _CURRENT.get()
    if here is None:
        raise Fail("this code does not work on a handoff", code="no_handoff")
    return here


@contextmanager
def entered(task: Task) -> Generator[Current]:
    """Work on a delivery within."""
    here = Current(task)
    token = _CURRENT.set(here)
    try:
        yield here
    finally:
        here.close()
        _CURRENT.reset(token)
