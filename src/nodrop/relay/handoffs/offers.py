"""Offers: new handoffs, each put into somebody's inbox by some batch.

An offer is read before it is decided, so that what is wrong with it is told at once; but a repeat is
answered as the first time, whatever has changed since. What reads an offer may be used by others who
offer on somebody's behalf (groups, triggers).
"""

from collections.abc import Coroutine
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from nodrop.log.port import KeyUse, Wanted
from nodrop.model import commands, events, lineage
from nodrop.model.errors import (
    AlreadyFinishedError,
    CallerError,
    ForbiddenError,
    NodropError,
    PayloadInvalidError,
    Problem,
    UnavailableError,
)
from nodrop.model.handoff import Handoff, State
from nodrop.model.surroundings import Surroundings
from nodrop.protocol import events as wire_events
from nodrop.protocol import requests, traces
from nodrop.relay.asking import (
    Asking,
    Done,
    DoneBefore,
    Existing,
    Receiver,
    Reply,
)
from nodrop.relay.batch import Batch, CommandName
from nodrop.relay.directory.contracts import Contracts
from nodrop.relay.directory.register import MissingManifestError, Register
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.repeats import (
    Unloaded,
    digest_of,
    name_of,
    offered_before,
    repeated,
    request_digest,
)
from nodrop.relay.identity.proved import Proved
from nodrop.relay.identity.signing import Signing
from nodrop.relay.identity.statements import state
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import Job
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.room import LARGE_BYTES, Aside, Room
from nodrop.relay.shows import Caller

OFFERED: Final = frozenset({wire_events.NAMES[events.Offered]})
Offered = Done | DoneBefore | Existing | Unloaded
"""What becomes of an offer."""


class Offering(Receiver, Protocol):
    """Answers who offers, and makes the offers that take a while to be read."""

    def offer_later(self, asking: Asking) -> Coroutine[Any, Any, Reply | None]:
        """Make the handoff that is asked for; return the answer."""
        ...


class Offers:
    """Reads offers and has them decided."""

    def __init__(
        self,
        engine: Engine,
        *,
        intake: Intake,
        register: Register,
        contracts: Contracts,
        room: Room,
        clock: Clock,
        ids: Ids,
        signing: Signing,
        aside: Aside,
    ) -> None:
        self.engine = engine
        self._intake = intake
        self.register = register
        self._contracts = contracts
        self.room = room
        self._clock = clock
        self.ids = ids
        self.signing = signing
        self._aside = aside
        self.receiver: Offering
        """Answers an offer once it is decided."""

    async def make(
        self, caller: Caller, request: requests.Offer, *, parent: Handoff | None
    ) -> Done | DoneBefore | Existing:
        """Put a new handoff into somebody's inbox."""
        job = _OfferJob(self, caller, request)
        team, sender = caller.team, job.sender
        try:
            job.means(
                await self.read(
                    team, sender, request, job.handoff_id, parent=parent, proved=job.proved
                )
            )
        except CallerError as error:
            job.may_repeat(error)
        with self.room.reserved(team, sender, job.recipient):
            done = await self.engine.submit(job)
            while isinstance(done, Unloaded):
                job.loaded = (*job.loaded, done.handoff_id)
                job.want(done.handoff_id)
                done = await self.engine.submit(job)
            return done

    def post(self, asking: Asking) -> Coroutine[Any, Any, Reply | None] | None:
        """Have the same done with the next commit; or return what does it, where that takes `make`."""
        caller, request = asking.caller, asking.request
        if request.parent_id is not None:
            return self.receiver.offer_later(asking)
        job = _OfferJob(self, caller, request, asking)
        team, sender = caller.team, job.sender
        try:
            offer = self._drafted(team, sender, request, job.handoff_id, None, job.proved)
            if len(offer.body) > LARGE_BYTES:
                return self.receiver.offer_later(asking)
            problems = ()
            if offer.capability is not None:
                problems = self.register.problems(
                    team, offer.to, offer.capability, "input", request.payload, len(offer.body)
                )
            if problems or offer.routed:
                offer = self._taken(team, offer, request.payload, problems)
            job.means(offer)
        except CallerError as error:
            job.may_repeat(error)
        self.engine.post(job)
        self.room.reserve(team, sender, job.recipient)
        return None

    def around(self, team: str) -> Surroundings:
        """Return what the decision on an offer depends on besides the offer: the team's steps."""
        engine, steps = self.engine, self.register.rules.team_steps(team)
        return Surroundings(up_since=engine.up_since, limits=engine.limits, team_steps=steps)

    # --- reading ---

    async def read(
        self,
        team: str,
        sender: str,
        request: requests.Offer,
        handoff_id: str,
        *,
        parent: Handoff | None,
        proved: Proved | None,
    ) -> commands.Offer:
        """Return the command that an offer means; refuse what is wrong with it."""
        offer = self._drafted(team, sender, request, handoff_id, parent, proved)
        look = partial(
            self.register.problems,
            *(team, offer.to, offer.capability, "input", request.payload, len(offer.body)),
        )
        if len(offer.body) > LARGE_BYTES:
            with self.reserved(team, offer):
                try:
                    problems = await self._aside((team, sender), look)
                except (
                    MissingManifestError
                ):  # replaced and forgotten while this waited for its turn
                    why = f"{offer.to.agent} has published another manifest"
                    raise UnavailableError(why) from None
        else:
            problems = look()
        return self._taken(team, offer, request.payload, problems)

    def reserved(self, team: str, offer: commands.Offer) -> AbstractContextManager[None]:
        """Count an offer that was read until its commit is counted, or it came to nothing."""
        return self.room.reserved(team, offer.origin, offer.to.agent)

    def _drafted(  # noqa: PLR0917  # called for every offer: names would take longer
        self,
        team: str,
        sender: str,
        request: requests.Offer,
        handoff_id: str,
        parent: Handoff | None,
        proved: Proved | None,
    ) -> commands.Offer:
        """Return what an offer means, as far as its payload was not looked into."""
        terms = self._intake.terms(request, now=self._clock.now())
        legs = self._intake.legs(request) if request.then else ()
        body = self._intake.content(request, proved)
        target = self.register.target(team, request.to, request.capability, sender=sender)
        agent, above = target.candidate.agent, lineage.visited(parent) if parent else ()
        if above or legs:
            lineage.require_no_loop(above, agent, legs, self.engine.limits)
        if legs:
            only = partial(self.register.only_capability, team)
            self.register.rules.require_legs(team, agent, legs, only)
        if request.contract_digest is not None:
            self._contracts.check(team, request, target.capability)
        offer = commands.Offer(  # with 16 names this would take three times as long
            sender=sender,
            origin=sender,
            to=target.candidate,
            capability=target.capability,
            routed=target.routed,
            terms=terms,
            contract_digest=request.contract_digest,
            correlation_id=request.correlation_id or handoff_id,
            parent_id=request.parent_id,
            legs=legs,
            watchers=request.watchers,
            key=request.idempotency_key,
            traceparent=request.traceparent,
            detached=request.detached,
            body=body,
        )
        if parent is None:
            return offer
        return msgspec.structs.replace(
            offer,
            correlation_id=request.correlation_id or parent.correlation_id,
            parent_id=request.parent_id and parent.id,
            ancestors=above,
            traceparent=request.traceparent or traces.traceparent(parent),
        )

    def _taken(
        self, team: str, offer: commands.Offer, payload: Any, problems: tuple[Problem, ...]
    ) -> commands.Offer:
        """Return an offer to an agent that takes its payload, and has room for it where one has."""
        if offer.routed and (problems or self.room.is_full(team, offer.to)):
            others = self.register.candidates(
                team, offer.capability, sender=offer.sender, asked=(offer.to.agent,)
            )
            able = self.register.who_take(team, others, offer.capability, payload)
            first = next(iter(self.room.fullest_last(team, able)), None)
            if first is not None and (problems or not self.room.is_full(team, first)):
                return msgspec.structs.replace(offer, to=first)
        if problems:
            detail = f"{offer.to.agent} does not take this payload"
            raise PayloadInvalidError(detail, errors=problems)
        return offer


class _OfferJob(Job[Offered]):
    """An offer of a caller, to be decided in some batch."""

    __slots__ = (
        *("_offers", "asking", "besides", "caller", "command", "digest", "error", "full"),
        *("handoff_id", "key", "key_use", "loaded", "offer", "proved", "recipient"),
        *("request", "said", "sender"),
    )

    def __init__(
        self,
        offers: Offers,
        caller: Caller,
        request: requests.Offer,
        asking: Asking | None = None,
    ) -> None:
        """Take an offer that was not read yet; refuse who may not make it.

        It is for `asking`; without one, the answer sets the future.
        """
        # All of it in one go, without the class above: this is done for every offer.
        self.by = (caller.team, caller.agent)
        self.fetches = 0
        self.future = None
        self._offers = offers
        self.caller = caller
        self.request = request
        self.asking = asking
        self.sender = sender = request.from_ or caller.agent
        if sender != caller.agent and not caller.operator:
            raise ForbiddenError(f"{caller.agent} cannot hand off as {sender}")
        self.proved: Proved | None = None
        if request.signature is not None or caller.team in offers.signing.signed_only:
            self.proved = offers.signing.check(caller, "offer", request, None)
        self.handoff_id = offers.ids.new()
        self.key = key = request.idempotency_key
        """What it is remembered by."""
        self.digest = ""
        """Of the offer as sent, if it is remembered."""
        if key is not None or request.turn_based:
            self.digest = digest_of(request, sender)
            self.key = name_of(self.digest) if key is None else key
        self.key_use = None if self.key is None else (caller.team, sender, self.key)
        self.command: CommandName | None = None
        self.said: bytes | None = None
        """The digest of what the command of this id asks for."""
        if request.command_id is not None:
            self.command = (caller.team, caller.agent, request.command_id)
            self.said = request_digest(request)
        self.besides: Wanted | None = None
        self.loaded: tuple[str, ...] = ()
        """Handoffs that it was held against as a repeat."""
        self.offer: commands.Offer | None = None
        """What it means."""
        self.error: CallerError | None = None
        """Why it is refused, unless it is a repeat."""

    def means(self, offer: commands.Offer) -> None:
        """Take what was read."""
        self.offer = offer
        self.recipient = recipient = offer.to.agent
        self.full = self._offers.room.why_full(self.caller.team, self.sender, recipient)
        """Why there is no room for it; a repeat needs none."""
        if offer.parent_id is not None:
            self.want(offer.parent_id)

    def may_repeat(self, error: CallerError) -> None:
        """Take why it is refused, unless it is a repeat: that is answered as the first time."""
        if self.command is None and self.key is None:
            raise error
        self.error = error
        self.recipient = self.sender

    def want(self, handoff_id: str) -> None:
        """See this handoff too."""
        wanted = () if self.besides is None else self.besides.handoffs
        self.besides = Wanted(handoffs=(*wanted, (self.caller.team, handoff_id)))

    def run(self, batch: Batch) -> Offered:
        """Make a handoff, or recognise the one that the same offer made before."""
        offers, caller, offer, key = self._offers, self.caller, self.offer, self.key
        team, sender, proved = caller.team, self.sender, self.proved
        command = self.command
        if command is not None:
            if command not in batch.requests:  # it is new, as most are
                batch.requests[command] = self.said
            elif places := repeated(batch, command, OFFERED, self.said):
                return DoneBefore(places=tuple(places))
        if key is not None and (use := batch.key_use(team, sender, key)) is not None:
            before = offered_before(batch, use, self.digest, offers.engine.limits)
            if isinstance(before, str):
                return Existing(handoff_id=before)
            if before is not None and before.handoff_id not in self.loaded:
                return before
        if offer is None:
            assert self.error is not None, "it was read, or refused"
            raise self.error
        if proved is not None:
            offers.signing.recheck(batch, team, proved)
        if offer.parent_id is not None:
            _require_wanted_above(batch, team, offer)
        if self.full is not None:
            raise self.full
        offers.engine.retries.earn(team, sender)
        made = batch.apply(
            team,
            self.handoff_id,
            offer,
            by=caller,
            around=offers.around(team),
            command_id=self.request.command_id,
            reserved=True,
        )
        if proved is not None:
            state(batch, made, signature=proved.digest, within=None)
        if key is not None:
            batch.use_key(
                KeyUse(team=team, sender=sender, key=key, handoff_id=made.id, digest=self.digest)
            )
        return Done(handoff=made)

    def told(self, answer: Offered) -> None:
        """Take the answer, which is committed."""
        if self.asking is None:
            super().told(answer)
        else:
            self._offers.room.release(self.caller.team, self.sender, self.recipient)
            self._offers.receiver.decided(self.asking, answer)

    def refused(self, error: NodropError) -> None:
        """Take the reason why there is no answer."""
        if self.asking is None:
            super().refused(error)
        else:
            self._offers.room.release(self.caller.team, self.sender, self.recipient)
            self._offers.receiver.refused(self.asking, error)


def _require_wanted_above(batch: Batch, team: str, offer: commands.Offer) -> None:
    """Refuse what is for a handoff that ended without success.

    Its end cancelled what was below it. Whoever hands on a part has not heard of that yet, and
    nothing would cancel the part any more.
    """
    above = None if offer.parent_id is None else batch.find(team, offer.parent_id)
    if above is None or offer.detached or above.correlation_id != offer.correlation_id:
        return
    if above.final and above.state is not State.COMPLETED:
        raise AlreadyFinishedError(
            f"{above.id}, which it would be for, is {above.state}",
            next_step="Hand it off below the successor, if there is one, or `detached`.",
        )
