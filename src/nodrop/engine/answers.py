"""The answers to commands, to waiting and to looking, where a view may have to ask the store."""

import msgspec

from nodrop.core.limits import Limits
from nodrop.core.model import Handoff, Rung
from nodrop.engine.asking import Reply
from nodrop.engine.discovery import Discovery
from nodrop.engine.done import Done, DoneBefore, Existing
from nodrop.engine.reading import Reading
from nodrop.engine.shows import Caller, Shows
from nodrop.engine.writing import Writing
from nodrop.wire import requests, views
from nodrop.wire.requests import Request


class Answers:
    """Makes replies of what was done and found."""

    def __init__(
        self,
        reading: Reading,
        writing: Writing,
        shows: Shows,
        *,
        discovery: Discovery,
        limits: Limits,
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._shows = shows
        self._discovery = discovery
        self._limits = limits

    async def to_command(self, caller: Caller, request: Request, done: Done | DoneBefore) -> Reply:
        """Return the answer to a command; to a repeated one, what it was the first time."""
        replayed = isinstance(done, DoneBefore)
        if isinstance(done, DoneBefore):
            handoff = (await self._reading.as_of(caller.team, done.places))[0]
        else:
            handoff = done.handoff
        repeated = isinstance(done, Done) and done.replayed
        if isinstance(request, requests.Briefly) and request.brief:
            brief = self.briefly(request, handoff, repeated=repeated)
            return Reply(answer=brief, replayed=replayed or repeated)
        warnings = self._discovery.warnings(handoff) if isinstance(request, requests.Offer) else ()
        view = await self._shows.handoff(handoff, reader=caller.agent, warnings=warnings)
        answer = views.HandoffAnswer(handoff=view, replayed=repeated)
        return Reply(answer=answer, replayed=replayed or repeated)

    def briefly(
        self, request: Request, handoff: Handoff, *, repeated: bool = False
    ) -> views.BriefAnswer | views.OfferedAnswer:
        """Return what a caller needs to know who knows what is in a handoff."""
        if not isinstance(request, requests.Offer):
            return views.BriefAnswer(handoff=self._shows.brief(handoff))
        warnings = self._discovery.warnings(handoff)
        signed = request.signature is not None  # and checked, or it would have been refused
        offered = self._shows.offered(handoff, verified=signed, warnings=warnings)
        return views.OfferedAnswer(handoff=offered, replayed=repeated)

    async def to_offer(
        self, caller: Caller, request: requests.Offer, done: Done | DoneBefore | Existing
    ) -> Reply:
        """Return the answer to an offer; to one that was made before, the handoff it made."""
        if isinstance(done, Existing):
            handoff = await self._reading.find(caller, done.handoff_id)
            done = Done(handoff=handoff, replayed=True)
        return await self.to_command(caller, request, done)

    def at_hand(self, caller: Caller, request: requests.Offer, made: Handoff) -> Reply | None:
        """Return the answer to an offer that was just made, if that takes no waiting."""
        if request.brief:
            return Reply(answer=self.briefly(request, made))
        view = self._shows.at_hand(made, reader=caller.agent)
        if view is None:
            return None
        if warnings := self._discovery.warnings(made):
            view = msgspec.structs.replace(view, warnings=warnings)
        return Reply(answer=views.HandoffAnswer(handoff=view))

    async def to_wait(self, caller: Caller, handoff: Handoff, *, elapsed: bool) -> Reply:
        """Return the answer to one who waited for a handoff, or merely looked."""
        if caller.observer:
            [view] = await self._shows.seen(caller, [handoff])
        else:
            if owes_outcome(handoff, caller.agent):
                # The outcome leaves with this answer, and the log says so first.
                handoff = await self._writing.mark_outcome_delivered(caller, handoff.id)
            view = await self._shows.handoff(handoff, reader=caller.agent)
        return Reply(answer=views.HandoffAnswer(handoff=view, wait_elapsed=elapsed))

    async def to_follower(self, handoff: Handoff) -> Reply:
        """Return the outcome to one who follows its offer."""
        return Reply(answer=await self._shows.ended(handoff))

    async def to_list(self, caller: Caller, found: list[Handoff]) -> Reply:
        """Return a page of handoffs."""
        before = found[-1].id if found else None
        shown = await self._shows.seen(caller, found)
        return Reply(answer=views.HandoffsAnswer(handoffs=shown, before=before))

    async def to_inbox(self, caller: Caller, request: requests.GetInbox, *, now: int) -> Reply:
        """Return what is in the caller's inbox."""
        mails = await self._reading.inbox(caller, request)
        items = await self._shows.items(
            caller.team,
            caller.agent,
            mails,
            everything=request.all,
            talk_since=now - self._limits.talk_open_ms,
        )
        after = mails[-1].seq if mails else request.after
        return Reply(answer=views.InboxAnswer(items=items, after=after))


def owes_outcome(handoff: Handoff, reader: str) -> bool:
    """Whether showing a handoff to `reader` is the first that its requester sees of the outcome."""
    if handoff.outcome is None or handoff.settled_at is not None or reader != handoff.origin:
        return False
    return all([receipt.rung is not Rung.OUTCOME_DELIVERED for receipt in handoff.receipts])  # noqa: C419  # a list is quicker for so few
