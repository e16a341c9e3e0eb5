"""Offers: new handoffs, each put into somebody's inbox by some batch.

An offer is read before it is decided, so that what is wrong with it is told at once; but a repeat is
answered as the first time, whatever has changed since. What reads an offer may be used by others who
offer on somebody's behalf (groups, triggers).
"""

from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import msgspec

from nodrop.log.port import KeyUse
from nodrop.model import commands, events, lineage
from nodrop.model.commands import Actor
from nodrop.model.errors import (
    AlreadyFinishedError,
    CallerError,
    ForbiddenError,
    NodropError,
    PayloadInvalidError,
    Problem,
    QueueFullError,
    UnavailableError,
)
from nodrop.model.handoff import Handoff, Leg, State, Terms
from nodrop.model.surroundings import Surroundings
from nodrop.protocol import events as wire_events
from nodrop.protocol import requests, traces
from nodrop.relay.asking import Asking, Receiver
from nodrop.relay.batch import Batch
from nodrop.relay.directory.contracts import Contracts
from nodrop.relay.directory.register import MissingManifestError, Register, Target
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.done import Done, DoneBefore, Existing
from nodrop.relay.handoffs.repeats import (
    Unloaded,
    digest_of,
    done_before,
    name_of,
    offered_before,
    request_digest,
)
from nodrop.relay.identity.proved import Proved
from nodrop.relay.identity.signing import Signing
from nodrop.relay.identity.statements import state
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import Job, Wants
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.room import LARGE_BYTES, Aside, Room
from nodrop.relay.shows import Caller

OFFERED: Final = frozenset({wire_events.NAMES[events.Offered]})
Offered = Done | DoneBefore | Existing | Unloaded
"""What becomes of an offer."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An offer that somebody asks for: everything but what it means."""

    caller: Caller
    request: requests.Offer
    sender: str
    handoff_id: str
    proved: Proved | None
    digest: str
    key: str | None
    """What it is remembered by."""


class _Draft(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an offer means, as far as its payload was not looked into."""

    team: str
    sender: str
    request: requests.Offer
    handoff_id: str
    parent: Handoff | None
    terms: Terms
    legs: tuple[Leg, ...]
    body: bytes
    target: Target
    above: tuple[str, ...]


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
        self._engine = engine
        self._intake = intake
        self._register = register
        self._contracts = contracts
        self._room = room
        self._clock = clock
        self._ids = ids
        self._signing = signing
        self._aside = aside

    async def make(
        self, caller: Caller, request: requests.Offer, *, parent: Handoff | None
    ) -> Done | DoneBefore | Existing:
        """Put a new handoff into somebody's inbox."""
        asked = self._asked(caller, request)
        offer: commands.Offer | CallerError
        try:
            offer = await self.read(
                caller.team,
                asked.sender,
                request,
                asked.handoff_id,
                parent=parent,
                proved=asked.proved,
            )
        except CallerError as error:
            offer = _unless_repeated(asked, error)
        job = self._job(asked, offer)
        with self._room.reserved(caller.team, asked.sender, job.recipient):
            done = await self._engine.submit(job)
            while isinstance(done, Unloaded):
                job.loaded.add(done.handoff_id)
                done = await self._engine.submit(job)
            return done

    def post(self, asking: Asking, receiver: Receiver) -> bool:
        """Have the same done with the next commit; False: that takes `make`."""
        caller, request = asking.caller, asking.request
        if request.parent_id is not None:
            return False
        asked = self._asked(caller, request)
        team, sender = caller.team, asked.sender
        offer: commands.Offer | CallerError
        try:
            draft = self._drafted(
                team, sender, request, asked.handoff_id, parent=None, proved=asked.proved
            )
            if len(draft.body) > LARGE_BYTES:
                return False
            offer = self._meant(draft, self._problems(draft))
        except CallerError as error:
            offer = _unless_repeated(asked, error)
        job = self._job(asked, offer)
        self._engine.post(job)
        job.asking, job.receiver = asking, receiver
        self._room.reserve(team, sender, job.recipient)
        return True

    def release(self, job: "_OfferJob") -> None:
        """Count an offer no longer that was posted: its commit is counted, or it came to nothing."""
        self._room.release(job.asked.caller.team, job.asked.sender, job.recipient)

    def around(self, team: str) -> Surroundings:
        """Return what the decision on an offer depends on besides the offer: the team's steps."""
        return self._engine.surroundings(team_steps=self._register.rules.team_steps(team))

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
        draft = self._drafted(team, sender, request, handoff_id, parent=parent, proved=proved)
        if len(draft.body) > LARGE_BYTES:
            with self._room.reserved(team, sender, draft.target.candidate.agent):
                try:
                    problems = await self._aside((team, sender), partial(self._problems, draft))
                except (
                    MissingManifestError
                ):  # replaced and forgotten while this waited for its turn
                    why = f"{draft.target.candidate.agent} has published another manifest"
                    raise UnavailableError(why) from None
        else:
            problems = self._problems(draft)
        return self._meant(draft, problems)

    def reserved(self, team: str, offer: commands.Offer) -> AbstractContextManager[None]:
        """Count an offer that was read until its commit is counted, or it came to nothing."""
        return self._room.reserved(team, offer.origin, offer.to.agent)

    def _asked(self, caller: Caller, request: requests.Offer) -> Asked:
        sender = request.from_ or caller.agent
        if sender != caller.agent and not caller.operator:
            raise ForbiddenError(f"{caller.agent} cannot hand off as {sender}")
        proved = self._signing.check(caller, "offer", request, None)
        remembered = request.idempotency_key is not None or request.turn_based
        content = digest_of(request, sender) if remembered else ""
        return Asked(
            caller=caller,
            request=request,
            sender=sender,
            handoff_id=self._ids.new(),
            proved=proved,
            digest=content,
            key=name_of(request, content),
        )

    def _drafted(
        self,
        team: str,
        sender: str,
        request: requests.Offer,
        handoff_id: str,
        *,
        parent: Handoff | None,
        proved: Proved | None,
    ) -> _Draft:
        terms = self._intake.terms(request, now=self._clock.now())
        legs = self._intake.legs(request)
        body = self._intake.content(request, proved)
        target = self._register.target(team, request.to, request.capability, sender=sender)
        agent, above = target.candidate.agent, lineage.visited(parent) if parent else ()
        lineage.require_no_loop(above, agent, legs, self._engine.limits)
        if legs:
            only = partial(self._register.only_capability, team)
            self._register.rules.require_legs(team, agent, legs, only)
        if request.contract_digest is not None:
            self._contracts.check(team, request, target.capability)
        return _Draft(
            team=team,
            sender=sender,
            request=request,
            handoff_id=handoff_id,
            parent=parent,
            terms=terms,
            legs=legs,
            body=body,
            target=target,
            above=above,
        )

    def _problems(self, draft: _Draft) -> tuple[Problem, ...]:
        """Return what is wrong with a payload in the eyes of its recipient."""
        to, what = draft.target.candidate, draft.target.capability
        return self._register.problems(draft.team, to, what, "input", draft.request.payload)

    def _meant(self, draft: _Draft, problems: tuple[Problem, ...]) -> commands.Offer:
        team, sender, request = draft.team, draft.sender, draft.request
        target, parent = draft.target, draft.parent
        if target.routed and (problems or self._room.is_full(team, target.candidate)):
            others = self._register.candidates(
                team, target.capability, sender=sender, asked=(target.candidate.agent,)
            )
            able = self._register.who_take(team, others, target.capability, request.payload)
            first = next(iter(self._room.fullest_last(team, able)), None)
            if first is not None and (problems or not self._room.is_full(team, first)):
                target, problems = msgspec.structs.replace(target, candidate=first), ()
        if problems:
            detail = f"{target.candidate.agent} does not take this payload"
            raise PayloadInvalidError(detail, errors=problems)
        return commands.Offer(
            sender=sender,
            origin=sender,
            to=target.candidate,
            capability=target.capability,
            routed=target.routed,
            terms=draft.terms,
            contract_digest=request.contract_digest,
            correlation_id=request.correlation_id
            or (parent.correlation_id if parent else draft.handoff_id),
            parent_id=request.parent_id and (parent.id if parent else request.parent_id),
            legs=draft.legs,
            ancestors=draft.above,
            watchers=request.watchers,
            key=request.idempotency_key,
            traceparent=request.traceparent or (traces.traceparent(parent) if parent else None),
            detached=request.detached,
            body=draft.body,
        )

    # --- deciding ---

    def _job(self, asked: Asked, offer: commands.Offer | CallerError) -> "_OfferJob":
        recipient = asked.sender if isinstance(offer, CallerError) else offer.to.agent
        full = self._room.why_full(asked.caller.team, asked.sender, recipient)
        return _OfferJob(self, asked, offer, recipient=recipient, full=full)

    def decide(self, batch: Batch, job: "_OfferJob") -> Offered:
        """Make a handoff, or recognise the one that the same offer made before."""
        asked, offer = job.asked, job.offer
        caller, request, team = asked.caller, asked.request, asked.caller.team
        sender, key, proved = asked.sender, asked.key, asked.proved
        if job.digest is not None and (
            places := done_before(
                batch, caller, request.command_id, leaves=OFFERED, request=job.digest
            )
        ):
            return DoneBefore(places=tuple(places))
        if key is not None:
            use = batch.key_use(team, sender, key)
            before = offered_before(batch, use, asked.digest, self._engine.limits)
            if isinstance(before, str):
                return Existing(handoff_id=before)
            if before is not None and before.handoff_id not in job.loaded:
                return before
        if isinstance(offer, CallerError):
            raise offer
        if proved is not None:
            self._signing.recheck(batch, team, proved)
        if offer.parent_id is not None:
            _require_wanted_above(batch, team, offer)
        if job.full is not None:
            raise job.full
        self._engine.retries.earn(team, sender)
        made = batch.apply(
            team,
            asked.handoff_id,
            offer,
            by=Actor(agent=caller.agent, operator=caller.operator),
            around=self.around(team),
            command_id=request.command_id,
            reserved=True,
        )
        if proved is not None:
            state(batch, made, signature=proved.digest, within=None)
        if key is not None:
            batch.use_key(
                KeyUse(team=team, sender=sender, key=key, handoff_id=made.id, digest=asked.digest)
            )
        return Done(handoff=made)


class _OfferJob(Job[Offered]):
    """An offer to be decided in some batch."""

    __slots__ = (
        *("_offers", "asked", "asking", "digest", "full", "loaded"),
        *("offer", "receiver", "recipient"),
    )

    def __init__(
        self,
        offers: Offers,
        asked: Asked,
        offer: commands.Offer | CallerError,
        *,
        recipient: str,
        full: QueueFullError | None,
    ) -> None:
        caller, request = asked.caller, asked.request
        super().__init__((caller.team, caller.agent))
        self._offers = offers
        self.asked = asked
        self.offer = offer
        self.recipient = recipient
        self.full = full
        """Why there is no room for it; a repeat needs none."""
        self.digest = None if request.command_id is None else request_digest(request)
        self.loaded: set[str] = set()
        """Handoffs that it was held against as a repeat."""
        self.asking: Asking | None = None
        self.receiver: Receiver | None = None
        """Answers `asking`; None: the answer sets the future."""

    def want(self, wants: Wants) -> None:
        """Say what it must see."""
        asked, team = self.asked, self.asked.caller.team
        if asked.key is not None:
            wants.keys.add((team, asked.sender, asked.key))
        command_id = asked.request.command_id
        if command_id is not None:
            wants.commands.add((team, asked.caller.agent, command_id))
        if not isinstance(self.offer, CallerError) and self.offer.parent_id is not None:
            wants.handoffs.add((team, self.offer.parent_id))
        wants.handoffs.update([(team, handoff_id) for handoff_id in self.loaded])

    def run(self, batch: Batch) -> Offered:
        """Decide."""
        return self._offers.decide(batch, self)

    def told(self, answer: Offered) -> None:
        """Take the answer, which is committed."""
        if self.asking is None or self.receiver is None:
            super().told(answer)
        else:
            self._offers.release(self)
            self.receiver.decided(self.asking, answer)

    def refused(self, error: NodropError) -> None:
        """Take the reason why there is no answer."""
        if self.asking is None or self.receiver is None:
            super().refused(error)
        else:
            self._offers.release(self)
            self.receiver.refused(self.asking, error)


def _unless_repeated(asked: Asked, error: CallerError) -> CallerError:
    """Return why an offer is refused, unless it is a repeat: that is answered as the first time."""
    if asked.request.command_id is None and asked.key is None:
        raise error
    return error


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
