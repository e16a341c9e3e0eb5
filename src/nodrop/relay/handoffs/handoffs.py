"""Handlers of the operations about handoffs: offers, commands, waiting, looking.

What is asked for most (offers, commands that need nothing but the handoff's row, waiting) is decided at
the next commit and answered with it. Where the store must be asked first, or for the answer, a coroutine
does so.
"""

from functools import partial
from typing import Final

from msgspec.structs import replace

from nodrop.model.errors import AlreadyFinishedError, NodropError
from nodrop.model.handoff import Handoff, Rung
from nodrop.model.limits import Limits
from nodrop.protocol import requests, views
from nodrop.relay.asking import (
    CARRIED_OUT,
    Answer,
    Asking,
    Done,
    DoneBefore,
    Existing,
    Handler,
    Replies,
    Reply,
    found,
    showing,
)
from nodrop.relay.delivery.queues import Queues
from nodrop.relay.directory.discovery import Discovery
from nodrop.relay.handoffs.erasing import Erasing
from nodrop.relay.handoffs.following import Follower, Following
from nodrop.relay.handoffs.offers import Offered
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.handoffs.tracing import Tracing
from nodrop.relay.handoffs.writing import Writing
from nodrop.relay.ports import Clock
from nodrop.relay.shows import Shows

_PLAIN: Final = (
    *("reject", "counter", "update", "block", "complete", "fail", "release"),
    *("settle", "checkpoint", "note", "dismiss", "discard"),
)
"""Commands whose meaning is all in the request and the handoff's row."""

_FINISHED: Final = Rung.FINISHED


class Handoffs:
    """Carries out the operations that are about handoffs."""

    def __init__(
        self,
        *,
        reading: Reading,
        writing: Writing,
        following: Following,
        erasing: Erasing,
        tracing: Tracing,
        queues: Queues,
        shows: Shows,
        discovery: Discovery,
        replies: Replies,
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._following = following
        self._erasing = erasing
        self._tracing = tracing
        self._queues = queues
        self._shows = shows
        self._discovery = discovery
        self._replies = replies
        self._clock = clock
        self._limits = limits
        writing.receiver = writing.offers.receiver = self

    def handlers(self) -> dict[str, Handler]:
        """Return what carries out each operation."""
        return {
            "offer": self._writing.offers.post,
            "list_handoffs": self._list,
            "dead_letters": self._dead_letters,
            "inbox": self._inbox,
            "trace": showing(self._trace),
            "get_handoff": self._wait,
            "ack": self._ack,
            **dict.fromkeys(_PLAIN, self._writing.post),
            "step": self._step,
            "get_step": self._get_step,
            "answer": self._answer,
            "agree": self._answer,
            "decline": self._answer,
            "cancel": self._cancel,
            "reassign": self._reassign,
            "redrive": self._decide,
            "accept": self._decide,
            "erase": self._erase,
        }

    def follow(self, asking: Asking, handoff_id: str) -> None:
        """Tell `asking` of the outcome of what it offered, once there is one."""
        follower = _OutcomeFollower(asking.caller, handoff_id)
        follower.asking, follower.handoffs = asking, self
        try:
            self._following.follow(follower)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            self._replies.give_up(asking, error)
        else:
            asking.follower = follower

    def leave(self, asking: Asking) -> None:
        """Give up what `asking` waits for: nobody is there to be told."""
        if asking.follower is not None:
            self._following.leave(asking.follower)
        work, asking.work = asking.work, None
        if work is not None:
            work.cancel()

    # --- offers ---

    async def offer_later(self, asking: Asking) -> Reply | None:
        """Make a handoff below its parent, or one whose payload takes a while to check."""
        caller, request = asking.caller, asking.request
        parent: Handoff | None = None
        if request.parent_id is not None:
            parent_id = await self._reading.resolve(caller, request.parent_id)
            parent = await self._reading.find(caller, parent_id)
        done = await self._writing.offers.make(caller, request, parent=parent)
        return await found(self._done(asking, done))

    async def _existing(self, asking: Asking, existing: Existing) -> Reply | None:
        handoff = await self._reading.find(asking.caller, existing.handoff_id)
        return await found(self._done(asking, Done(handoff=handoff, replayed=True)))

    # --- commands about a handoff ---

    def _ack(self, asking: Asking) -> Answer:
        team, agent = asking.caller.team, asking.caller.agent
        if self._queues.line(team, agent) is None:
            return self._ack_later(asking)
        self._writing.post(asking)
        return None

    async def _ack_later(self, asking: Asking) -> None:
        await self._queues.know(asking.caller.team, asking.caller.agent)
        self._writing.post(asking)

    async def _answer(self, asking: Asking) -> Reply | None:
        if isinstance(asking.request, requests.Answer):
            handoff = await self._reading.find(asking.caller, asking.handoff_id)
            if handoff.question is not None:
                await self._shows.require_room(handoff, asking.request.answer)
        done = await self._writing.answer(asking.caller, asking.request, asking.handoff_id)
        return await found(self._done(asking, done))

    async def _cancel(self, asking: Asking) -> Reply | None:
        """Withdraw a handoff; where its chain has gone on, the leg that it has come to."""
        caller = asking.caller
        for _ in range(self._limits.legs_max):
            leg = await self._reading.at_work(caller, asking.handoff_id)
            try:
                done = await self._writing.command(caller, asking.request, leg.id)
                return await found(self._done(asking, done))
            except AlreadyFinishedError:
                if (await self._reading.find(caller, leg.id)).next_leg is None:
                    raise
        raise AlreadyFinishedError("its chain goes on faster than it can be withdrawn")

    async def _reassign(self, asking: Asking) -> Reply | None:
        done = await self._writing.reassign(asking.caller, asking.request, asking.handoff_id)
        return await found(self._done(asking, done))

    async def _decide(self, asking: Asking) -> Reply | None:
        dead = await self._reading.find(asking.caller, asking.handoff_id)
        done = await self._writing.decide_dead_letter(asking.caller, asking.request, dead)
        return await found(self._done(asking, done))

    async def _erase(self, asking: Asking) -> Reply | None:
        caller = asking.caller
        await self._erasing.require_no_heirs(await self._reading.find(caller, asking.handoff_id))
        done = await self._writing.command(caller, asking.request, asking.handoff_id)
        await self._erasing.finish(caller.team, asking.handoff_id)
        return await found(self._done(asking, done))

    async def _step(self, asking: Asking) -> Reply:
        caller, request = asking.caller, asking.request
        named = replace(request, name=asking.name or request.name)
        handoff = await self._reading.find(caller, asking.handoff_id)
        if all(step.name != named.name for step in handoff.steps):
            await self._shows.require_room(handoff, named.value)
        done = await self._writing.command(caller, named, asking.handoff_id)
        handoff = await self._reading.find(caller, asking.handoff_id)
        answer = await self._shows.step(handoff, named.name)
        return Reply(answer=answer, replayed=isinstance(done, DoneBefore))

    async def _get_step(self, asking: Asking) -> Reply:
        handoff = await self._reading.find(asking.caller, asking.handoff_id)
        return Reply(answer=await self._shows.step(handoff, asking.name or asking.request.name))

    # --- the answer to a command ---

    def decided(self, asking: Asking, done: Offered) -> None:
        """Answer with what a commit made of a command. Most are answered with little, or nothing."""
        try:
            answer = self._done(asking, done)
            if type(answer) is Reply:
                asking.tell(answer)
            elif answer is not None:
                self._replies.take(asking, answer)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            self._replies.give_up(asking, error)

    def refused(self, asking: Asking, error: NodropError) -> None:
        """Answer with the reason why a command was not carried out."""
        self._replies.refuse(asking, error)

    def _done(self, asking: Asking, done: Offered, view: views.HandoffView | None = None) -> Answer:
        if type(done) is not Done:
            if isinstance(done, DoneBefore):
                return self._done_before(asking, done)
            return (
                self._existing(asking, done)
                if isinstance(done, Existing)
                else self.offer_later(asking)
            )
        if asking.quiet:
            return CARRIED_OUT
        handoff, request = done.handoff, asking.request
        if getattr(request, "brief", False):
            if asking.operation != "offer":
                return Reply(answer=views.BriefAnswer(handoff=self._shows.brief(handoff)))
            # The maker of an offer knows what is in it. A signature was checked, or this was refused.
            verified, warnings = request.signature is not None, self._discovery.warnings(handoff)
            offered = self._shows.offered(handoff, verified=verified, warnings=warnings)
            answer = views.OfferedAnswer(handoff=offered, replayed=done.replayed)
            return Reply(answer=answer, replayed=done.replayed)
        view = view or self._shows.cached(handoff, reader=asking.caller.agent)
        if view is None:
            return self._shown(asking, done)
        if asking.operation == "offer" and (warnings := self._discovery.warnings(handoff)):
            view = replace(view, warnings=warnings)
        answer = views.HandoffAnswer(handoff=view, replayed=done.replayed)
        return Reply(answer=answer, replayed=done.replayed)

    async def _done_before(self, asking: Asking, before: DoneBefore) -> Reply | None:
        """Answer as the first time."""
        handoff = (await self._reading.as_of(asking.caller.team, before.places))[0]
        reply = await found(self._done(asking, Done(handoff=handoff)))
        return None if reply is None else replace(reply, replayed=True)

    async def _shown(self, asking: Asking, done: Done) -> Reply | None:
        view = await self._shows.handoff(done.handoff, reader=asking.caller.agent)
        return await found(self._done(asking, done, view))

    # --- waiting and looking ---

    def _wait(self, asking: Asking) -> None:
        follower = _StateFollower(asking.caller, asking.handoff_id)
        follower.asking, follower.handoffs = asking, self
        self._following.follow(follower, asking.request)
        asking.follower = follower

    def reached(self, asking: Asking, handoff: Handoff, elapsed: bool) -> None:  # noqa: FBT001  # as a follower is told
        """Answer who waits for a handoff, or looks at it."""
        self._replies.give(asking, self._reached, handoff, elapsed)

    def _reached(self, asking: Asking, handoff: Handoff, elapsed: bool) -> Answer:  # noqa: FBT001  # as above
        caller = asking.caller
        view = None
        if not caller.observer:
            if handoff.receipts[-1].rung is _FINISHED and caller.agent == handoff.origin:
                # The outcome leaves with this answer, and the log says so first.
                self._writing.post_outcome_delivered(
                    caller,
                    handoff.id,
                    lambda marked: self.reached(asking, marked, elapsed),
                    partial(self.refused, asking),
                )
                return None
            view = self._shows.cached(handoff, reader=caller.agent)
        if view is None:
            return self._seen(asking, handoff, elapsed=elapsed)
        return Reply(answer=views.HandoffAnswer(handoff=view, wait_elapsed=elapsed))

    async def _seen(self, asking: Asking, handoff: Handoff, *, elapsed: bool) -> Reply:
        [view] = await self._shows.seen(asking.caller, [handoff])
        return Reply(answer=views.HandoffAnswer(handoff=view, wait_elapsed=elapsed))

    def ended(self, asking: Asking, handoff: Handoff) -> None:
        """Tell who made an offer of its outcome."""
        try:
            if handoff.receipts[-1].rung is _FINISHED and asking.caller.agent == handoff.origin:
                # The outcome leaves with this answer, and the log says so first.
                self._writing.post_outcome_delivered(
                    asking.caller,
                    handoff.id,
                    lambda marked: self.ended(asking, marked),
                    partial(self.refused, asking),
                )
            elif (answer := self._shows.ended_cached(handoff)) is not None:
                asking.tell(Reply(answer=answer))
            else:
                self._replies.take(asking, self._ended_later(handoff))
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            self._replies.give_up(asking, error)

    async def _ended_later(self, handoff: Handoff) -> Reply:
        return Reply(answer=await self._shows.ended(handoff))

    async def _list(self, asking: Asking) -> Reply:
        return await self._page(
            asking, await self._reading.list_handoffs(asking.caller, asking.request)
        )

    async def _dead_letters(self, asking: Asking) -> Reply:
        return await self._page(
            asking, await self._reading.dead_letters(asking.caller, asking.request)
        )

    async def _page(self, asking: Asking, listed: list[Handoff]) -> Reply:
        shown = await self._shows.page(asking.caller, listed)
        before = listed[len(shown) - 1].id if shown else None
        return Reply(answer=views.HandoffsAnswer(handoffs=shown, before=before))

    async def _inbox(self, asking: Asking) -> Reply:
        caller, request = asking.caller, asking.request
        mails = await self._reading.inbox(caller, request)
        items, read = await self._shows.items(
            caller.team,
            caller.agent,
            mails,
            everything=request.all,
            each=request.each,
            talk_since=self._clock.now() - self._limits.talk_open_ms,
        )
        after = mails[read - 1].seq if mails else request.after
        there = await self._reading.hash_at(caller.team, after)
        return Reply(answer=views.InboxAnswer(items=items, after=after, after_hash=there))

    async def _trace(self, asking: Asking) -> views.View:
        caller, correlation_id = asking.caller, asking.name or ""
        legs, truncated = await self._reading.trace(caller, correlation_id)
        shown = await self._shows.page(caller, legs)
        truncated = truncated or len(shown) < len(legs)
        legs = legs[: len(shown)]
        return await self._tracing.trace(caller, correlation_id, legs, shown, truncated=truncated)


class _StateFollower(Follower):
    """An operation that waits for a handoff, or looks at it."""

    __slots__ = ("asking", "handoffs")

    asking: Asking | None
    handoffs: Handoffs

    def told(self, handoff: Handoff, *, elapsed: bool) -> None:
        """Answer it."""
        asking, self.asking = self.asking, None
        if asking is not None:
            self.handoffs.reached(asking, handoff, elapsed)

    def refused(self, error: NodropError) -> None:
        """Refuse it."""
        asking, self.asking = self.asking, None
        if asking is not None:
            self.handoffs.refused(asking, error)

    def let_go(self) -> None:
        """Drop what holds this follower."""
        self.asking = None


class _OutcomeFollower(_StateFollower):
    """An offer whose maker is told of the outcome."""

    __slots__ = ()

    def told(self, handoff: Handoff, *, elapsed: bool) -> None:  # noqa: ARG002  # it waits for as long as it takes
        """Tell of the outcome."""
        asking, self.asking = self.asking, None
        if asking is not None:
            self.handoffs.ended(asking, handoff)
