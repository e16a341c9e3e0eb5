"""The operations that change a handoff: each one a job for some batch.

A job first looks whether its command was carried out before: a repeat is answered as the first
time. Everything else it does is decided by `model.machine`; what follows from an outcome is done in
the same batch (`chains`).
"""

from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from nodrop.log.port import Key, Wanted
from nodrop.model import commands, events
from nodrop.model.commands import RELAY, Candidate
from nodrop.model.errors import (
    NodropError,
    NoMatchError,
    ResultInvalidError,
    StaleQuestionError,
)
from nodrop.model.handoff import Handoff, State
from nodrop.model.surroundings import Surroundings
from nodrop.protocol import canonical, requests
from nodrop.protocol import events as wire_events
from nodrop.protocol.bodies import decode_content, with_signature
from nodrop.protocol.identity.signatures import SIGNABLE
from nodrop.relay.asking import (
    Asking,
    Decide,
    Done,
    DoneBefore,
    HandoffCommand,
    Receiver,
)
from nodrop.relay.batch import Batch
from nodrop.relay.bodies import Bodies
from nodrop.relay.delivery.binding import Binder
from nodrop.relay.delivery.holding import Holding
from nodrop.relay.delivery.queues import Queues
from nodrop.relay.directory.contracts import Contracts
from nodrop.relay.directory.register import MissingManifestError, Register
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs import chains, erasing
from nodrop.relay.handoffs.consequences import Consequences, covering
from nodrop.relay.handoffs.offers import Offers
from nodrop.relay.handoffs.repeats import done_before, request_digest
from nodrop.relay.identity.signing import Signing
from nodrop.relay.identity.statements import state
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.room import Aside, Room
from nodrop.relay.shows import Caller

OFFERED: Final = frozenset({wire_events.NAMES[events.Offered]})
_OFFERED: Final = State.OFFERED
_BY_THEMSELVES: Final = frozenset({commands.Complete, commands.Settle})
"""Commands whose decision depends on the handoff alone."""
_DELIVERED: Final = frozenset({wire_events.NAMES[events.Delivered]})


class _Marking(HandoffCommand):
    """Goes on with a handoff, once the log says that its outcome is delivered."""

    __slots__ = ("refuse", "show")

    show: Callable[[Handoff], None]
    refuse: Callable[[NodropError], None]

    def told(self, answer: Done | DoneBefore) -> None:
        """Show the handoff."""
        self.show(_now(answer))

    def refused(self, error: NodropError) -> None:
        """Say why it is not shown."""
        self.refuse(error)


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
        binder: Binder,
        cached: Callable[[Key], Handoff | None],
        aside: Aside,
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
        self._binder = binder
        self._cached = cached
        """Returns a handoff that the store need not be asked for."""
        self.receiver: Receiver
        """Answers commands and offers once they are decided."""
        self.offers = Offers(
            engine,
            intake=intake,
            register=register,
            contracts=contracts,
            room=room,
            clock=clock,
            ids=ids,
            signing=signing,
            aside=aside,
        )

    # --- commands about a handoff ---

    async def command(
        self, caller: Caller, request: requests.Command, handoff_id: str
    ) -> Done | DoneBefore:
        """Carry out a command whose meaning is all in the request, and that nobody signs."""
        return await self._engine.submit(HandoffCommand(caller, handoff_id, request, self.decide))

    def post(self, asking: Asking) -> None:
        """Have a command carried out with the next commit. Positions must be known for an ack.

        What takes a while is checked before: the signature of a request, and a result. Both are looked
        at again where they rest on something that may have changed by then.
        """
        operation, request, caller = asking.operation, asking.request, asking.caller
        asking.receiver = self.receiver
        asking.decide = self.decide
        asking.about = about = (caller.team, asking.handoff_id)
        asking.besides = asking.proved = asking.checked = asking.command = None
        if request.command_id is not None:
            asking.command = (caller.team, caller.agent, request.command_id)
            asking.digest = request_digest(request)
        if operation in SIGNABLE:
            if request.signature is not None or caller.team in self._signing.signed_only:
                asking.proved = self._signing.check(caller, operation, request, asking.handoff_id)
            if operation == "complete":
                handoff = self._cached(about)
                if handoff is not None and caller.agent == handoff.recipient:
                    try:
                        self._check_result(handoff, asking)
                    except MissingManifestError:
                        asking.checked = None  # it is checked once the manifest is fetched
        self._engine.post(asking)

    def decide(self, batch: Batch, handoff: Handoff, job: HandoffCommand) -> Handoff:
        """Carry out a command on a handoff that its caller may see."""
        caller, request, engine = job.caller, job.request, self._engine
        by_recipient = caller.agent == handoff.recipient
        command = self._intake.command(request, now=batch.now)
        if job.proved is not None:
            self._signing.recheck(batch, caller.team, job.proved)
            body = with_signature(getattr(command, "body", None), job.proved.kept)
            command = msgspec.structs.replace(command, body=body)
        kind = command.__class__
        if kind is commands.Complete and by_recipient:  # of others the machine says why not
            if job.checked is not handoff and not _is_held_alike(job.checked, handoff):
                self._check_result(handoff, job)
            if job.problems:
                detail = f"{handoff.capability} promises another result"
                raise ResultInvalidError(detail, errors=job.problems)
        around = (
            engine.usual
            if kind in _BY_THEMSELVES
            else self._around(batch, handoff, command, caller)
        )
        done = batch.apply(
            caller.team,
            handoff.id,
            command,
            by=caller,
            around=around,
            command_id=request.command_id,
        )
        if kind is commands.Settle:
            return done
        if kind is commands.Acknowledge:
            self._queues.note(done)  # the next acknowledgement of this batch comes after it
            if done.queued is not None:
                engine.expect_life(batch, caller.team, caller.agent)
        elif kind is commands.Erase:
            batch.keep_record(erasing.intended(done))
        if done.tries != handoff.tries:
            engine.retries.note(handoff, done, now=batch.now)
        if by_recipient:
            if handoff.process is not None:
                life = engine.takers.lives.get((caller.team, handoff.process))
                if life is not None:
                    life.heard_at = batch.now
                    if life.silent:
                        engine.takers.hear(caller.team, handoff.process, batch.now)
            if handoff.revivable and done.live and done.process is not None:
                self._holding.see(batch, caller, done.process, [done])  # it is back
        if not done.legs or done.outcome is None or handoff.outcome is not None:
            return done
        if around.binding is not None:
            return done  # rejected: what follows is looked after once all is decided
        return self._consequences.follow(batch, done, getattr(command, "body", None))

    def _check_result(self, handoff: Handoff, job: HandoffCommand) -> None:
        """Hold a result to what the manifest of a handoff promises."""
        held_to = Candidate(
            agent=handoff.recipient, manifest_version=handoff.manifest_version or None
        )
        job.problems = self._register.problems(
            handoff.team, held_to, handoff.capability, "output", job.request.result
        )
        job.checked = handoff

    async def answer(
        self,
        caller: Caller,
        request: requests.Answer | requests.Agree | requests.Decline,
        handoff_id: str,
    ) -> Done | DoneBefore:
        """Answer the question, or decide on the terms, that stand in the log at `seq`."""

        def decide(batch: Batch, handoff: Handoff, _: HandoffCommand) -> Handoff:
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
            around = self._around(batch, handoff, command, caller)
            done = self._apply(
                batch, handoff.id, command, caller, command_id=request.command_id, around=around
            )
            return self._followed(batch, handoff, done, getattr(command, "body", None))

        entries = ((caller.team, request.seq),)
        return await self._about(caller, handoff_id, request, decide, entries=entries)

    async def reassign(
        self, caller: Caller, request: requests.Reassign, handoff_id: str
    ) -> Done | DoneBefore:
        """Give a handoff to somebody else."""
        self._intake.agent(request.to, "to")
        body = self._intake.reason(request.reason)

        def decide(batch: Batch, handoff: Handoff, _: HandoffCommand) -> Handoff:
            if handoff.final:  # refused, whoever it would be given to
                refused = commands.Reassign(to=Candidate(agent=handoff.recipient))
                return self._apply(batch, handoff.id, refused, caller)
            target = self._register.target_taking(
                caller.team,
                request.to,
                request.capability or handoff.capability,
                self._payload(handoff),
                sender=handoff.sender,
                asked=handoff.asked,
            )
            elsewhere = target.candidate.agent != handoff.recipient
            if elsewhere and (
                full := self._room.why_full_inbox(caller.team, target.candidate.agent)
            ):
                raise full
            command = commands.Reassign(
                to=target.candidate, capability=target.capability, routed=target.routed, body=body
            )
            return self._apply(batch, handoff.id, command, caller, command_id=request.command_id)

        return await self._about(caller, handoff_id, request, decide)

    async def mark_outcome_delivered(self, caller: Caller, handoff_id: str) -> Handoff:
        """Record that the outcome is being sent to the requester."""
        job = HandoffCommand(caller, handoff_id, None, self._mark)
        return _now(await self._engine.submit(job))

    def post_outcome_delivered(
        self,
        caller: Caller,
        handoff_id: str,
        show: Callable[[Handoff], None],
        refuse: Callable[[NodropError], None],
    ) -> None:
        """Have the same recorded with the next commit, and the handoff shown then."""
        job = _Marking(caller, handoff_id, None, self._mark)
        job.show, job.refuse = show, refuse
        self._engine.post(job)

    def _mark(self, batch: Batch, handoff: Handoff, _: HandoffCommand) -> Handoff:
        command = commands.MarkOutcomeDelivered()
        around = self._engine.surroundings()
        return batch.apply(handoff.team, handoff.id, command, by=RELAY, around=around)

    # --- dead letters ---

    async def decide_dead_letter(
        self,
        caller: Caller,
        request: requests.Redrive | requests.AcceptLate,
        dead: Handoff,
    ) -> Done | DoneBefore:
        """Carry on a dead letter: try again, or take the result that came too late."""
        successor_id = self._ids.new()

        def decide(batch: Batch, handoff: Handoff, _: HandoffCommand) -> Handoff:
            late: bytes | None = None
            now, legs = batch.now, batch.legs_before(handoff)
            deadline, chain_deadline = chains.fresh_deadlines(handoff, legs, now=now)
            command: commands.Command
            if isinstance(request, requests.Redrive):
                self._intake.agent(request.to, "to")
                deadline = self._intake.due(request.deadline, "deadline", deadline - now, now=now)
                body = self._intake.reason(request.reason)
                command = commands.Redrive(successor=successor_id, body=body)
            else:
                command = commands.AcceptLate(successor=successor_id)
            self._apply(batch, handoff.id, command, caller, command_id=request.command_id)
            if isinstance(request, requests.AcceptLate):
                assert handoff.late_result is not None, "the machine has checked it"
                key = (handoff.team, handoff.id, handoff.late_result)
                late = self._bodies.cached(key) or b'{"result":null}'
            return self._succeed(
                batch,
                handoff,
                successor_id,
                request,
                caller,
                deadline_at=deadline,
                chain_deadline_at=chain_deadline,
                late_result=late,
            )

        keys = ((dead.team, dead.sender, dead.key),) if dead.key else ()
        legs = [(dead.team, leg.id) for leg in dead.legs_done]
        return await self._about(caller, dead.id, request, decide, keys=keys, others=legs)

    def _succeed(
        self,
        batch: Batch,
        dead: Handoff,
        successor_id: str,
        request: requests.Redrive | requests.AcceptLate,
        caller: Caller,
        *,
        deadline_at: int,
        chain_deadline_at: int | None,
        late_result: bytes | None,
    ) -> Handoff:
        to, capability = dead.recipient, dead.capability
        if isinstance(request, requests.Redrive) and (
            request.to or request.capability or _had_no_match(dead)
        ):
            wanted = request.to
            if wanted is None and request.capability is None and to != dead.sender:
                wanted = to
            capability = request.capability or dead.capability
            target = self._register.target_taking(
                caller.team, wanted, capability, self._payload(dead), sender=dead.sender
            )
            candidate, capability, routed = target.candidate, target.capability, target.routed
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
        content = self._bodies.cached((dead.team, dead.id, 1)) or b"{}"
        offer = chains.successor(
            dead,
            content,
            to=candidate,
            capability=capability,
            routed=routed,
            deadline_at=deadline_at,
            chain_deadline_at=chain_deadline_at,
            late_result=late_result,
            not_before=not_before,
        )
        around = self.offers.around(caller.team)
        made = self._apply(batch, successor_id, offer, caller, around=around)
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

    async def taken_before(
        self, caller: Caller, command_id: str, request: bytes
    ) -> DoneBefore | None:
        """Return what a `take` of this id took, if it was carried out before."""

        def run(batch: Batch) -> DoneBefore | None:
            places = done_before(batch, caller, command_id, leaves=_DELIVERED, request=request)
            return DoneBefore(places=tuple(places)) if places else None

        return await self._engine.submit(
            FunctionJob(
                Wanted(commands=_commands(caller, command_id)),
                run,
                by=(caller.team, caller.agent),
            )
        )

    # --- shared ---

    async def _about(
        self,
        caller: Caller,
        handoff_id: str,
        request: requests.Command | None,
        decide: Decide,
        *,
        entries: Collection[tuple[str, int]] = (),
        keys: Collection[tuple[str, str, str]] = (),
        others: Collection[Key] = (),
    ) -> Done | DoneBefore:
        besides = Wanted(handoffs=others, keys=keys, entries=entries)
        return await self._engine.submit(
            HandoffCommand(caller, handoff_id, request, decide, besides)
        )

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
            by=caller,
            around=around or self._engine.surroundings(),
            command_id=command_id,
        )

    def _around(
        self, batch: Batch, handoff: Handoff, command: commands.Command, caller: Caller
    ) -> Surroundings:
        """Return what the decision on a command depends on."""
        kind, engine = command.__class__, self._engine
        known: dict[str, Any] = {}
        if kind is commands.Acknowledge or kind is commands.Update:
            line = self._queues.line(handoff.team, handoff.recipient)
            waits = handoff.state is _OFFERED or handoff.queued is not None
            if line is not None and not waits:  # as most are
                position = line.position(handoff)
                return Surroundings(
                    up_since=engine.up_since, limits=engine.limits, position=position
                )
            if line is not None:
                known["position"] = line.position(handoff)
                known["place"] = line.place(handoff)
                known["queued_acks"] = line.queued
        elif kind is commands.Fail or kind is commands.Release:
            wait = engine.retries.wait_ms(handoff.team, handoff.origin, now=batch.now)
            known["retry_wait_ms"] = wait
        elif handoff.routed and (kind is commands.Reject or kind is commands.Decline):
            team, capability = handoff.team, handoff.capability
            others = self._register.candidates(
                team, capability, sender=handoff.sender, asked=handoff.asked
            )
            able = self._register.who_take(team, others, capability, self._payload(handoff))
            known["candidates"] = self._room.fullest_last(team, able)
        if handoff.state is _OFFERED and _takes_directly(command, handoff, caller):
            known["binding"] = self._binder.cached(batch, handoff)
        return engine.surroundings(**known)

    def _payload(self, handoff: Handoff) -> Any:
        content = decode_content(self._bodies.cached((handoff.team, handoff.id, 1)))
        return canonical.loads(bytes(content.payload))

    def _followed(
        self, batch: Batch, before: Handoff, after: Handoff, outcome: bytes | None
    ) -> Handoff:
        """Open what follows from an outcome that a command has just brought about."""
        if after.outcome is None or before.outcome is not None:
            return after
        return self._consequences.follow(batch, after, outcome)


def _takes_directly(command: commands.Command, handoff: Handoff, caller: Caller) -> bool:
    """Whether a command takes what is merely offered, and acts on it."""
    return (
        isinstance(command, commands.Acknowledge | commands.Counter)
        and command.attempt is None
        and handoff.state is State.OFFERED
        and caller.agent == handoff.recipient
    )


def _is_held_alike(before: Handoff | None, now: Handoff) -> bool:
    """Whether a handoff is held to what it was held to before."""
    return (
        before is not None
        and before.recipient == now.recipient
        and before.manifest_version == now.manifest_version
        and before.capability == now.capability
    )


def _now(done: Done | DoneBefore) -> Handoff:
    assert isinstance(done, Done), "no command id, no earlier answer"
    return done.handoff


def _had_no_match(dead: Handoff) -> bool:
    """Whether no agent offered its capability. A leg that found none has its sender as recipient."""
    return dead.outcome is not None and dead.outcome.code == NoMatchError.code


def _commands(caller: Caller, command_id: str | None) -> Collection[tuple[str, str, str]]:
    """Return what the command must be looked up by: it may have been carried out before."""
    return () if command_id is None else ((caller.team, caller.agent, command_id),)
