"""Those who follow a handoff until it gets somewhere: a rung, an answer, the end of its chain.

Following costs a place in two dicts: nobody polls, and nobody has a task. A commit shows what it
changed to exactly those who follow it; they are told once it is what they wait for.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from nodrop.log.port import Key, Store
from nodrop.model.errors import InvalidRequestError, NodropError, Problem, UnavailableError
from nodrop.model.handoff import Decision, Handoff, Rung
from nodrop.protocol import requests
from nodrop.relay.alarms import Alarm, Alarms
from nodrop.relay.intake import Intake
from nodrop.relay.ports import Clock
from nodrop.relay.room import Waits
from nodrop.relay.shows import Caller, may_see, require_sight, unseen

UNBLOCKED: Final = "unblocked"
"""What somebody who asked waits for: no question is open any more."""
BLOCKED: Final = "blocked"
"""What somebody who may be asked waits for: a question is open, or none will come any more."""

SHOWN_AT_ONCE: Final = 64
"""Followers of one handoff who are shown a change in one turn of the event loop."""

Goal = Callable[[Handoff], bool]


class Follower(ABC):
    """A caller that waits for a handoff: to the end of it and of what takes its place, unless told otherwise."""

    __slots__ = (
        "alarm",
        "caller",
        "chain",
        "ended",
        "key",
        "origin",
        "reached",
        "until",
        "waits",
    )

    def __init__(self, caller: Caller, handoff_id: str) -> None:
        self.caller = caller
        self.key: Key = (caller.team, handoff_id)
        self.reached: Goal = _finished
        self.chain = False
        """It goes on to the next leg."""
        self.until: int | None = None
        """When it has waited long enough; None: it waits for the outcome for as long as it takes."""
        self.waits = True
        """It waits for an outcome, wherever that comes from; else it looks once, at this handoff."""
        self.origin = False
        """It is the requester, and hears of the outcome first-hand."""
        self.alarm: Alarm | None = None
        self.ended = False

    @abstractmethod
    def told(self, handoff: Handoff, *, elapsed: bool) -> None:
        """Let go, and take the handoff, and whether the wait ran out. Does not raise."""

    @abstractmethod
    def refused(self, error: NodropError) -> None:
        """Let go, and take the reason why it cannot be followed. Does not raise."""

    @abstractmethod
    def let_go(self) -> None:
        """Drop what holds this follower: neither would be freed without the collector."""


class _Awaited(Follower):
    """A coroutine that waits."""

    __slots__ = ("found",)

    def __init__(self, caller: Caller, handoff_id: str) -> None:
        super().__init__(caller, handoff_id)
        loop = asyncio.get_running_loop()
        self.found: asyncio.Future[tuple[Handoff, bool]] = loop.create_future()

    def told(self, handoff: Handoff, *, elapsed: bool) -> None:
        if not self.found.done():
            self.found.set_result((handoff, elapsed))

    def refused(self, error: NodropError) -> None:
        if not self.found.done():
            self.found.set_exception(error)

    def let_go(self) -> None:
        pass  # the future holds nothing of it


class Following:
    """Who follows what."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        alarms: Alarms,
        intake: Intake,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        waits_max: int,
        alone: bool = True,
    ) -> None:
        """Follow handoffs of `store`; `alone`: no other engine writes to it, so its cache is the truth."""
        self._store = store
        self._clock = clock
        self._alarms = alarms
        self._intake = intake
        self._spawn = spawn
        self._alone = alone
        self.followers: dict[Key, dict[Follower, None]] = {}
        """In the order in which they came; a dict, so that thousands leave as quickly as one."""
        self._waits = Waits(waits_max)

    def follow(self, follower: Follower, request: requests.GetHandoff | None = None) -> None:
        """Tell `follower` when its handoff is where `request` wants it, or the wait is over.

        Raises:
            InvalidRequestError: there is no such thing to wait for.
            QueueFullError: more requests of this agent wait than may.
        """
        if request is not None:
            follower.until = self._intake.wait(request.wait, now=self._clock.now())
            follower.reached = _goal(request.until)
            follower.chain = _follows_chain(request.of)
            follower.waits = request.wait != 0
        if follower.waits:
            self._waits.enter((follower.caller.team, follower.caller.agent))
        self._look(follower, self._list(follower, waits=follower.waits))

    async def wait(
        self, caller: Caller, handoff_id: str, request: requests.GetHandoff
    ) -> tuple[Handoff, bool]:
        """Return the handoff once it is where `request` wants it, and whether the wait ran out."""
        follower = _Awaited(caller, handoff_id)
        self.follow(follower, request)
        try:
            return await follower.found
        finally:
            self.leave(follower)

    def leave(self, follower: Follower) -> None:
        """Follow no longer, and be told nothing. Harmless if it was told."""
        self._end(follower)
        follower.let_go()

    def _end(self, follower: Follower) -> None:
        if follower.ended:
            return
        follower.ended = True
        if follower.waits:
            self._waits.leave((follower.caller.team, follower.caller.agent))
        self._unlist(follower)
        if follower.alarm is not None:
            self._alarms.cancel(follower.alarm)
            follower.alarm = None

    def is_followed(self, handoff: Handoff) -> bool:
        """Whether anybody waits for a handoff."""
        return (handoff.team, handoff.id) in self.followers

    def committed(self, handoffs: Iterable[Handoff]) -> None:
        """Show handoffs that changed to those who follow them."""
        for handoff in handoffs:
            key = (handoff.team, handoff.id)
            followers = self.followers.get(key)
            if followers is None:
                continue
            if len(followers) > 1:
                self._show(handoff, tuple(followers))
                continue
            [follower] = followers
            if (
                not (follower.origin and follower.waits)
                or follower.until is not None
                or handoff.decision is not None
            ):
                self._look(follower, handoff)
            elif handoff.outcome is not None:  # its requester waits for that, as most do
                del self.followers[key]
                follower.ended = True
                self._waits.leave((follower.caller.team, follower.caller.agent))
                follower.told(handoff, elapsed=False)

    def _show(self, handoff: Handoff, followers: tuple[Follower, ...]) -> None:
        """Show a handoff to a few of its followers, and to the others in the next turns of the loop."""
        key = (handoff.team, handoff.id)
        for follower in followers[:SHOWN_AT_ONCE]:
            if follower.key == key:  # else it follows another by now
                self._look(follower, handoff)
        if rest := followers[SHOWN_AT_ONCE:]:
            asyncio.get_running_loop().call_soon(self._show, handoff, rest)

    def close(self) -> None:
        """Let nobody wait any longer: the relay is about to stop."""
        for followers in list(self.followers.values()):
            for follower in tuple(followers):
                self._refuse(follower, UnavailableError("the relay is stopping"))

    # --- one of them ---

    def _list(self, follower: Follower, *, waits: bool = False) -> Handoff | None:
        """Show to `follower` what happens from now on; return what it follows, if it is at hand.

        Who `waits` is shown what other engines do as it becomes known here; who looks once is not.
        """
        self.followers.setdefault(follower.key, {})[follower] = None
        handoff = self._store.cached(follower.key) if waits or self._alone else None
        if handoff is None:
            self._spawn(self._fetch(follower))
        return handoff

    async def _fetch(self, follower: Follower) -> None:
        try:
            [handoff] = await self._store.handoffs([follower.key]) or (None,)
            self._look(follower, require_sight(follower.caller, handoff))
        except NodropError as error:
            self._refuse(follower, error)

    def _look(self, follower: Follower, handoff: Handoff | None) -> None:
        """Tell `follower` if it is over. Nothing to look at: it will be shown."""
        caller = follower.caller
        while handoff is not None and not follower.ended:
            follower.origin = caller.agent == handoff.origin and not caller.observer
            if not follower.origin and not may_see(caller, handoff):
                self._refuse(follower, unseen(handoff))
                return
            # Most follow one handoff, and it is not decided on.
            looks_on = follower.chain or handoff.decision is not None
            onwards = _onwards(handoff, follower) if looks_on else None
            if onwards is None:
                break
            self._unlist(follower)
            follower.key, follower.origin = (handoff.team, onwards), False
            handoff = self._list(follower, waits=follower.waits)
        if handoff is None or follower.ended:
            return
        until, reached = follower.until, follower.reached(handoff)
        if reached or (until is not None and self._clock.now() >= until):
            self._end(follower)
            follower.told(handoff, elapsed=follower.waits and not reached)
        elif until is not None and follower.alarm is None:
            follower.alarm = self._alarms.set(until, lambda: self._rung(follower))

    def _rung(self, follower: Follower) -> None:
        """Look once more: the time is up."""
        follower.alarm = None
        self._look(follower, self._list(follower))

    def _refuse(self, follower: Follower, error: NodropError) -> None:
        if not follower.ended:
            self._end(follower)
            follower.refused(error)

    def _unlist(self, follower: Follower) -> None:
        followers = self.followers.get(follower.key)
        if followers is not None:
            followers.pop(follower, None)
            if not followers:
                del self.followers[follower.key]


def _goal(until: str) -> Goal:
    """Return what a follower waits for: a rung, or the answer to a question."""
    goal = _GOALS.get(until)
    if goal is None:
        expected = ", ".join((*Rung, UNBLOCKED, BLOCKED))
        problem = Problem(path="until", message=f"expected one of {expected}")
        raise InvalidRequestError("nothing to wait for", errors=(problem,))
    return goal


def _to_rung(rung: Rung) -> Goal:
    """Return whether waiting for `rung` is over: it is there, or nothing more comes before it."""
    early = rung in {Rung.DELIVERED, Rung.ACKNOWLEDGED, Rung.UPDATED}

    def reached(handoff: Handoff) -> bool:
        if any([receipt.rung is rung for receipt in handoff.receipts]):  # noqa: C419  # a list is quicker for so few
            return True
        return handoff.final and (early or handoff.settled_at is not None)

    return reached


def _finished(handoff: Handoff) -> bool:
    return handoff.outcome is not None  # an outcome and its rung are of one event


_CARRIED_ON: Final = (Decision.REDRIVEN, Decision.ACCEPTED_LATE)
_GOALS: Final[dict[str, Goal]] = {
    **{rung.value: _to_rung(rung) for rung in Rung},
    Rung.FINISHED.value: _finished,
    UNBLOCKED: lambda handoff: handoff.question is None,
    BLOCKED: lambda handoff: handoff.outcome is not None or handoff.question is not None,
}


def _follows_chain(of: str) -> bool:
    if of not in {"handoff", "chain"}:
        problem = Problem(path="of", message="expected handoff or chain")
        raise InvalidRequestError("nothing to wait for", errors=(problem,))
    return of == "chain"


def _onwards(handoff: Handoff, follower: Follower) -> str | None:
    """Return where a follower goes on: to the successor, and along the chain if it follows that."""
    if not (follower.chain or follower.waits):
        return None
    if handoff.decision in _CARRIED_ON:
        return handoff.successor
    return handoff.next_leg if follower.chain else None
