"""What follows from an outcome, in the transaction of the outcome.

Next legs and fallbacks open, what is below a handoff that ended without success is cancelled, a
group hears of its members, a step's redrive gets its successor. A caller's own outcome opens the
next leg while it is decided (`follow`), so that the answer shows it; everything else, and what
passing time brought about, is looked after once the batch is decided (`look_after`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from nodrop.log.port import Key, Transaction, Wanted
from nodrop.model import commands
from nodrop.model.clocks import ran_out
from nodrop.model.commands import RELAY, Candidate
from nodrop.model.errors import CallerError
from nodrop.model.following import closes, next_leg, reached
from nodrop.model.handoff import DEAD, ClockName, Decision, Handoff, Member, State, Timer
from nodrop.model.limits import Limits
from nodrop.protocol import bodies as wire_bodies
from nodrop.protocol import canonical
from nodrop.protocol.bodies import Content, decode_content
from nodrop.relay.batch import Batch
from nodrop.relay.bodies import Bodies
from nodrop.relay.directory.register import Register, Target
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs import chains
from nodrop.relay.identity.statements import state
from nodrop.relay.ports import Ids
from nodrop.relay.room import Room

_ROUNDS_MAX: Final = 256
"""How often consequences may have consequences in one batch: more than any chain is long."""
_COMPLETED: Final = State.COMPLETED
_REDRIVEN: Final = Decision.REDRIVEN


class Consequences:
    """Does what an outcome calls for, as the relay."""

    def __init__(
        self, engine: Engine, *, register: Register, bodies: Bodies, room: Room, ids: Ids
    ) -> None:
        self._engine = engine
        self._register = register
        self._bodies = bodies
        self._room = room
        self._ids = ids
        self.promised: dict[str, tuple[int, Target]] = {}
        """Steps that redrive a dead letter in this batch, by the successor's id."""

    # --- while a command is decided ---

    def follow(self, batch: Batch, ended: Handoff, outcome: bytes | None) -> Handoff:
        """Open what follows from an outcome, if anything does, and settle what ended."""
        if not ended.legs or ended.next_leg is not None or next_leg(ended) is None:
            return ended
        content = decode_content(self._cached(batch, ended))
        leg = chains.next_leg(
            ended,
            content,
            {} if outcome is None else canonical.loads(outcome),
            earlier=batch.legs_before(ended),
            now=batch.now,
            register=self._register,
            room=self._room,
            limits=self._limits,
        )
        self._engine.retries.earn(ended.team, ended.origin)
        leg_id = self._ids.new()
        made = self._apply(batch, ended.team, leg_id, leg)
        if covered := covering(content, ended):
            state(batch, made, signature=None, within=covered)
        settle = commands.Settle(next_leg=leg_id, next_agent=leg.to.agent)
        return self._apply(batch, ended.team, ended.id, settle)

    # --- while clocks are looked after ---

    async def recall(self, due: Sequence[Handoff]) -> None:
        """Read together the payloads of what may be given to somebody else."""
        given_away = [
            h
            for h in due
            if (h.routed and not h.final) or any(step.reassign for step in h.terms.escalation or ())
        ]
        if given_away:
            await self._bodies.fetch([(h.team, h.id, 1) for h in given_away])

    async def tick(self, batch: Batch, handoff: Handoff) -> Handoff:
        """Look after one clock of a handoff that ran out, if one did."""
        timer = ran_out(handoff, batch.now)
        known = await self.around_step(batch, handoff, timer) if timer else {}
        around = self._engine.retrying(handoff, batch.now, **known)
        after = batch.apply(handoff.team, handoff.id, commands.Tick(), by=RELAY, around=around)
        self._engine.retries.note(handoff, after, now=batch.now)
        return after

    async def around_step(self, batch: Batch, handoff: Handoff, timer: Timer) -> dict[str, Any]:
        """Return what a clock that ran out must know: whom to give the handoff to, if to anybody."""
        waits = timer.name is ClockName.ACCEPT or handoff.queued is not None
        if waits and timer.step is None and handoff.routed:
            return {"candidates": await self._candidates(batch, handoff)}
        step = None if timer.step is None else handoff.escalation[timer.step]
        if timer.step is None or step is None or step.reassign is None:
            return {}
        elsewhere = step.reassign
        try:
            target = self._register.target_taking(
                handoff.team,
                elsewhere.to,
                elsewhere.capability or handoff.capability,
                await self._payload(batch, handoff),
                sender=handoff.sender,
                asked=handoff.asked,
            )
        except CallerError:
            return {}
        if self._room.why_full_inbox(handoff.team, target.candidate.agent):
            return {}
        successor: str | None = None
        if handoff.final:
            successor = self._ids.new()
            self.promised[successor] = (timer.step, target)
        return {
            "step_to": target.candidate,
            "step_capability": target.capability,
            "step_routed": target.routed,
            "successor": successor,
        }

    async def around_unqueued(self, batch: Batch, handoff: Handoff) -> dict[str, Any]:
        """Return who may be asked in place of a recipient that is gone."""
        return {"candidates": await self._candidates(batch, handoff)} if handoff.routed else {}

    async def _candidates(self, batch: Batch, handoff: Handoff) -> tuple[Candidate, ...]:
        """Return who has not been asked for a handoff, and takes its payload."""
        others = self._register.candidates(
            handoff.team, handoff.capability, sender=handoff.sender, asked=handoff.asked
        )
        if not others:
            return ()
        payload = await self._payload(batch, handoff)
        able = self._register.who_take(handoff.team, others, handoff.capability, payload)
        return self._room.fullest_last(handoff.team, able)

    async def _payload(self, batch: Batch, handoff: Handoff) -> Any:
        content = decode_content(await self._content(batch, handoff))
        return canonical.loads(bytes(content.payload))

    # --- once a batch is decided ---

    async def look_after(self, tx: Transaction, batch: Batch) -> None:
        """Do what follows from everything that ended in this batch."""
        try:
            await self._in_rounds(tx, batch)
        finally:
            self.promised.clear()

    async def _in_rounds(self, tx: Transaction, batch: Batch) -> None:
        for _ in range(_ROUNDS_MAX):
            fresh = [
                (before, after)
                for before, after in batch.changed()
                if matters(before, after) and _place(after) not in batch.followed
            ]
            if not fresh:
                return
            for before, after in fresh:
                batch.followed.add(_place(after))
                await self._consider(tx, batch, before, after)

    async def _consider(
        self, tx: Transaction, batch: Batch, before: Handoff | None, after: Handoff
    ) -> None:
        if _ended(before, after):
            if after.next_leg is None and next_leg(after) is not None:
                after = await self._follow_later(tx, batch, after)
            after = await self._step_at_once(batch, after)
            if after.state is not State.COMPLETED:
                await self._cancel_below(tx, batch, after)
        if after.decision is Decision.REDRIVEN and after.successor is not None:
            await self._carry_on(tx, batch, after, after.successor)
        if after.member_of is not None and after.next_leg is None:
            await self._tell_group(tx, batch, after)

    async def _follow_later(self, tx: Transaction, batch: Batch, ended: Handoff) -> Handoff:
        assert ended.outcome is not None, "it has ended"
        if ended.state is State.EXPIRED:
            await self._load_legs_before(tx, batch, ended)
        outcome = (ended.team, ended.id, ended.outcome.version)
        content = (ended.team, ended.id, 1)
        missing = [key for key in (content, outcome) if key not in batch.bodies]
        found = {**await self._bodies.fetch(missing), **batch.bodies}
        return self.follow(batch, ended, found.get(outcome))

    async def _step_at_once(self, batch: Batch, ended: Handoff) -> Handoff:
        """Carry out the steps that wait for nothing but the end.

        Before anybody is told of it: whoever waits goes on to the successor that a step makes, and a
        member of a group, which settles when it ends, has its steps too.
        """
        while (timer := ran_out(ended, batch.now)) and timer.name is ClockName.STEP:
            ended = await self.tick(batch, ended)
        return ended

    async def _load_legs_before(self, tx: Transaction, batch: Batch, ended: Handoff) -> None:
        if ended.legs_done:
            legs = frozenset((ended.team, leg.id) for leg in ended.legs_done)
            loaded = await tx.load(Wanted(handoffs=legs))
            batch.admit(list(loaded.handoffs.values()))

    async def _cancel_below(self, tx: Transaction, batch: Batch, above: Handoff) -> None:
        """Cancel what is unfinished below a handoff that ended without success."""
        line = await self._line_below(tx, batch, above)
        reason = wire_bodies.words(reason=f"{above.id}, which it was for, is {above.state}")
        for _, handoff in sorted(line.items()):
            if not handoff.final and _is_below(handoff, above, line):
                cancel = commands.Cancel(settled=True, body=reason)
                self._apply(batch, handoff.team, handoff.id, cancel)

    async def _line_below(
        self, tx: Transaction, batch: Batch, above: Handoff
    ) -> dict[str, Handoff]:
        """Return what is unfinished in a chain, and what lies between that and `above`, by id.

        What lies between may have ended: a leg that was done and opened the next one, somebody who
        handed on a part and did not wait for it.
        """

        def of_chain(handoffs: Iterable[Handoff]) -> dict[str, Handoff]:
            chain = (above.team, above.correlation_id)
            return {h.id: h for h in handoffs if (h.team, h.correlation_id) == chain}

        unfinished = batch.admit(await tx.unfinished(above.team, above.correlation_id))
        line = of_chain(
            h for h in (*unfinished, *(h for _, h in batch.changed())) if h.id != above.id
        )
        looked_for = {above.id, *line}
        while missing := {h.parent_id for h in line.values() if h.parent_id} - looked_for:
            looked_for |= missing
            keys = frozenset((above.team, parent) for parent in missing)
            loaded = await tx.load(Wanted(handoffs=keys))
            line |= of_chain(batch.admit(list(loaded.handoffs.values())))
        return line

    async def _carry_on(self, tx: Transaction, batch: Batch, dead: Handoff, successor: str) -> None:
        """Make the successor that an escalation step has promised; who redrives makes its own."""
        if successor not in self.promised:
            return
        step, target = self.promised.pop(successor)
        content = await self._content(batch, dead) or b"{}"
        await self._load_legs_before(tx, batch, dead)
        deadline, chain = chains.fresh_deadlines(dead, batch.legs_before(dead), now=batch.now)
        offer = chains.successor(
            dead,
            content,
            to=target.candidate,
            capability=target.capability,
            routed=target.routed,
            deadline_at=deadline,
            chain_deadline_at=chain,
            without_step=step,
        )
        made = self._apply(batch, dead.team, successor, offer)
        if dead.key is not None:
            name = (dead.team, dead.sender, dead.key)
            use = (await tx.load(Wanted(keys=frozenset({name})))).keys.get(name)
            if use is not None:
                batch.use_key(replace(use, handoff_id=successor))
        if covered := covering(decode_content(content), dead):
            state(batch, made, signature=None, within=covered)

    # --- groups ---

    async def _tell_group(self, tx: Transaction, batch: Batch, member: Handoff) -> None:
        belongs = member.member_of
        assert belongs is not None, "asked for members only"
        name = (member.team, belongs.group)
        group = batch.find(*name)
        if group is None:
            loaded = await tx.load(Wanted(handoffs=frozenset({name})))
            batch.admit(list(loaded.handoffs.values()))
            group = batch.find(*name)
        if member.final and member.settled_at is None:
            settle = commands.Settle(next_agent=RELAY.agent)
            member = self._apply(batch, member.team, member.id, settle)
        if group is None or group.join is None:
            return
        if group.final:
            self._apply(batch, member.team, member.id, commands.Consume())
            return
        if member.decision is not None:
            return  # its successor, which is in this batch, speaks for it
        moved = Member(label=belongs.label, id=member.id, state=member.state)
        group = self._apply(batch, group.team, group.id, commands.MoveMember(member=moved))
        if group.join is not None and closes(group.join):
            await self._close(tx, batch, group)

    async def _close(self, tx: Transaction, batch: Batch, group: Handoff) -> None:
        """End a group with what its members came to, and call the rest off."""
        assert group.join is not None, "only a group closes"
        keys = frozenset((group.team, member.id) for member in group.join.members)
        batch.admit(list((await tx.load(Wanted(handoffs=keys))).handoffs.values()))
        members = {m.label: batch.handoff(group.team, m.id) for m in group.join.members}
        results = await self._results(batch, members)
        completed = sum(h.state is State.COMPLETED for h in members.values())
        words: dict[str, Any] = {"result": results}
        if not reached(group.join):
            needed = group.join.needed
            words["reason"] = f"{completed} of {len(members)} completed, {needed} needed"
        body = canonical.dumps(words)
        if len(body) > self._limits.body_bytes_max:
            # Each member still has its own result, which is what a group is shown with.
            body = canonical.dumps({**words, "result": None, "too_large": True})
        self._apply(batch, group.team, group.id, commands.CloseGroup(body=body))
        reason = wire_bodies.words(reason="its group has closed")
        for member in members.values():
            if not member.final:
                cancel = commands.Cancel(settled=True, body=reason)
                self._apply(batch, member.team, member.id, cancel)
            elif member.state in DEAD:
                self._apply(batch, member.team, member.id, commands.Consume())

    async def _results(self, batch: Batch, members: dict[str, Handoff]) -> dict[str, Any]:
        keys = {
            label: (h.team, h.id, h.outcome.version)
            for label, h in members.items()
            if h.state is State.COMPLETED and h.outcome is not None
        }
        fetched = await self._bodies.fetch([k for k in keys.values() if k not in batch.bodies])
        found = {**fetched, **batch.bodies}
        return {label: _result(found.get(key)) for label, key in keys.items()}

    # --- shared ---

    @property
    def _limits(self) -> Limits:
        return self._engine.limits

    def _apply(
        self, batch: Batch, team: str, handoff_id: str, command: commands.Command
    ) -> Handoff:
        steps = self._register.rules.team_steps(team)
        around = self._engine.surroundings(team_steps=steps)
        return batch.apply(team, handoff_id, command, by=RELAY, around=around)

    async def _content(self, batch: Batch, handoff: Handoff) -> bytes | None:
        """Return what was offered. Read when its turn comes: all of them may not fit in memory."""
        key = (handoff.team, handoff.id, 1)
        if key in batch.bodies:
            return batch.bodies[key]
        return (await self._bodies.fetch([key]))[key]

    def _cached(self, batch: Batch, handoff: Handoff) -> bytes | None:
        key = (handoff.team, handoff.id, 1)
        return batch.bodies[key] if key in batch.bodies else self._bodies.cached(key)


def covering(content: Content, handoff: Handoff) -> str | None:
    """Return the handoff whose signed request covers what follows from `handoff`, if any."""
    return content.within or (handoff.id if content.signed else None)


def _place(handoff: Handoff) -> tuple[Key, bool]:
    return (handoff.team, handoff.id), handoff.final


def _ended(before: Handoff | None, after: Handoff) -> bool:
    return after.final and (before is None or not before.final)


def _is_below(handoff: Handoff, above: Handoff, line: Mapping[str, Handoff]) -> bool:
    """Whether `handoff` is for `above`, directly or by way of others, none of them detached."""
    at: Handoff | None = handoff
    while at is not None and not at.detached and at.id != above.next_leg:
        if at.parent_id == above.id:
            return True
        at = line.get(at.parent_id or "")
    return False


def matters(before: Handoff | None, after: Handoff) -> bool:
    """Whether anything may follow from a change."""
    if after.outcome is None and after.member_of is None:
        return False  # it goes on, and nothing waits for it
    if after.outcome is not None and (before is None or before.outcome is None):
        return after.state is not _COMPLETED or bool(after.legs) or after.member_of is not None
    if after.member_of is not None:
        return before is None and bool(after.redrive_of or after.legs_done)
    return after.decision is _REDRIVEN and (before is None or before.decision is None)


def _result(body: bytes | None) -> Any:
    return None if body is None else canonical.loads(body).get("result")
