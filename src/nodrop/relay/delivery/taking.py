"""Taking work: deliveries for one who asks, and pushes to one who stays connected."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from nodrop.log.port import Key, Wanted
from nodrop.model.errors import InvalidRequestError, Problem, UnavailableError
from nodrop.model.handoff import Handoff, State
from nodrop.model.limits import SECOND
from nodrop.protocol import requests, views
from nodrop.relay.alarms import Alarms
from nodrop.relay.asking import Reply
from nodrop.relay.delivery.holding import Holding
from nodrop.relay.delivery.pushing import PUSHED_TOGETHER_MAX, Subscription, Turn, at_once
from nodrop.relay.delivery.queues import Queues
from nodrop.relay.delivery.waiters import Taker
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.handoffs.repeats import conflict, request_digest
from nodrop.relay.handoffs.writing import Writing
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import Clock
from nodrop.relay.shows import Caller, Shows

T = TypeVar("T")


class _PendingTake:
    """A take that waits. Its repeats wait with it: each is answered with the same deliveries."""

    def __init__(
        self, taker: Taker, taken: "asyncio.Future[Sequence[Handoff] | None]", *, credit: int
    ) -> None:
        self.taker = taker
        self.taken = taken
        """What was delivered; None: it is not known whether something was."""
        self.credit = credit
        """Not granted yet: first it is looked up whether an earlier take of this id was answered."""
        self.callers = 0
        """Requests that wait for it."""


class Taking:
    """Hands out what waits in inboxes."""

    def __init__(
        self,
        engine: Engine,
        *,
        writing: Writing,
        reading: Reading,
        holding: Holding,
        shows: Shows,
        queues: Queues,
        intake: Intake,
        clock: Clock,
        alarms: Alarms,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        seen: dict[Key, int],
        joined: Callable[[Taker], None],
    ) -> None:
        self._engine = engine
        self._writing = writing
        self._reading = reading
        self._holding = holding
        self._shows = shows
        self._queues = queues
        self._intake = intake
        self._clock = clock
        self._alarms = alarms
        self._spawn = spawn
        self._seen = seen
        self._joined = joined
        self._limits = engine.limits
        self._pending: dict[tuple[str, str, str | None], _PendingTake] = {}
        """Takes with a command id that wait, by team, agent and that id."""

    async def take(self, caller: Caller, request: requests.Take) -> Reply:
        """Lease what waits; wait for something if nothing does."""
        if not 1 <= request.max <= self._limits.deliveries_max:
            problem = Problem(path="max", message=f"between 1 and {self._limits.deliveries_max}")
            raise InvalidRequestError("take at least one", errors=(problem,))
        heartbeat_ms = self._intake.heartbeat_ms(request.heartbeat_seconds)
        process = self._intake.process(request.process, caller.agent)
        until = self._intake.wait(request.wait, now=self._clock.now())
        asked = None if request.command_id is None else request_digest(request)
        while True:
            pending = self._pending_take(
                caller, request, asked, process=process, heartbeat_ms=heartbeat_ms
            )
            pending.callers += 1
            try:
                if request.command_id is not None and asked is not None:
                    before = await self._writing.taken_before(caller, request.command_id, asked)
                    if before is not None:
                        again = await self._reading.as_of(caller.team, before.places)
                        return await self._show_taken(again, process, replayed=True)
                self._engine.takers.grant(pending.taker, pending.credit, now=self._clock.now())
                pending.credit = 0
                await self._barrier(caller)
                if not pending.taken.done() and self._clock.now() < until:
                    await self._alarms.until(pending.taken, until)
            finally:
                self._leave(pending)
            if not pending.taken.done():
                await self._barrier(caller)  # a commit under way may still deliver to it
            handoffs = pending.taken.result() if pending.taken.done() else ()
            if handoffs is not None:
                return await self._show_taken(handoffs, process)
            # A commit that gave it something failed. Whether it did is looked up by the command's
            # id; who sends none waits on, and what it was given is given again when it lapses.

    def _pending_take(
        self,
        caller: Caller,
        request: requests.Take,
        asked: bytes | None,
        *,
        process: str,
        heartbeat_ms: int | None,
    ) -> "_PendingTake":
        """Return the take of this id that waits already, or one that begins to wait.

        Raises:
            IdempotencyConflictError: the one that waits asked for something else.
        """
        key = (caller.team, caller.agent, request.command_id)
        pending = self._pending.get(key)
        if pending is not None and not pending.taken.done():
            if pending.taker.request != asked:
                raise conflict(request.command_id or "")
            return pending
        taken: asyncio.Future[Sequence[Handoff] | None]
        taken = asyncio.get_running_loop().create_future()
        taker = Taker(
            team=caller.team,
            agent=caller.agent,
            process=process_id(caller, process),
            heartbeat_ms=heartbeat_ms,
            deliver=partial(_set, taken),
            doubt=lambda _: _set(taken, None),
            command_id=request.command_id,
            request=asked,
            once=True,
        )
        pending = _PendingTake(taker, taken, credit=request.max)
        if request.command_id is not None:
            self._pending[key] = pending
        self._engine.join(taker, free=0)
        return pending

    def _leave(self, pending: "_PendingTake") -> None:
        """Stop waiting, once none of its callers waits any more."""
        pending.callers -= 1
        if pending.callers == 0:
            taker = pending.taker
            self._engine.takers.leave(taker)
            key = (taker.team, taker.agent, taker.command_id)
            if self._pending.get(key) is pending:
                del self._pending[key]

    async def _barrier(self, caller: Caller) -> None:
        """Return when a batch has been through that saw everything asked for until now."""
        job = FunctionJob[None](Wanted(), lambda _: None, by=(caller.team, caller.agent))
        await self._engine.submit(job)

    async def _show_taken(
        self, handoffs: Sequence[Handoff], process: str, *, replayed: bool = False
    ) -> Reply:
        deliveries = await self._shows.deliveries(handoffs)
        answer = views.DeliveriesAnswer(deliveries=deliveries, process=process)
        return Reply(answer=answer, replayed=replayed)

    def subscribe(
        self,
        caller: Caller,
        *,
        process: str,
        heartbeat_seconds: float | None,
        deliver: Callable[[Sequence[views.PushView]], None],
        turn: Turn = at_once,
        has_room: Callable[[], bool] = lambda: True,
        offered: Callable[[Sequence[views.WaitingView]], None] | None = None,
    ) -> Subscription:
        """Push deliveries to a connection, as many as it has credit for, when it has room.

        `deliver` does not raise. Small deliveries reach it as soon as they are committed, while the connection
        `has_room`; the others when it is their `turn`.
        """
        heartbeat_ms = self._intake.heartbeat_ms(heartbeat_seconds)
        name = process_id(caller, self._intake.process(process, caller.agent))
        in_order = asyncio.Lock()
        waiting = 0

        def push(handoffs: Sequence[Handoff]) -> None:
            nonlocal waiting
            shown = None
            if not waiting and has_room():
                shown = self._shows.pushes_cached(handoffs)
            if shown is not None:
                deliver(shown)
            else:
                waiting += 1
                self._spawn(push_later(handoffs))

        async def push_later(handoffs: Sequence[Handoff]) -> None:
            nonlocal waiting
            try:
                await self._push(handoffs, deliver, turn, in_order)
            finally:
                waiting -= 1

        taker = Taker(
            team=caller.team,
            agent=caller.agent,
            process=name,
            heartbeat_ms=heartbeat_ms,
            deliver=push,
            doubt=lambda taker: self._spawn(self._clear_up(taker)),
            offered=offered,
        )
        self._engine.join(taker, free=0)
        self._seen[taker.key] = self._clock.now()
        return Subscription(
            self._engine,
            taker,
            self._prepare,
            self._resume,
            now=self._clock.now,
            seen=self._seen,
            joined=self._joined,
            limits=self._limits,
        )

    async def _push(
        self,
        handoffs: Sequence[Handoff],
        deliver: Callable[[Sequence[views.PushView]], None],
        turn: Turn,
        in_order: asyncio.Lock,
    ) -> None:
        """Show a few at a time: all of them may be more than a connection can hold."""
        async with in_order:
            for start in range(0, len(handoffs), PUSHED_TOGETHER_MAX):
                if not await turn():
                    return
                few = handoffs[start : start + PUSHED_TOGETHER_MAX]
                deliver(await self._shows.pushes(few))

    async def _prepare(self, taker: Taker) -> None:
        await self._queues.know(taker.team, taker.agent)

    async def _resume(self, taker: Taker) -> None:
        """Send again what a process holds and never acknowledged: it may not have arrived."""
        await self._holding.heartbeat(Caller(team=taker.team, agent=taker.agent), taker.process)
        await self._push_unacknowledged(taker)

    async def _clear_up(self, taker: Taker) -> None:
        """Send what a commit delivered that failed, if it did, as soon as the store tells."""
        while self._engine.takers.waits(taker):
            try:
                await self._push_unacknowledged(taker)
            except UnavailableError:
                await self._clock.sleep_until(self._clock.now() + SECOND)
            else:
                return

    async def _push_unacknowledged(self, taker: Taker) -> None:
        held = await self._holding.held(taker.team, taker.process)
        unseen = [h for h in held if h.live and h.state is State.DELIVERED]
        taker.free -= len(unseen)
        if unseen:
            taker.deliver(unseen)


def _set(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)


def process_id(caller: Caller, process: str) -> str:
    """Return a process's id within its team: nobody can keep another agent's deliveries alive."""
    return f"{caller.agent}:{process}"
