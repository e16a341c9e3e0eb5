"""Groups: several handoffs offered together, all or none, and one settlement for them.

A group is a handoff too, which the relay itself holds: its clocks, its outcome, its wait and its
settlement are those of any other. `consequences` tells it how its members fare, and closes it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from nodrop.log.port import KeyUse, Wanted
from nodrop.model import commands
from nodrop.model.commands import RELAY, Candidate
from nodrop.model.errors import (
    CallerError,
    IdempotencyConflictError,
    InvalidRequestError,
    NotFoundError,
    Problem,
)
from nodrop.model.handoff import Handoff, Join, Member, MemberOf, State, Terms, When
from nodrop.model.limits import SECOND
from nodrop.protocol import canonical, chain_views, requests, traces
from nodrop.relay.batch import Batch
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.following import Following
from nodrop.relay.handoffs.offers import OFFERED
from nodrop.relay.handoffs.reading import Reading
from nodrop.relay.handoffs.repeats import done_before, request_digest
from nodrop.relay.handoffs.writing import Writing
from nodrop.relay.identity.signing import Signing
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.room import Room
from nodrop.relay.shows import Caller, Shows

_GRACE_MS: Final = 5 * SECOND
"""How long after its last member a group would expire: by then all of them have ended."""
_NOT_OF_MEMBERS: Final = (
    *("command_id", "idempotency_key", "parent_id", "correlation_id", "group", "from_"),
    "signature",
)
"""What is the group's to say, or nobody's."""


class Groups:
    """Offers groups, and shows them."""

    def __init__(
        self,
        engine: Engine,
        *,
        writing: Writing,
        reading: Reading,
        following: Following,
        shows: Shows,
        intake: Intake,
        room: Room,
        signing: Signing,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._engine = engine
        self._writing = writing
        self._reading = reading
        self._following = following
        self._shows = shows
        self._intake = intake
        self._room = room
        self._signing = signing
        self._clock = clock
        self._ids = ids

    # --- offering ---

    async def offer(self, caller: Caller, request: requests.OfferGroup) -> tuple[str, bool]:
        """Offer every member, or none; return the group's id, and whether it was there before."""
        needed = self._needed(request)
        self._intake.name(request.idempotency_key, "idempotency_key")
        self._intake.traceparent(request.traceparent)
        group_id = self._ids.new()
        with ExitStack() as reserved:
            return await self._offer(caller, request, group_id, needed, reserved)

    async def _offer(
        self,
        caller: Caller,
        request: requests.OfferGroup,
        group_id: str,
        needed: int,
        reserved: ExitStack,
    ) -> tuple[str, bool]:
        offers = await self._members(caller, request, group_id, reserved)
        head = self._head(caller, request, group_id, offers, needed)
        content = _digest(request)
        said = None if request.command_id is None else request_digest(request)
        key = request.idempotency_key

        def run(batch: Batch) -> tuple[str, bool]:
            if places := done_before(
                batch, caller, request.command_id, leaves=OFFERED, request=said
            ):
                return places[0].handoff_id or "", True
            use = None if key is None else batch.key_use(caller.team, caller.agent, key)
            if use is not None:
                if use.digest == content:
                    return use.handoff_id, True
                raise IdempotencyConflictError(
                    f"{caller.agent}/{key} is handoff {use.handoff_id}, made by another request"
                )
            self._carry_out(
                batch, caller, request, group_id, {group_id: head} | dict(offers.values())
            )
            return group_id, False

        wanted = Wanted(
            commands=frozenset({(caller.team, caller.agent, request.command_id)})
            if request.command_id
            else frozenset[Any](),
            keys=frozenset({(caller.team, caller.agent, key)}) if key else frozenset[Any](),
        )
        found, before = await self._engine.submit(
            FunctionJob(wanted, run, by=(caller.team, caller.agent))
        )
        if not before:
            return found, False
        handoff = await self._reading.find(caller, found)
        return (handoff.member_of.group if handoff.member_of else handoff.id), True

    def _carry_out(
        self,
        batch: Batch,
        caller: Caller,
        request: requests.OfferGroup,
        group_id: str,
        offers: Mapping[str, commands.Offer],
    ) -> None:
        """Make the group and its members, by their ids."""
        around = self._writing.offers.around(caller.team)
        for handoff_id, offer in offers.items():
            is_group = handoff_id == group_id
            batch.apply(
                caller.team,
                handoff_id,
                offer,
                by=RELAY if is_group else caller,
                around=around,
                command_id=None if is_group else request.command_id,
                reserved=not is_group,
            )
            self._engine.retries.earn(caller.team, caller.agent)
        # From now on the relay owes the join.
        accepted = commands.Acknowledge(attempt=None)
        batch.apply(caller.team, group_id, accepted, by=RELAY, around=around)
        if request.idempotency_key is not None:
            batch.use_key(
                KeyUse(
                    team=caller.team,
                    sender=caller.agent,
                    key=request.idempotency_key,
                    handoff_id=group_id,
                    digest=_digest(request),
                )
            )

    async def _members(
        self, caller: Caller, request: requests.OfferGroup, group_id: str, reserved: ExitStack
    ) -> dict[str, tuple[str, commands.Offer]]:
        """Return each member's id and offer, by its label.

        Each is counted before the next one is read, so that members are spread over candidates.
        """
        offers: dict[str, tuple[str, commands.Offer]] = {}
        context = traces.own(
            caller.team,
            group_id,
            correlation_id=request.correlation_id or group_id,
            above=request.traceparent,
        )
        for label, spec in request.offers.items():
            path = f"offers.{label}"
            self._intake.name(label, path)
            member_id = self._ids.new()
            for name in _NOT_OF_MEMBERS:
                if getattr(spec, name) is not None:
                    problem = Problem(path=f"{path}.{name.rstrip('_')}", message="say it once")
                    raise InvalidRequestError("it is the group's to say", errors=(problem,))
            if spec.deadline is None and request.deadline is not None:
                spec = replace(spec, deadline=request.deadline)  # noqa: PLW2901  # the group's, where a member has none
            try:
                self._signing.check(caller, "offer", spec, None)
                offer = await self._writing.offers.read(
                    caller.team, caller.agent, spec, member_id, parent=None, proved=None
                )
                _require_steps_that_come(offer.terms)
            except CallerError as error:
                error.errors = tuple(
                    Problem(path=f"{path}.{p.path}", message=p.message) for p in error.errors
                ) or (Problem(path=path, message=error.detail),)
                raise
            to = offer.to.agent
            if full := self._room.why_full(caller.team, caller.agent, to):
                raise full
            reserved.enter_context(self._room.reserved(caller.team, caller.agent, to))
            offers[label] = (
                member_id,
                replace(
                    offer,
                    correlation_id=request.correlation_id or group_id,
                    parent_id=group_id,
                    traceparent=offer.traceparent or context,
                    member_of=MemberOf(group=group_id, label=label),
                ),
            )
        return offers

    def _head(
        self,
        caller: Caller,
        request: requests.OfferGroup,
        group_id: str,
        offers: Mapping[str, tuple[str, commands.Offer]],
        needed: int,
    ) -> commands.Offer:
        """Return the offer of the group itself, from its requester to the relay."""
        now = self._clock.now()
        self._intake.text(request.title, "title")
        ends_at = max(offer.terms.deadline_at for _, offer in offers.values()) + _GRACE_MS
        itself = requests.Offer(
            to=RELAY.agent,
            title=request.title,
            payload={"members": {label: offer.to.agent for label, (_, offer) in offers.items()}},
            then=request.then,
            correlation_id=request.correlation_id,
            # A group has no steps of its own: it opts out where every member does.
            escalation=()
            if all(offer.terms.escalation == () for _, offer in offers.values())
            else None,
        )
        terms = replace(
            self._intake.terms(itself, now=now),
            deadline_at=ends_at,
            accept_within_ms=ends_at - now,
            update_every_ms=ends_at - now,
        )
        legs = self._intake.legs(itself)
        return commands.Offer(
            sender=caller.agent,
            origin=caller.agent,
            to=Candidate(agent=RELAY.agent),
            terms=terms,
            correlation_id=request.correlation_id or group_id,
            legs=legs,
            key=request.idempotency_key,
            traceparent=request.traceparent,
            join=Join(
                needed=needed,
                members=tuple(
                    Member(label=label, id=member_id, state=State.OFFERED)
                    for label, (member_id, _) in offers.items()
                ),
            ),
            body=self._intake.content(itself),
        )

    def _needed(self, request: requests.OfferGroup) -> int:
        """Return how many members must complete."""
        count, most = len(request.offers), self._engine.limits.members_max
        if not 1 <= count <= most:
            problem = Problem(path="offers", message=f"1 to {most} members")
            raise InvalidRequestError("nobody is asked, or too many are", errors=(problem,))
        if request.quorum is not None and not 1 <= request.quorum <= most:
            problem = Problem(path="quorum", message=f"1 to {count}, the number of members")
            raise InvalidRequestError("it could never be joined", errors=(problem,))
        match request.join:
            case "all":
                return count
            case "any":
                return 1
            case "quorum" if request.quorum is not None and 1 <= request.quorum <= count:
                return request.quorum
            case "quorum":
                problem = Problem(path="quorum", message=f"1 to {count}, the number of members")
            case _:
                problem = Problem(path="join", message="expected all, any or quorum")
        raise InvalidRequestError("it could never be joined", errors=(problem,))

    # --- showing ---

    async def show(
        self, caller: Caller, request: requests.GetGroup, group_id: str
    ) -> chain_views.GroupAnswer:
        """Return a group; with a wait, when it has closed."""
        found = await self._reading.resolve(caller, group_id)
        handoff, elapsed = await self._following.wait(
            caller, found, requests.GetHandoff(wait=request.wait)
        )
        if handoff.join is None:
            raise NotFoundError("no such group")
        if handoff.final and handoff.settled_at is None and caller.agent == handoff.origin:
            handoff = await self._writing.mark_outcome_delivered(caller, handoff.id)
        return chain_views.GroupAnswer(
            group=await self._view(caller, handoff), wait_elapsed=elapsed
        )

    async def _view(self, caller: Caller, group: Handoff) -> chain_views.GroupView:
        assert group.join is not None, "only groups are shown as such"
        labels = {member.id: member.label for member in group.join.members}
        members = await asyncio.gather(*(self._reading.find(caller, id_) for id_ in labels))
        views = await self._shows.seen(caller, members)
        [itself] = await self._shows.seen(caller, [group])
        return chain_views.GroupView(
            id=group.id,
            state=group.state.value,
            needed=group.join.needed,
            completed=sum(m.state is State.COMPLETED for m in members),
            members={
                labels[view.id]: chain_views.GroupMemberView(
                    id=view.id,
                    to=view.to,
                    state=view.state,
                    result=view.outcome.result if view.outcome else msgspec.UNSET,
                    code=view.outcome.code if view.outcome else None,
                    reason=view.outcome.reason if view.outcome else None,
                )
                for view in views
            },
            handoff=itself,
        )


def _require_steps_that_come(terms: Terms) -> None:
    """Refuse a step that would wait longer than a member is there to take it."""
    for index, step in enumerate(terms.escalation or ()):
        if step.after_ms and step.when in {When.OVERDUE, When.DEAD}:
            message = "a member is settled when it ends: such a step comes at once, or never"
            problem = Problem(path=f"escalation[{index}].after", message=message)
            raise InvalidRequestError(message, errors=(problem,))


def _digest(request: requests.OfferGroup) -> str:
    sent = msgspec.to_builtins(request)
    for name in ("command_id", "traceparent"):
        sent.pop(name, None)
    return canonical.sha256(canonical.dumps(sent))
