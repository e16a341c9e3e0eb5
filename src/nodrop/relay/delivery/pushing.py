"""Connections that the relay pushes to: deliveries up to a credit, inbox items as they come."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from nodrop.log.port import Key, Mail
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.model.limits import Limits
from nodrop.model.mail import Kind
from nodrop.protocol import views
from nodrop.relay.batch import Happened
from nodrop.relay.delivery.waiters import Taker
from nodrop.relay.engine import Engine
from nodrop.relay.jobs import Committed

log = logging.getLogger("nodrop.relay")

PUSHED_TOGETHER_MAX: Final = 4
"""Deliveries that are shown at once: the largest of them fit into what a connection may hold."""

Turn = Callable[[], Awaitable[bool]]
"""Returns when a connection can hold so many more; False: nobody reads it any more."""


async def at_once() -> bool:
    """Wait for nothing: for readers that share this process's memory anyway."""
    return True


class Flushes:
    """The connections that have something to send.

    They send at the end of a turn of the event loop, so that the messages of one turn leave together; and as
    soon as a commit was answered, before the relay does its own bookkeeping: clients work meanwhile.
    """

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []
        """What is called then. Once there is something, more may be added without `soon`."""
        self._turn: asyncio.Handle | None = None
        """Calls `now` at the end of the turn."""

    def soon(self, flush: Callable[[], None]) -> None:
        """Call `flush` at the end of this turn, or before."""
        if not self.due:
            self._turn = asyncio.get_running_loop().call_soon(self.now)
        self.due.append(flush)

    def now(self) -> None:
        """Have everything sent."""
        due = self.due
        if not due:
            return
        self.due = []
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for flush in due:
            try:
                flush()
            except Exception:  # of one connection, which concerns no other
                log.exception("a connection could not be written to")


class Subscription:
    """A connection that takes deliveries."""

    def __init__(
        self,
        engine: Engine,
        taker: Taker,
        prepare: Callable[[Taker], Coroutine[Any, Any, None]],
        resume: Callable[[Taker], Coroutine[Any, Any, None]],
        *,
        now: Callable[[], int],
        seen: dict[Key, int],
        joined: Callable[[Taker], None],
        limits: Limits,
    ) -> None:
        self._engine = engine
        self._taker = taker
        self._prepare = prepare
        self._resume = resume
        self._now = now
        self._seen = seen
        """When each agent was last heard of."""
        self._joined = joined
        self._granted = False
        self._credit_max = limits.credit_max

    def grant(self, n: int) -> None:
        """Let `n` more deliveries be in flight; with none, only know what waits for the agent."""
        most, taker = self._credit_max, self._taker
        if not 0 <= n <= most:
            problem = Problem(path="n", message=f"between 0 and {most}")
            raise InvalidRequestError("no such credit", errors=(problem,))
        if taker.free > 0:
            n = min(n, most - taker.free)
        self._seen[taker.key] = now = self._now()
        self._engine.takers.grant(taker, n, now=now)
        if not self._granted:
            self._granted = True
            self._joined(self._taker)

    def hear(self) -> None:
        """Note a sign of life of this process: it sent something."""
        taker, now = self._taker, self._now()
        self._seen[taker.key] = now
        taker.life.heard_at = now
        if taker.life.silent:
            self._engine.takers.hear(taker.team, taker.process, now)

    async def prepare(self) -> None:
        """Have at hand what an acknowledgement needs: then commands are decided as they come."""
        await self._prepare(self._taker)

    async def resume(self) -> None:
        """Push again what this process holds unacknowledged."""
        await self._resume(self._taker)

    def close(self) -> None:
        """Take no more. What was delivered stays with the process until its lease lapses."""
        self._engine.takers.leave(self._taker)


class Listening:
    """A connection that hears of its agent's inbox."""

    def __init__(
        self, push: Callable[[views.ItemView], None], gone: Callable[["Listening"], None]
    ) -> None:
        self.push = push
        self._gone = gone
        self._closed = False

    def close(self) -> None:
        """Hear no more. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            self._gone(self)


def mail_of(happened: Happened, kind: Kind, committed: Committed) -> Mail:
    """Return an inbox item of what was just committed."""
    return Mail(
        seq=committed.seqs[happened.entry],
        kind=kind.value,
        at=committed.at,
        actor=happened.actor,
        type=happened.type,
        handoff_id=happened.handoff.id,
        version=happened.handoff.version,
    )
