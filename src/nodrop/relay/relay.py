"""Everything a door may ask for: one call per operation of `protocol.operations`.

Doors authenticate, translate and call; the client in the same process does the same. Every answer
is a view, every refusal a `NodropError`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec

from nodrop.log.port import Fleet, Store, Team
from nodrop.model.contract import Manifest
from nodrop.model.errors import (
    ForbiddenError,
    NodropError,
    NotFoundError,
    RelayFaultError,
    UnauthenticatedError,
    forget_frames,
)
from nodrop.model.limits import DEFAULT, Limits
from nodrop.model.names import ANONYMOUS
from nodrop.protocol import requests, views
from nodrop.protocol.operations import OPERATIONS
from nodrop.protocol.requests import Request
from nodrop.protocol.showing import forget_shown
from nodrop.relay.alarms import Alarms
from nodrop.relay.asking import Asking, Awaited, Handler, Replies, Reply, found, showing
from nodrop.relay.bodies import Bodies
from nodrop.relay.cluster.duties import Duties
from nodrop.relay.cluster.nodes import Nodes
from nodrop.relay.cluster.sharing import Sharing
from nodrop.relay.coordination.coordination import Coordination
from nodrop.relay.coordination.webhooks import Webhooks
from nodrop.relay.delivery.binding import Binder
from nodrop.relay.delivery.deliveries import Deliveries
from nodrop.relay.delivery.holding import Holding
from nodrop.relay.delivery.listeners import Listeners
from nodrop.relay.delivery.pushing import Flushes, Listening, Subscription, Turn, at_once
from nodrop.relay.delivery.queues import Queues
from nodrop.relay.delivery.taking import Taking, process_id
from nodrop.relay.delivery.waiting import Waiting
from nodrop.relay.directory.agents import Agents
from nodrop.relay.directory.contracts import Contracts
from nodrop.relay.directory.discovery import Discovery
from nodrop.relay.directory.observations import OUTCOMES
from nodrop.relay.directory.reach import KIND as REACH
from nodrop.relay.directory.reach import Reaches
from nodrop.relay.directory.register import Offering, Register
from nodrop.relay.directory.standings import Standings
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.consequences import Consequences
from nodrop.relay.handoffs.erasing import Erasing
from nodrop.relay.handoffs.following import Following
from nodrop.relay.handoffs.handoffs import Handoffs
from nodrop.relay.handoffs.reading import Reading, is_id
from nodrop.relay.handoffs.tracing import Tracing
from nodrop.relay.handoffs.writing import Writing
from nodrop.relay.identity.access import Admission
from nodrop.relay.identity.identity import Identity
from nodrop.relay.identity.membership import Membership
from nodrop.relay.identity.people import People
from nodrop.relay.identity.refusals import Refusal, Refusals
from nodrop.relay.identity.roles import require_role
from nodrop.relay.identity.rules import Rules
from nodrop.relay.identity.signing_in import SigningIn
from nodrop.relay.identity.statements import Statements
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import Committed
from nodrop.relay.loop import Loop
from nodrop.relay.ports import Clock, Ids, Signer
from nodrop.relay.room import Incoming, Outgoing, Room, Shares, Turns, Waits
from nodrop.relay.shows import Caller, Shows, shown_refusal
from nodrop.relay.tasks import Tasks
from nodrop.relay.timers import Timers
from nodrop.relay.upkeep import activity
from nodrop.relay.upkeep.backups import Backups
from nodrop.relay.upkeep.checkpoints import checkpoint
from nodrop.relay.upkeep.figures import Figure, Figures
from nodrop.relay.upkeep.log_search import LogSearch
from nodrop.relay.upkeep.pruning import Pruning

__all__ = ["Asking", "Caller", "Flushes", "Listening", "Relay", "Reply", "Subscription"]

log = logging.getLogger("nodrop.relay")

_AT_ONCE: Final = frozenset(
    {
        *("offer", "ack", "update", "complete", "fail", "settle", "checkpoint", "note"),
        "get_handoff",
    }
)
"""Operations that a connection asks for most: begun without a task. A refusal of one rests on state that the
commit compares with the log, or is looked into again (`_refuse`)."""


class Relay:
    """A running relay on one store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        signer: Signer,
        limits: Limits,
        tell: Callable[[Refusal], None] = lambda _: None,
        alone: bool = True,
    ) -> None:
        """Serve `store`; `alone`: no other relay does. See `start`."""
        self.limits = limits
        self.refusals = Refusals(limits, now=clock.now, tell=tell)
        self._store, self._tasks, self._ids, self._signer = store, Tasks(), ids, signer
        self.clock = self._clock = clock
        self._backups = Backups(store, clock=clock, ids=ids, signer=signer)
        identity = self._identity = Identity(store, clock=clock, limits=limits)
        self._bodies = Bodies(store)
        self._room = Room(limits)
        self._queues = Queues(store, self._room.workloads, queued_max=limits.queued_acks_max)
        self._figures = Figures(store, self._room)
        self._polls, self.flushes = Waits(limits.polls_per_agent_max), Flushes()
        self.outgoing, self.incoming, self.shares = (
            Outgoing(limits),
            Incoming(limits),
            Shares(limits, used=clock.processor_seconds),
        )
        self._reads = Turns(max(limits.reads_per_agent_max // 2, 1))
        intake = self._intake = Intake(limits)
        self._engine = Engine(store, clock=clock, limits=limits)
        self._standings = Standings(
            self._engine,
            store,
            room=self._room,
            offering=self._offering,
            clock=clock,
            limits=limits,
        )
        self._admission = Admission(
            identity.access,
            seen=self._standings.attendance.seen,
            shares=self.shares,
            intake=intake,
            limits=limits,
            clock=clock,
        )
        rules = Rules(identity.policies.by_team)
        self._register = Register(limits, rules, order=self._standings.order)
        self._shows = Shows(store, self._bodies, self._engine.leases, self._queues, limits)
        self._erasing = Erasing(self._engine, store, self._bodies, self._shows)
        discovery = Discovery(
            self._register, self._standings, intake=intake, clock=clock, limits=limits
        )
        contracts = Contracts(
            self._register, self._standings, discovery, intake=intake, limits=limits
        )
        alarms = self._alarms = Alarms(clock)
        self._following = Following(
            store,
            clock=clock,
            alarms=alarms,
            intake=intake,
            spawn=self._tasks.spawn,
            waits_max=limits.waits_per_agent_max,
            alone=alone,
        )
        self._reading = Reading(store, clock=clock, alarms=alarms, intake=intake)
        self._listeners = Listeners(self._shows, self._reading.inboxes, spawn=self._tasks.spawn)
        self._holding = Holding(self._engine, clock=clock)
        consequences = Consequences(
            self._engine, register=self._register, bodies=self._bodies, room=self._room, ids=ids
        )
        binder = Binder(register=self._register, bodies=self._bodies)
        self._writing = Writing(
            self._engine,
            intake=intake,
            register=self._register,
            contracts=contracts,
            bodies=self._bodies,
            queues=self._queues,
            room=self._room,
            holding=self._holding,
            clock=clock,
            ids=ids,
            signing=identity.signing,
            consequences=consequences,
            binder=binder,
            cached=store.cached,
            aside=self.shares.aside,
        )
        self._log_search = LogSearch(
            store, reading=self._reading, intake=intake, shows=self._shows, clock=clock
        )
        self._coordination = Coordination(
            self._engine,
            store,
            writing=self._writing,
            reading=self._reading,
            following=self._following,
            shows=self._shows,
            intake=intake,
            room=self._room,
            signing=identity.signing,
            clock=clock,
            ids=ids,
            tell=self._listeners.said,
            count=self._figures.finding,
        )
        self.outlets, self.endings, self.findings = self._coordination.followed()
        self._waiting = Waiting(
            store,
            self._engine.takers,
            self._queues,
            clock=clock,
            alarms=alarms,
            limits=limits,
            spawn=self._tasks.spawn,
        )
        self._taking = Taking(
            self._engine,
            writing=self._writing,
            reading=self._reading,
            holding=self._holding,
            shows=self._shows,
            queues=self._queues,
            intake=intake,
            clock=clock,
            alarms=alarms,
            spawn=self._tasks.spawn,
            seen=self._standings.attendance.seen,
            joined=self._waiting.join,
        )
        replies = self._replies = Replies(self._tasks, self._refuse)
        self._handoffs = Handoffs(
            reading=self._reading,
            writing=self._writing,
            following=self._following,
            erasing=self._erasing,
            tracing=Tracing(store),
            queues=self._queues,
            shows=self._shows,
            discovery=discovery,
            replies=replies,
            clock=clock,
            limits=limits,
        )
        self._people = People(
            self._engine,
            register=self._register,
            access=self._identity.access,
            intake=intake,
            ids=ids,
        )
        self.reaches = Reaches(self._engine, store, people=self._people, intake=intake)
        self._agents = Agents(
            register=self._register,
            discovery=discovery,
            contracts=contracts,
            intake=intake,
            people=self._people,
            reaches=self.reaches,
            membership=Membership(
                self._engine,
                store,
                identity,
                people=self._people,
                intake=intake,
                ids=ids,
                signer=signer,
            ),
            signing_in=SigningIn(self._engine, identity, intake=intake, ids=ids),
            clock=clock,
        )
        self.webhooks = Webhooks(self._engine, store, ids=ids)
        self._pruning = Pruning(store, clock=clock, signer=signer)
        self._nodes: Nodes | None = None
        self.duties = Duties()
        """What one relay does for all on the store; alone, everything."""
        self._handlers: dict[str, Handler] = {
            **self._handoffs.handlers(),
            **self._coordination.handlers(),
            **self._agents.handlers(),
            **self._own_handlers(),
        }
        """What carries out each operation of `protocol.operations`."""
        self._loop = Loop(
            self._engine,
            store,
            timers=Timers(
                self._engine,
                consequences,
                clock=clock,
                heard_at=self._standings.attendance.heard_at,
            ),
            deliveries=Deliveries(self._engine, store, binder),
            consequences=consequences,
            following=self._following,
            statements=Statements(signer),
            register=self._register,
            bodies=self._bodies,
            clock=clock,
            ids=ids,
            committed=self._committed,
            flush=self.flushes.now,
        )

    @classmethod
    async def start(
        cls,
        store: Store,
        *,
        clock: Clock,
        ids: Ids,
        signer: Signer,
        limits: Limits = DEFAULT,
        tell: Callable[[Refusal], None] = lambda _: None,
        fleet: Fleet | None = None,
    ) -> Self:
        """Return a relay that serves `store` from now on.

        `tell` hears of refusals (`relay.identity.refusals`). `fleet` are the other relays on the same
        store; None: there are none, and never will be.
        """
        relay = cls(
            store,
            clock=clock,
            ids=ids,
            signer=signer,
            limits=limits,
            tell=tell,
            alone=fleet is None,
        )
        up_since = await relay._join(fleet) if fleet is not None else None
        teams = [team.id for team in await store.teams()]
        for team in teams:
            await relay._know(team)
        await relay._identity.load()
        await relay._room.load(store)
        await relay._standings.load()
        await relay._coordination.load()
        await relay.reaches.load()
        nodes = relay._nodes
        catch_up = None if nodes is None else nodes.decide_again
        await relay._loop.start(up_since=up_since, catch_up=catch_up)
        if nodes is not None:
            nodes.start()
        await relay._erasing.resume()
        return relay

    async def _join(self, fleet: Fleet) -> int:
        """Be one of several relays on the store; return since when there has been one."""
        sharing = Sharing(
            self._store,
            self._engine,
            identity=self._identity,
            register=self._register,
            reading=self._reading,
            shows=self._shows,
            bodies=self._bodies,
            queues=self._queues,
            waiting=self._waiting,
            room=self._room,
            standings=self._standings,
            following=self._following,
            webhooks=self.webhooks,
            also={**self._coordination.kept(), REACH: self.reaches.load},
            tell=self._listeners.tell,
            bereft=lambda: self._tasks.spawn(self._erasing.resume()),
        )
        self._nodes = Nodes(fleet, self._engine, sharing, clock=self._clock)
        self.duties = Duties(fleet)
        return await self._nodes.join()

    async def stop(self) -> None:
        """Stop serving. What was answered is kept; what was not is the caller's to repeat."""
        await self._standings.write(everything=True)
        await self._loop.stop()
        if self._nodes is not None:
            await self._nodes.stop()
        self._following.close()
        for watchers in (self._reading.inboxes, self._reading.logs, self._reading.handoffs):
            watchers.wake_all()
        self._alarms.close()
        await self._tasks.cancel()
        await self._backups.stop()
        self.shares.close()

    async def shed(self) -> None:
        """Drop from memory what can be read again: it is short."""
        self._bodies.clear()
        self._shows.clear()
        self._register.shed()
        forget_shown()
        await self._store.shed()

    async def require_store(self) -> None:
        """Refuse where the store cannot be reached: this relay can serve nobody now."""
        await self._store.next_due()

    # --- teams and callers ---

    async def ensure_team(self, team: str) -> None:
        """Create a team, with the person `me` in it, unless it exists."""
        key = self._ids.secret().encode()
        kept = await self._store.create_team(
            Team(id=team, digest_key=key, created_at=self._clock.now())
        )
        await self._know(kept.id)
        if self._register.get(team, "me") is None:
            me = Manifest(agent_id="me", description="The person this relay works for")
            manifest = msgspec.json.encode(me)
            await self._people.register(operator_of(team), "me", manifest, None)

    async def ensure_token(self, team: str, *, agent: str, role: str, secret: str) -> None:
        """Make `secret` a token of `agent`, unless it is one."""
        await self._people.ensure_token(operator_of(team), agent=agent, role=role, secret=secret)

    async def _know(self, team: str) -> None:
        for agent, manifest in await self._store.agents(team):
            self._register.put(agent, manifest)

    async def authenticate(
        self, secret: str | None, *, address: str | None = None, operation: str = "authenticate"
    ) -> Caller:
        """Return who holds a token; who does not, or has none, is in the security log."""
        try:
            if secret is None:
                raise UnauthenticatedError
            access = self._identity.access
            try:
                return access.authenticate(secret, address=address)
            except UnauthenticatedError:
                if self._nodes is None:
                    raise
            await self._nodes.ask()  # another node may have made it a moment ago
            return access.authenticate(secret, address=address)
        except NodropError as error:
            self.refusals.note(error, operation=operation, address=address)
            raise

    def recognise(self, secret: str | None, *, address: str | None = None) -> Caller | None:
        """Return who holds a token that is known here; None: `authenticate` finds out, or refuses."""
        if secret is None:
            return None
        try:
            return self._identity.access.authenticate(secret, address=address)
        except UnauthenticatedError:
            return None

    def require(self, caller: Caller, operation: str) -> None:
        """Refuse a caller that has waited, if it would not be let in now."""
        self._identity.access.require(caller, operation)

    def admit_anonymous(self, team: str, *, address: str | None = None) -> Caller:
        """Return a caller without a token, at an agent that was opened to those.

        Raises:
            RateLimitedError: its address asks too often.
        """
        self._admission.rates.spend_anonymous(address or "")
        return Caller(team=team, agent=ANONYMOUS, address=address)

    # --- the one way in ---

    async def call(
        self,
        caller: Caller,
        operation: str,
        request: Request,
        *,
        reference: str | None = None,
        name: str | None = None,
    ) -> Reply:
        """Carry out an operation, or raise a `NodropError` that says why not."""
        if operation not in OPERATIONS:
            raise NotFoundError(f"no operation is called {operation!r}")
        key = (caller.team, caller.agent)
        looks = isinstance(request, requests.GetHandoff)
        if not getattr(request, "wait", 0):
            if looks or OPERATIONS[operation].changes:
                return await self._carry_out(caller, operation, request, reference, name)
            waiting_max = self.limits.reads_waiting_per_agent_max
            async with self._reads.turn(key, waiting_max=waiting_max):
                return await self._carry_out(caller, operation, request, reference, name)
        if not looks:  # who waits for a handoff is counted where it is followed
            self._polls.enter(key)

        async def waited() -> Reply:
            # In a task of its own, which no door measures. A thousand that are woken take turns.
            work = self._carry_out(caller, operation, request, reference, name)
            return await self.shares.measured(key, work, paced=not looks)

        try:
            reply = await self._identity.access.revocations.unless_revoked(caller, waited())
        finally:
            if not looks:
                self._polls.leave(key)
        self._identity.access.require(caller, operation)  # it may have expired meanwhile
        return reply

    async def _carry_out(
        self,
        caller: Caller,
        operation: str,
        request: Request,
        reference: str | None,
        name: str | None,
    ) -> Reply:
        async def reply() -> Reply:
            asking = Awaited(caller, operation, request, reference=reference, name=name)
            if OPERATIONS[operation].about_handoff and not is_id(asking.handoff_id):
                asking.handoff_id = await self._reading.resolve(caller, asking.handoff_id)
            try:
                return await found(handler(asking)) or await asking.answered
            finally:
                asking.answered.cancel()
                self.leave(asking)

        try:
            handler = self._handlers[operation]
            self._admission.admit(caller, (caller.team, caller.agent), operation, request)
            return await (reply() if self._nodes is None else self._nodes.surely(reply))
        except NodropError as error:
            self.refuse(caller, operation, error)
            forget_frames(error)
            raise
        except Exception as error:
            log.exception("%s failed", operation)
            raise RelayFaultError from error

    def ask(self, asking: Asking) -> None:
        """Carry out an operation and tell `asking`, which is told of everything that goes wrong."""
        operation = asking.operation
        if operation not in _AT_ONCE or not (operation == "offer" or is_id(asking.handoff_id)):
            asking.work = self._tasks.spawn(self._ask_later(asking))
            return
        try:
            self._admission.admit(asking.caller, asking.by, operation, asking.request)
            answer = self._handlers[operation](asking)
            if answer is not None:
                self._replies.take(asking, answer)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told
            self._replies.give_up(asking, error)

    async def _ask_later(self, asking: Asking) -> None:
        try:
            call = self.call(
                asking.caller,
                asking.operation,
                asking.request,
                reference=asking.handoff_id or None,
                name=asking.name,
            )
            # One message may ask for thousands of things to look at: they take turns from the start.
            paced = not OPERATIONS[asking.operation].changes
            key = (asking.caller.team, asking.caller.agent)
            reply = await self.shares.measured(key, call, paced=paced)
        except NodropError as error:
            asking.refuse(error)
        except Exception:
            log.exception("%s failed", asking.operation)
            asking.refuse(RelayFaultError())
        else:
            asking.tell(reply)

    def follow(self, asking: Asking, handoff_id: str) -> None:
        """Tell `asking` of the outcome of what it offered, once there is one."""
        self._handoffs.follow(asking, handoff_id)

    def leave(self, asking: Asking) -> None:
        """Give up what `asking` waits for: nobody is there to be told."""
        self._handoffs.leave(asking)

    def _refuse(self, asking: Asking, error: NodropError) -> None:
        if isinstance(asking, Awaited):
            asking.refuse(error)  # `call` raises it, and puts it into the security log
        elif self._nodes is not None and asking.operation == "offer" and not error.retryable:
            # Others may have changed whom it is for.
            asking.work = self._tasks.spawn(self._ask_later(asking))
        else:
            self.refuse(asking.caller, asking.operation, error)
            asking.refuse(error)
            forget_frames(error)

    def refuse(self, caller: Caller, operation: str, error: NodropError) -> None:
        """Put a refusal into the security log, if it is about who asks."""
        self.refusals.note(
            error,
            operation=operation,
            team=caller.team or None,
            actor=caller.agent or None,
            address=caller.address,
        )

    def _own_handlers(self) -> dict[str, Handler]:
        return {
            "take": lambda a: self._taking.take(a.caller, a.request),
            "heartbeat": self._heartbeat,
            "note_team": self._note_team,
            "log": showing(lambda a: self._log_search.read(a.caller, a.request)),
            "checkpoints": showing(self._checkpoint),
            "backup": showing(lambda a: self._backups.make(a.caller.team, a.request)),
            "refusals": self._list_refusals,
        }

    async def _heartbeat(self, asking: Asking) -> Reply:
        caller = asking.caller
        process = self._intake.process(asking.request.process, caller.agent)
        held = await self._holding.heartbeat(caller, process_id(caller, process))
        return Reply(answer=views.HeldAnswer(held=held))

    async def _note_team(self, asking: Asking) -> Reply:
        body = self._intake.note(asking.request)
        seq = await self._people.note(asking.caller, body, asking.request)
        return Reply(answer=views.NotedAnswer(seq=seq))

    async def _checkpoint(self, asking: Asking) -> views.View:
        team = asking.caller.team
        return await checkpoint(self._store, team, clock=self._clock, signer=self._signer)

    def _list_refusals(self, asking: Asking) -> Reply:
        limit = self._intake.limit(asking.request.limit)
        found = self.refusals.of(asking.caller.team, limit=limit)
        return Reply(answer=views.RefusalsAnswer(refusals=tuple(map(shown_refusal, found))))

    # --- taking work ---

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
        """Push deliveries to a connection, as many as it has credit for, when it `has_room`, or in its `turn`.

        `offered` is told, once each, what waits for the agent without credit.
        """
        self.require_role(caller, "take")
        return self._taking.subscribe(
            caller,
            process=process,
            heartbeat_seconds=heartbeat_seconds,
            deliver=deliver,
            turn=turn,
            has_room=has_room,
            offered=offered,
        )

    def require_role(self, caller: Caller, operation: str) -> None:
        """Refuse a caller whose role may not ask for `operation`; the security log notes it."""
        try:
            require_role(caller, operation)
        except NodropError as error:
            self.refuse(caller, operation, error)
            raise

    # --- inbox and log ---

    def listen(self, caller: Caller, push: Callable[[views.ItemView], None]) -> Listening:
        """Push inbox items as they are committed: outcomes, questions, counters and notices."""
        self.require_role(caller, "inbox")
        return self._listeners.add((caller.team, caller.agent), push)

    def on_revoked(self, caller: Caller, ended: Callable[[], None]) -> Callable[[], None]:
        """Call `ended` when what `caller` was let in with ends; returns how to stop that."""
        stop = self._identity.access.revocations.watch(caller, ended)
        link = self._identity.links.get(caller.team, caller.link_id or "")
        if link is None:
            return stop
        alarm = self._alarms.set(link.ends_at, ended)

        def stop_both() -> None:
            stop()
            self._alarms.cancel(alarm)

        return stop_both

    def _offering(self, team: str, capability: str, agent: str) -> Offering | None:
        return self._register.offering(team, capability, agent)

    def _committed(self, committed: Committed) -> None:
        changes, types = committed.changes, set[str]()
        standings, counts = self._standings, self._figures.entries
        reading, listeners = self._reading, self._listeners
        self._figures.commits += 1
        for draft in changes.entries:
            counts[draft.team, draft.type] += 1
            types.add(draft.type)
        # Most commits concern few of those that follow: each is called for what concerns it alone.
        if self._room.committed(committed.changed, committed.bodies) or self._waiting.told:
            self._waiting.committed(changes.rows)
        if (
            changes.agents
            or not activity.NOTABLE.isdisjoint(types)
            or log.isEnabledFor(logging.DEBUG)
        ):
            activity.tell(committed)
        if changes.agents:
            standings.learn()
            for agent, manifest in changes.agents:
                self._register.put(agent, manifest)
        if changes.tokens or changes.records or changes.records_gone or self._identity.changing:
            self._identity.committed(changes)
        if not OUTCOMES.isdisjoint(types):
            standings.committed(committed.happened, committed.at)
        if committed.at >= standings.write_at:
            self._tasks.spawn(standings.write())
        if reading.handoffs.waiting:
            for row in changes.rows:
                reading.handoffs.wake((row.handoff.team, row.handoff.id))
        if reading.logs.waiting:
            for team in {draft.team for draft in changes.entries}:
                reading.logs.wake(team)
        if listeners.listening or reading.inboxes.waiting:
            listeners.committed(committed)

    async def figures(self, caller: Caller) -> Sequence[Figure]:
        """Return what is counted of the caller's team, for who may see all of it."""
        self._identity.access.require(caller)
        if not caller.sees_team:
            error = ForbiddenError("the figures of a team are for its operators and observers")
            self.refuse(caller, "metrics", error)
            raise error
        return await self._figures.of(caller.team)

    async def prune(self, team: str, *, older_than_ms: int) -> int:
        """Cut a team's log; return how many entries went.

        Keys are promised for a while after settlement, and command ids after their command, so
        nothing younger goes.
        """
        kept_ms = max(older_than_ms, self.limits.remember_ms)
        gone = await self._pruning.prune(team, older_than_ms=kept_ms)
        if gone:
            await self.webhooks.sweep()
        return gone

    async def manifest(self, caller: Caller, agent: str) -> bytes:
        """Return an agent's manifest as it was sent."""
        return self._agents.manifest(caller.team, agent)


def stranger(team: str | None, *, address: str | None) -> Caller:
    """Return a caller without a bearer, who may redeem a link; `team`: of that team only."""
    return Caller(team=team or "", agent="", address=address)


def operator_of(team: str) -> Caller:
    """Return the relay itself, acting as an operator of a team."""
    return Caller(team=team, agent="relay", operator=True)
