"""Offers: new handoffs, each put into somebody's inbox by some batch.

An offer is read before it is decided, so that what is wrong with it is told at once; but a repeat is
answered as the first time, whatever has changed since. What reads an offer may be used by others who
offer on somebody's behalf (groups, triggers).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import msgspec

from nodrop.log.port import KeyUse, Wanted
from nodrop.model import commands, events, lineage
from nodrop.model.commands import Actor
from nodrop.model.errors import (
    AlreadyFinishedError,
    CallerError,
    ForbiddenError,
    NodropError,
    PayloadInvalidError,
    Problem,
    UnavailableError,
)
from nodrop.model.handoff import Handoff, Leg, State, Terms
from nodrop.model.surroundings import Surroundings
from nodrop.protocol import events as wire_events
from nodrop.protocol import requests, traces
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
from nodrop.relay.jobs import Job
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
        recipient = _recipient(asked, offer)
        loaded = set[str]()
        job = self._job(asked, offer, loaded)
        with self._room.reserved(caller.team, asked.sender, recipient):
            done = await self._engine.submit(job)
            while isinstance(done, Unloaded):
                loaded.add(done.handoff_id)
                handoffs = ((caller.team, done.handoff_id), *job.wanted.handoffs)
                wanted = msgspec.structs.replace(job.wanted, handoffs=handoffs)
                done = await self._engine.submit(Job(wanted, job.run, by=job.by))
            return done

    def post(
        self,
        caller: Caller,
        request: requests.Offer,
        *,
        told: Callable[[Offered], None],
        refused: Callable[[NodropError], None],
    ) -> bool:
        """Have the same done with the next commit; False: that takes `make`."""
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
        recipient = _recipient(asked, offer)
        job = self._job(asked, offer, set())

        def done(answer: Offered) -> None:
            self._room.release(team, sender, recipient)
            told(answer)

        def not_done(error: NodropError) -> None:
            self._room.release(team, sender, recipient)
            refused(error)

        job.told, job.refused = done, not_done
        self._engine.post(job)
        self._room.reserve(team, sender, recipient)
        return True

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

    def _job(
        self, asked: Asked, offer: commands.Offer | CallerError, loaded: set[str]
    ) -> Job[Offered]:
        """Return what decides an offer; `loaded` are handoffs that a repeat was held against."""
        caller, request, team = asked.caller, asked.request, asked.caller.team
        sender, key, proved = asked.sender, asked.key, asked.proved
        full = self._room.why_full(team, sender, _recipient(asked, offer))
        said = None if request.command_id is None else request_digest(request)

        def run(batch: Batch) -> Offered:
            if places := done_before(
                batch, caller, request.command_id, leaves=OFFERED, request=said
            ):
                return DoneBefore(places=tuple(places))
            if key is not None:
                use = batch.key_use(team, sender, key)
                before = offered_before(batch, use, asked.digest, self._engine.limits)
                if isinstance(before, str):
                    return Existing(handoff_id=before)
                if before is not None and before.handoff_id not in loaded:
                    return before
            if isinstance(offer, CallerError):
                raise offer
            self._signing.recheck(batch, team, proved)
            _require_wanted_above(batch, team, offer)
            if full is not None:
                raise full
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
                use = KeyUse(
                    team=team, sender=sender, key=key, handoff_id=made.id, digest=asked.digest
                )
                batch.use_key(use)
            return Done(handoff=made)

        command_id = request.command_id
        above = None if isinstance(offer, CallerError) else offer.parent_id
        wanted = Wanted(
            handoffs=() if above is None else ((team, above),),
            keys=() if key is None else ((team, sender, key),),
            commands=() if command_id is None else ((team, caller.agent, command_id),),
        )
        return Job(wanted, run, by=(team, caller.agent))


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


def _recipient(asked: Asked, offer: commands.Offer | CallerError) -> str:
    return asked.sender if isinstance(offer, CallerError) else offer.to.agent
