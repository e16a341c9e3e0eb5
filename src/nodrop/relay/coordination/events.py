"""Events: what happened elsewhere, written down once, and the handoffs that rules make of it.

A rule fires once for an event id, whoever tells of the event and however often: the event and what
follows from it are one commit, and what fired is remembered by the rule and the event's id.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from nodrop.log.port import KeyUse, LogPage, Store, Wanted
from nodrop.model import commands
from nodrop.model.commands import RELAY, Candidate
from nodrop.model.errors import (
    CallerError,
    LimitReachedError,
    NotFoundError,
)
from nodrop.model.template import UnfilledError
from nodrop.protocol import bodies, canonical, requests
from nodrop.protocol.coordination import trigger_requests, trigger_views
from nodrop.protocol.entries import Draft, Entry
from nodrop.protocol.times import format_time
from nodrop.relay.batch import Batch
from nodrop.relay.coordination.conditions import UnmetError
from nodrop.relay.coordination.triggers import KIND, Rule, Trigger, Triggers, record, shown
from nodrop.relay.engine import Engine
from nodrop.relay.handoffs.repeats import done_before, request_digest
from nodrop.relay.handoffs.writing import Writing
from nodrop.relay.identity.people import draft
from nodrop.relay.intake import Intake
from nodrop.relay.jobs import FunctionJob, Job
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.shows import Caller

EMITTED: Final = "event.emitted.v1"
_SENDER: Final = "≡trigger"
"""Under which fired rules are remembered: no agent can be called so."""

Fired = trigger_views.FiredView

_WHICH: Final = "Check the name; `nodrop triggers list` shows the rules of the team."


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule is to make of an event."""

    rule: str
    handoff_id: str
    key: str
    offer: commands.Offer


class Events:
    """Takes events, and looks after the rules that wait for them."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        writing: Writing,
        intake: Intake,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self.triggers = Triggers(intake)
        self._engine = engine
        self._store = store
        self._writing = writing
        self._intake = intake
        self._clock = clock
        self._ids = ids

    # --- events ---

    async def emit(
        self, caller: Caller, request: trigger_requests.Emit
    ) -> trigger_views.EmittedAnswer:
        """Write an event down, and hand off what the rules say."""
        self._intake.name(request.type, "type")
        self._intake.name(request.event_id, "event_id")
        self._intake.name(request.source, "source")
        event_id = request.event_id or self._ids.new()
        # An event that is told again is the same one, whether or not its teller repeats a command.
        command_id = f"event:{event_id}" if request.event_id else request.command_id
        # Its sources may tell it in other words; a command is repeated as it was.
        asked = None if request.event_id or command_id is None else request_digest(request)
        now = self._clock.now()
        event = _event(event_id, request.type, request.source, now, request.data)
        with ExitStack() as reserved:
            plans, unmet = await self._plans(caller, event, reserved)
            body = self._intake.bounded(bodies.data("data", request.data))
            data = {"id": event_id, "type": request.type}
            data |= {"source": request.source} if request.source else {}

            def run(batch: Batch) -> Callable[[Sequence[int]], tuple[int, tuple[Fired, ...]]]:
                if places := done_before(
                    batch, caller, command_id, leaves=frozenset({EMITTED}), request=asked
                ):
                    before, known = places[0].seq, self._known(batch, caller.team, plans)
                    return lambda _: (before, known)
                if (index := batch.written(caller.team, caller.agent, command_id)) is not None:
                    known = self._known(batch, caller.team, plans)
                    return lambda seqs: (seqs[index], known)
                fired = tuple(self._fire(batch, caller.team, plan) for plan in plans)
                told = {"fired": [f.rule for f in fired if not f.before]} if fired else {}
                index = batch.write(
                    Draft(
                        team=caller.team,
                        at=batch.now,
                        type=EMITTED,
                        actor=caller.agent,
                        command_id=command_id,
                        data=msgspec.Raw(canonical.dumps({**data, **told})),
                        body=body,
                    )
                )
                return lambda seqs: (seqs[index], fired)

            wanted = Wanted(
                commands=frozenset({(caller.team, caller.agent, command_id)})
                if command_id
                else frozenset[Any](),
                keys=frozenset((caller.team, _SENDER, plan.key) for plan in plans),
            )
            job: Job[Any] = FunctionJob(wanted, run, by=(caller.team, caller.agent))
            seq, fired = await self._engine.submit(job)
            return trigger_views.EmittedAnswer(seq=seq, event_id=event_id, fired=(*fired, *unmet))

    def _fire(self, batch: Batch, team: str, plan: _Plan) -> Fired:
        use = batch.key_use(team, _SENDER, plan.key)
        if use is not None:
            return Fired(rule=plan.rule, handoff_id=use.handoff_id, before=True)
        around = self._writing.offers.around(team)
        batch.apply(team, plan.handoff_id, plan.offer, by=RELAY, around=around, reserved=True)
        self._engine.retries.earn(team, plan.offer.origin)
        batch.use_key(
            KeyUse(
                team=team,
                sender=_SENDER,
                key=plan.key,
                handoff_id=plan.handoff_id,
                digest=plan.rule,
            )
        )
        return Fired(rule=plan.rule, handoff_id=plan.handoff_id)

    def _known(self, batch: Batch, team: str, plans: Sequence[_Plan]) -> tuple[Fired, ...]:
        uses = ((plan, batch.key_use(team, _SENDER, plan.key)) for plan in plans)
        return tuple(
            Fired(rule=plan.rule, handoff_id=use.handoff_id, before=True)
            for plan, use in uses
            if use is not None
        )

    async def _plans(
        self, caller: Caller, event: dict[str, Any], reserved: ExitStack
    ) -> tuple[list[_Plan], list[Fired]]:
        plans: list[_Plan] = []
        unmet: list[Fired] = []
        for trigger in self.triggers.all(caller.team):
            if not trigger.hears_of(event["type"]):
                continue
            rule = trigger.rule
            try:
                if not trigger.met(event):
                    continue
            except UnmetError as error:
                unmet.append(Fired(rule=rule.name, unmet=str(error)))
                continue
            handoff_id = self._ids.new()
            offer = await self._offer(caller, trigger, event, handoff_id)
            reserved.enter_context(self._writing.offers.reserved(caller.team, offer))
            key = canonical.sha256(canonical.dumps([rule.name, event["id"]]))
            plans.append(_Plan(rule=rule.name, handoff_id=handoff_id, key=key, offer=offer))
        return plans, unmet

    async def _offer(
        self, caller: Caller, trigger: Trigger, event: dict[str, Any], handoff_id: str
    ) -> commands.Offer:
        """Return what is offered; what cannot be, is born rejected with its reason."""
        sender = trigger.rule.offer.from_ or caller.agent
        try:
            offer = trigger.offer(event)
            return await self._writing.offers.read(
                caller.team, sender, offer, handoff_id, parent=None, proved=None
            )
        except UnfilledError as error:
            code, why = "payload_invalid", f"${{{error.reference}}} leads nowhere"
        except CallerError as error:
            code, why = error.code, error.detail
        written = replace(trigger.rule.offer, payload=None, title=f"{trigger.rule.name}: {why}")
        return commands.Offer(
            sender=sender,
            origin=sender,
            to=Candidate(agent=written.to or sender),
            capability=written.capability,
            terms=self._intake.terms(written, now=self._clock.now()),
            correlation_id=handoff_id,
            refused=code,
            refusal=bodies.words(reason=why),
            body=self._intake.content(replace(written, then=())),
        )

    # --- rules ---

    async def put_trigger(
        self, caller: Caller, request: trigger_requests.PutTrigger, name: str
    ) -> trigger_views.TriggerAnswer:
        """Set a rule, in the place of the one of its name."""
        rule = self.triggers.read(request, name, now=self._clock.now())
        known = self.triggers.get(caller.team, name)
        if known is not None and _same(known.rule, rule):
            return trigger_views.TriggerAnswer(trigger=shown(known.rule))
        most = self._engine.limits.triggers_max
        if known is None and len(self.triggers.all(caller.team)) >= most:
            raise LimitReachedError(f"this team has {most} triggers already")
        data = {"name": name, "on": rule.on}

        def run(batch: Batch) -> None:
            kept = record(caller.team, rule)
            batch.keep_record(kept)
            batch.write(
                draft(
                    caller,
                    batch,
                    "trigger.set.v1",
                    data,
                    body=canonical.dumps(canonical.loads(kept.json)),
                    command_id=request.command_id,
                )
            )

        await self._engine.submit(FunctionJob(Wanted(), run))
        self.triggers.put(caller.team, rule)
        return trigger_views.TriggerAnswer(trigger=shown(rule))

    async def remove_trigger(
        self, caller: Caller, request: trigger_requests.RemoveTrigger, name: str
    ) -> trigger_views.TriggerAnswer:
        """Take a rule away. What it has handed off stays."""
        known = self.triggers.get(caller.team, name)
        if known is None:
            raise NotFoundError("no such trigger", next_step=_WHICH)

        def run(batch: Batch) -> None:
            batch.drop_record(caller.team, KIND, name)
            data = {"name": name}
            command_id = request.command_id
            batch.write(draft(caller, batch, "trigger.removed.v1", data, command_id=command_id))

        await self._engine.submit(FunctionJob(Wanted(), run))
        self.triggers.drop(caller.team, name)
        return trigger_views.TriggerAnswer(trigger=shown(known.rule))

    def listed(self, caller: Caller) -> trigger_views.TriggersAnswer:
        """Return the rules of a team."""
        rules = tuple(shown(trigger.rule) for trigger in self.triggers.all(caller.team))
        return trigger_views.TriggersAnswer(triggers=rules)

    async def test_trigger(
        self, caller: Caller, request: trigger_requests.TestTrigger
    ) -> trigger_views.TrialsAnswer:
        """Return what a rule would have made of past events. Nothing is handed off."""
        if request.rule is not None:
            rule = self.triggers.read(
                request.rule, request.trigger or "trial", now=self._clock.now()
            )
            trigger: Trigger | None = Trigger(rule)
        else:
            trigger = self.triggers.get(caller.team, request.trigger or "")
        if trigger is None:
            raise NotFoundError("no such trigger", next_step=_WHICH)
        page = LogPage(
            team=caller.team,
            after=request.after,
            limit=self._intake.limit(request.limit),
            type=EMITTED,
        )
        entries = await self._store.log(page)
        words = await self._store.entry_bodies(caller.team, [entry.seq for entry in entries])
        trials = [
            await self._try(
                caller, trigger, entry, words[entry.seq].body if entry.seq in words else None
            )
            for entry in entries
            if trigger.hears_of(_data(entry)["type"])
        ]
        after = entries[-1].seq if entries else request.after
        return trigger_views.TrialsAnswer(trials=tuple(trials), after=after)

    async def _try(
        self, caller: Caller, trigger: Trigger, entry: Entry, body: bytes | None
    ) -> trigger_views.TrialView:
        data = _data(entry)
        told = None if body is None else canonical.loads(body).get("data")
        event = _event(data["id"], data["type"], data.get("source"), entry.at, told)
        trial = trigger_views.TrialView(seq=entry.seq, event_id=data["id"], met=False)
        try:
            if not trigger.met(event):
                return trial
            offer = trigger.offer(event)
        except (UnmetError, UnfilledError) as error:
            return replace(trial, unmet=str(error))
        standard = msgspec.to_builtins(requests.Offer())
        sent = {k: v for k, v in msgspec.to_builtins(offer).items() if standard[k] != v}
        refused: str | None = None
        try:
            await self._writing.offers.read(
                caller.team,
                offer.from_ or entry.actor,
                offer,
                self._ids.new(),
                parent=None,
                proved=None,
            )
        except CallerError as error:
            refused = f"{error.code}: {error.detail}"
        return replace(trial, met=True, offer=sent, refused=refused)


def _event(event_id: str, kind: str, source: str | None, at: int, data: Any) -> dict[str, Any]:
    """Return an event as conditions and templates see it."""
    return {"id": event_id, "type": kind, "source": source, "at": format_time(at), "data": data}


def _same(one: Rule, other: Rule) -> bool:
    return replace(one, set_at=0) == replace(other, set_at=0)


def _data(entry: Entry) -> dict[str, Any]:
    return msgspec.json.decode(entry.data)
