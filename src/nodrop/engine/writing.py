"""The operations that change a handoff: each one a job for some batch.

A job first looks whether its command was carried out before: a repeat is answered as the first
time. Everything else it does is decided by `core.machine`; what follows from an outcome is done in
the same batch (`chains`).
"""

import asyncio
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import msgspec

from nodrop.core import commands, events, lineage
from nodrop.core.commands import RELAY, Actor, Candidate
from nodrop.core.errors import (
    CallerError,
    ForbiddenError,
    NodropError,
    PayloadInvalidError,
    ResultInvalidError,
    StaleQuestionError,
)
from nodrop.core.model import Handoff
from nodrop.core.surroundings import Surroundings
from nodrop.engine import chains, erasing
from nodrop.engine.batch import Batch
from nodrop.engine.bodies import Bodies
from nodrop.engine.consequences import Consequences, covering
from nodrop.engine.contracts import Contracts
from nodrop.engine.done import Done, DoneBefore, Existing
from nodrop.engine.engine import Engine
from nodrop.engine.holding import Holding
from nodrop.engine.intake import Intake
from nodrop.engine.jobs import Job
from nodrop.engine.ports import Clock, Ids
from nodrop.engine.proved import Proved
from nodrop.engine.queues import Queues
from nodrop.engine.register import Register
from nodrop.engine.repeats import (
    Unloaded,
    digest_of,
    done_before,
    leaves,
    name_of,
    offered_before,
)
from nodrop.engine.room import Room
from nodrop.engine.shows import Caller, require_sight
from nodrop.engine.signing import Signing
from nodrop.engine.statements import state
from nodrop.store import KeyUse, Wanted
from nodrop.wire import canonical, requests
from nodrop.wire import events as wire_events
from nodrop.wire.bodies import decode_content, with_signature

OFFERED: Final = frozenset({wire_events.NAMES[events.Offered]})
_DELIVERED: Final = frozenset({wire_events.NAMES[events.Delivered]})

OFF_THE_LOOP_BYTES: Final = 65_536
"""A payload larger than this is checked in a thread, so that it keeps nobody waiting."""


class Writing:
    """Turns requests into jobs and has them decided."""

    def __init__(
        self,
        engine: Engine,
        *,
        intake: Intake,
        register: Register,
        contracts: Contracts,
        bodies: Bodies,
        queues: Queues,
        room: Room,
        holding: Holding,
        clock: Clock,
        ids: Ids,
        signing: Signing,
        consequences: Consequences,
    ) -> None:
        self._engine = engine
        self._intake = intake
        self._register = register
        self._contracts = contracts
        self._bodies = bodies
        self._queues = queues
        self._room = room
        self._holding = holding
        self._clock = clock
        self._ids = ids
        self._signing = signing
        self._consequences = consequences

    # --- offers ---

    async def offer(
        self, caller: Caller, request: requests.Offer, *, parent: Handoff | None
    ) -> Done | DoneBefore | Existing:
        """Put a new handoff into somebody's inbox."""
        sender = request.from_ or caller.agent
        if sender != caller.agent and not caller.operator:
            raise ForbiddenError(f"{caller.agent} cannot hand off as {sender}")
        proved = self._signing.check(caller, "offer", request, None)
        team = caller.team
        handoff_id = self._ids.new()
        remembered = request.idempotency_key is not None or request.turn_based
        digest = digest_of(request, sender) if remembered else ""
        key = name_of(request, digest)
        offer: commands.Offer | CallerError
        try:
            offer = await self.read_offer(
                team, sender, request, handoff_id, parent=parent, proved=proved
            )
        except CallerError as error:
            if request.command_id is None and key is None:
                raise
            offer = error  # unless it is a repeat: that is answered as the first time

        recipient = sender if isinstance(offer, CallerError) else offer.to.agent
        full = self._room.why_full(team, sender, recipient)

        asked = set[str]()

        def run(batch: Batch) -> Done | DoneBefore | Existing | Unloaded:
            if places := done_before(batch, caller, request.command_id, leaves=OFFERED):
                return DoneBefore(places=tuple(places))
            if key is not None:
                use = batch.key_use(team, sender, key)
                before = offered_before(batch, use, digest, self._engine.limits)
                if isinstance(before, str):
                    return Existing(handoff_id=before)
                if before is not None and before.handoff_id not in asked:
                    return before
            if isinstance(offer, CallerError):
                raise offer
            self._signing.recheck(batch, team, proved)
            if full is not None:
                raise full
            self._engine.retries.earn(team, sender)
            made = self._apply(batch, handoff_id, offer, caller, command_id=request.command_id)
            if proved is not None:
                state(batch, made, signature=proved.digest, within=None)
            if key is not None:
                batch.use_key(
                    KeyUse(team=team, sender=sender, key=key, handoff_id=handoff_id, digest=digest)
                )
            return Done(handoff=made)

        wanted = Wanted(
            keys=frozenset() if key is None else frozenset({(team, sender, key)}),
            commands=_commands(caller, request.command_id),
        )
        with self._room.reserved(team, sender, recipient):
            done = await self._engine.submit(Job(wanted, run))
            while isinstance(done, Unloaded):
                asked.add(done.handoff_id)
                handoffs = frozenset({(team, done.handoff_id)})
                wanted = msgspec.structs.replace(wanted, handoffs=handoffs)
                done = await self._engine.submit(Job(wanted, run))
            return done

    async def read_offer(
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
        check = (team, target.candidate, target.capability, "input", request.payload)
        if len(body) > OFF_THE_LOOP_BYTES:
            problems = await asyncio.to_thread(self._register.problems, *check)
        else:
            problems = self._register.problems(*check)
        if problems and target.routed:  # somebody else may take it
            others = self._register.candidates(
                team, target.capability, sender=sender, asked=(target.candidate.agent,)
            )
            able = self._register.who_take(team, others, target.capability, request.payload)
            if able:
                target, problems = msgspec.structs.replace(target, candidate=able[0]), ()
        if problems:
            detail = f"{target.candidate.agent} does not take this payload"
            raise PayloadInvalidError(detail, errors=problems)
        return commands.Offer(
            sender=sender,
            origin=sender,
            to=target.candidate,
            capability=target.capability,
            routed=target.routed,
            terms=terms,
            contract_digest=request.contract_digest,
            correlation_id=request.correlation_id
            or (parent.correlation_id if parent else handoff_id),
            parent_id=request.parent_id and (parent.id if parent else request.parent_id),
            legs=legs,
            ancestors=above,
            watchers=request.watchers,
            key=request.idempotency_key,
            traceparent=request.traceparent or (parent.traceparent if parent else None),
            detached=request.detached,
            body=body,
        )

    # --- commands about a handoff ---

    async def command(
        self, caller: Caller, request: requests.Command, handoff_id: str
    ) -> Done | DoneBefore:
        """Carry out a command whose meaning is all in the request."""
        if isinstance(request, requests.Ack):
            await self._queues.know(caller.team, caller.agent)
        return await self._engine.submit(self._command(caller, request, handoff_id))

    def post(
        self,
        caller: Caller,
        request: requests.Command,
        handoff_id: str,
        *,
        told: Callable[[Done | DoneBefore], None],
        refused: Callable[[NodropError], None],
    ) -> None:
        """Have the same carried out with the next commit. Positions must be known for an ack."""
        job = self._command(caller, request, handoff_id)
        job.told, job.refused = told, refused
        self._engine.post(job)

    def _command(
        self, caller: Caller, request: requests.Command, handoff_id: str
    ) -> Job[Done | DoneBefore]:
        proved = self._signing.check(caller, _name_of(type(request)), request, handoff_id)

        def decide(batch: Batch, handoff: Handoff) -> Handoff:
            command = self._intake.command(request, now=batch.now)
            if proved is not None:
                self._signing.recheck(batch, caller.team, proved)
                body = with_signature(getattr(command, "body", None), proved.kept)
                command = msgspec.structs.replace(command, body=body)
            around = self._around(handoff, moving=isinstance(command, commands.Reject))
            if isinstance(command, commands.Fail | commands.Release):
                wait = self._engine.retries.wait_ms(handoff.team, handoff.origin, now=batch.now)
                around = msgspec.structs.replace(around, retry_wait_ms=wait)
            if isinstance(request, requests.Complete):
                self._check_result(handoff, request, caller)
            done = self._apply(
                batch, handoff.id, command, caller, command_id=request.command_id, around=around
            )
            self._queues.note(done)
            self._engine.retries.note(handoff, done, now=batch.now)
            if isinstance(command, commands.Erase):
                batch.keep_record(erasing.intended(done))
            if handoff.revivable and done.live and done.process is not None:
                self._holding.see(batch, caller, done.process, [done])  # it is back
            return self._followed(batch, handoff, done, getattr(command, "body", None))

        return self._job_about(caller, handoff_id, request, decide)

    def _check_result(self, handoff: Handoff, request: requests.Complete, caller: Caller) -> None:
        if caller.agent != handoff.recipient:
            return  # the machine says why
        held_to = Candidate(
            agent=handoff.recipient, manifest_version=handoff.manifest_version or None
        )
        problems = self._register.problems(
            handoff.team, held_to, handoff.capability, "output", request.result
        )
        if problems:
            raise ResultInvalidError(
                f"{handoff.capability} promises another result", errors=problems
            )

    async def answer(
        self,
        caller: Caller,
        request: requests.Answer | requests.Agree | requests.Decline,
        handoff_id: str,
    ) -> Done | DoneBefore:
        """Answer the question, or decide on the terms, that stand in the log at `seq`."""

        def decide(batch: Batch, handoff: Handoff) -> Handoff:
            place = batch.entry(caller.team, request.seq)
            if place is None or place.handoff_id != handoff.id or place.version is None:
                raise StaleQuestionError
            question = place.version
            command: commands.Command
            match request:
                case requests.Answer():
                    body = self._intake.answer(request)
                    command = commands.AnswerQuestion(question=question, body=body)
                case requests.Agree():
                    command = commands.Agree(question=question)
                case requests.Decline():
                    body = self._intake.reason(request.reason)
                    command = commands.Decline(question=question, body=body)
            around = self._around(handoff, moving=isinstance(command, commands.Decline))
            done = self._apply(
                batch, handoff.id, command, caller, command_id=request.command_id, around=around
            )
            return self._followed(batch, handoff, done, getattr(command, "body", None))

        entries = frozenset({(caller.team, request.seq)})
        return await self._about(caller, handoff_id, request, decide, entries=entries)

    async def reassign(
        self, caller: Caller, request: requests.Reassign, handoff_id: str
    ) -> Done | DoneBefore:
        """Give a handoff to somebody else."""
        self._intake.agent(request.to, "to")
        body = self._intake.reason(request.reason)

        def decide(batch: Batch, handoff: Handoff) -> Handoff:
            target = self._register.target(
                caller.team,
                request.to,
                request.capability or handoff.capability,
                sender=handoff.sender,
            )
            elsewhere = target.candidate.agent != handoff.recipient
            if elsewhere and (
                full := self._room.why_full_inbox(caller.team, target.candidate.agent)
            ):
                raise full
            self._check_payload(handoff, target.candidate, target.capability)
            command = commands.Reassign(
                to=target.candidate, capability=target.capability, routed=target.routed, body=body
            )
            return self._apply(batch, handoff.id, command, caller, command_id=request.command_id)

        return await self._about(caller, handoff_id, request, decide)

    async def mark_outcome_delivered(self, caller: Caller, handoff_id: str) -> Handoff:
        """Record that the outcome is being sent to the requester."""
        done = await self._engine.submit(self._marking(caller, handoff_id))
        return _now(done)

    def post_outcome_delivered(
        self,
        caller: Caller,
        handoff_id: str,
        *,
        told: Callable[[Handoff], None],
        refused: Callable[[NodropError], None],
    ) -> None:
        """Have the same recorded with the next commit."""
        job = self._marking(caller, handoff_id)
        job.told, job.refused = (lambda done: told(_now(done))), refused
        self._engine.post(job)

    def _marking(self, caller: Caller, handoff_id: str) -> Job[Done | DoneBefore]:
        def decide(batch: Batch, handoff: Handoff) -> Handoff:
            command = commands.MarkOutcomeDelivered()
            return batch.apply(
                caller.team, handoff.id, command, by=RELAY, around=self._engine.surroundings()
            )

        return self._job_about(caller, handoff_id, None, decide)

    # --- dead letters ---

    async def decide_dead_letter(
        self,
        caller: Caller,
        request: requests.Redrive | requests.AcceptLate,
        dead: Handoff,
    ) -> Done | DoneBefore:
        """Carry on a dead letter: try again, or take the result that came too late."""
        successor_id = self._ids.new()

        def decide(batch: Batch, handoff: Handoff) -> Handoff:
            late: bytes | None = None
            length = max(handoff.terms.deadline_at - handoff.stored_at, 1)
            deadline = batch.now + length
            command: commands.Command
            if isinstance(request, requests.Redrive):
                self._intake.agent(request.to, "to")
                deadline = self._intake.due(request.deadline, "deadline", length, now=batch.now)
                body = self._intake.reason(request.reason)
                command = commands.Redrive(successor=successor_id, body=body)
            else:
                command = commands.AcceptLate(successor=successor_id)
            self._apply(batch, handoff.id, command, caller, command_id=request.command_id)
            if isinstance(request, requests.AcceptLate):
                assert handoff.late_result is not None, "the machine has checked it"
                key = (handoff.team, handoff.id, handoff.late_result)
                late = self._bodies.at_hand(key) or b'{"result":null}'
            return self._succeed(
                batch,
                handoff,
                successor_id,
                request,
                caller,
                deadline_at=deadline,
                late_result=late,
            )

        keys = frozenset({(dead.team, dead.sender, dead.key)}) if dead.key else frozenset[Any]()
        return await self._about(caller, dead.id, request, decide, keys=keys)

    def _succeed(
        self,
        batch: Batch,
        dead: Handoff,
        successor_id: str,
        request: requests.Redrive | requests.AcceptLate,
        caller: Caller,
        *,
        deadline_at: int,
        late_result: bytes | None,
    ) -> Handoff:
        to, capability = dead.recipient, dead.capability
        if isinstance(request, requests.Redrive) and (request.to or request.capability):
            capability = request.capability or dead.capability
            target = self._register.target(caller.team, request.to, capability, sender=dead.sender)
            candidate, capability, routed = target.candidate, target.capability, target.routed
            self._check_payload(dead, candidate, capability)
        else:
            candidate = Candidate(
                agent=to,
                manifest_version=dead.manifest_version,
                timeout_ms=dead.terms.timeout_ms,
            )
            routed = dead.routed
            self._register.rules.require(dead.team, dead.sender, to, capability)
        not_before: int | None = None
        if late_result is None:
            if full := self._room.why_full(dead.team, dead.origin, candidate.agent):
                raise full
            not_before = self._redriven_not_before(dead, batch.now)
        content = self._bodies.at_hand((dead.team, dead.id, 1)) or b"{}"
        offer = chains.successor(
            dead,
            content,
            to=candidate,
            capability=capability,
            routed=routed,
            deadline_at=deadline_at,
            late_result=late_result,
            not_before=not_before,
        )
        made = self._apply(batch, successor_id, offer, caller)
        if covered := covering(decode_content(content), dead):
            state(batch, made, signature=None, within=covered)
        if dead.key is not None:
            use = batch.key_use(dead.team, dead.sender, dead.key)
            if use is not None:
                batch.use_key(msgspec.structs.replace(use, handoff_id=successor_id))
        if late_result is not None:
            self._consequences.follow(batch, made, late_result)
        return batch.handoff(dead.team, dead.id)

    def _redriven_not_before(self, dead: Handoff, now: int) -> int | None:
        """Return when a redrive may be taken, and have it paid: None, at once."""
        retries = self._engine.retries
        wait = retries.wait_ms(dead.team, dead.origin, now=now)
        retries.pay(dead.team, dead.origin, now=now)
        return now + wait if wait else None

    # --- taking ---

    async def taken_before(self, caller: Caller, command_id: str) -> DoneBefore | None:
        """Return what a `take` of this id took, if it was carried out before."""

        def run(batch: Batch) -> DoneBefore | None:
            places = done_before(batch, caller, command_id, leaves=_DELIVERED)
            return DoneBefore(places=tuple(places)) if places else None

        return await self._engine.submit(Job(Wanted(commands=_commands(caller, command_id)), run))

    # --- shared ---

    async def _about(
        self,
        caller: Caller,
        handoff_id: str,
        request: requests.Command | None,
        decide: Callable[[Batch, Handoff], Handoff],
        *,
        entries: frozenset[tuple[str, int]] = frozenset(),
        keys: frozenset[tuple[str, str, str]] = frozenset(),
    ) -> Done | DoneBefore:
        job = self._job_about(caller, handoff_id, request, decide, entries=entries, keys=keys)
        return await self._engine.submit(job)

    def _job_about(
        self,
        caller: Caller,
        handoff_id: str,
        request: requests.Command | None,
        decide: Callable[[Batch, Handoff], Handoff],
        *,
        entries: frozenset[tuple[str, int]] = frozenset(),
        keys: frozenset[tuple[str, str, str]] = frozenset(),
    ) -> Job[Done | DoneBefore]:
        command_id = request.command_id if request else None

        def run(batch: Batch) -> Done | DoneBefore:
            handoff = require_sight(caller, batch.find(caller.team, handoff_id))
            if places := done_before(
                batch, caller, command_id, about=handoff_id, leaves=leaves(request)
            ):
                return DoneBefore(places=tuple(places))
            return Done(handoff=decide(batch, handoff))

        wanted = Wanted(
            handoffs=frozenset({(caller.team, handoff_id)}),
            keys=keys,
            commands=_commands(caller, command_id),
            entries=entries,
        )
        return Job(wanted, run)

    def _apply(
        self,
        batch: Batch,
        handoff_id: str,
        command: commands.Command,
        caller: Caller,
        *,
        command_id: str | None = None,
        around: Surroundings | None = None,
    ) -> Handoff:
        return batch.apply(
            caller.team,
            handoff_id,
            command,
            by=Actor(agent=caller.agent, operator=caller.operator),
            around=around or self._engine.surroundings(),
            command_id=command_id,
        )

    def _around(self, handoff: Handoff, *, moving: bool) -> Surroundings:
        """Return what a decision depends on; `moving` may ask somebody else."""
        candidates: tuple[Candidate, ...] = ()
        if moving and handoff.routed:
            team, capability = handoff.team, handoff.capability
            others = self._register.candidates(
                team, capability, sender=handoff.sender, asked=handoff.asked
            )
            payload = self._payload(handoff)
            candidates = self._register.who_take(team, others, capability, payload)
        return self._engine.surroundings(
            candidates=candidates, position=self._queues.position(handoff)
        )

    def _check_payload(
        self, handoff: Handoff, candidate: Candidate, capability: str | None
    ) -> None:
        payload = self._payload(handoff)
        problems = self._register.problems(handoff.team, candidate, capability, "input", payload)
        if problems:
            raise PayloadInvalidError(f"{candidate.agent} does not take it", errors=problems)

    def _payload(self, handoff: Handoff) -> Any:
        content = decode_content(self._bodies.at_hand((handoff.team, handoff.id, 1)))
        return canonical.loads(bytes(content.payload))

    def _followed(
        self, batch: Batch, before: Handoff, after: Handoff, outcome: bytes | None
    ) -> Handoff:
        """Open what follows from an outcome that a command has just brought about."""
        if before.final or not after.final:
            return after
        return self._consequences.follow(batch, after, outcome)


def _now(done: Done | DoneBefore) -> Handoff:
    assert isinstance(done, Done), "no command id, no earlier answer"
    return done.handoff


@functools.cache
def _name_of(kind: type[requests.Command]) -> str:
    """Return the operation that asks for a command of this kind."""
    return kind.__name__.lower()


def _commands(caller: Caller, command_id: str | None) -> frozenset[tuple[str, str, str]]:
    """Return what the command must be looked up by: it may have been carried out before."""
    if command_id is None:
        return frozenset()
    return frozenset({(caller.team, caller.agent, command_id)})
