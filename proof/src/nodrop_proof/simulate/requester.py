"""An agent that hands work off: offers, follows, answers, changes its mind, and goes away for hours."""

from contextlib import suppress
from typing import Any, Final

from msgspec.structs import replace

from nodrop.model.errors import (
    AlreadyDecidedError,
    AlreadyFinishedError,
    CallerError,
    NoMatchError,
    StaleQuestionError,
    WrongStateError,
)
from nodrop.model.limits import HOUR, MINUTE, SECOND
from nodrop.protocol import requests
from nodrop.protocol.views import HandoffView, InboxAnswer
from nodrop_proof.simulate.audit import Audit
from nodrop_proof.simulate.line import Line
from nodrop_proof.simulate.violation import Violation
from nodrop_proof.simulate.world import World

CAPABILITY: Final = "triage"
ANSWERED: Final = (StaleQuestionError, AlreadyFinishedError)
"""Somebody was quicker."""
_WHENS: Final = ("unacknowledged", "silent", "blocked", "overdue", "dead")


class Requester:
    """One requester."""

    def __init__(self, world: World, audit: Audit, name: str, workers: list[str]) -> None:
        self.name = name
        self._world = world
        self._audit = audit
        self._line = Line(world, name)
        self._chance = world.chance(name)
        self._workers = workers
        self._away_until = 0
        self._sent: list[requests.Offer] = []

    def start(self) -> None:
        """Begin the day."""
        world, chance = self._world, self._chance
        pause = round(world.plan.offers_every_seconds * SECOND)
        world.spawn(world.every(lambda: chance.about(pause), self._offer))
        world.spawn(world.every(lambda: chance.uniform(20 * SECOND, 10 * MINUTE), self._read_inbox))
        world.spawn(world.every(lambda: chance.about(3 * HOUR), self._leave))
        world.spawn(world.every(lambda: chance.about(15 * MINUTE), self._fan_out))

    async def _leave(self) -> None:
        self._away_until = self._world.now + self._chance.randint(MINUTE, 2 * HOUR)

    async def _back(self) -> None:
        await self._world.clock.sleep_until(self._away_until)

    # --- offers ---

    async def _offer(self) -> None:
        await self._back()
        chance = self._chance
        if self._sent and chance.strikes(0.1):
            offer = chance.choice(self._sent)  # the same again, as if by another process
            again = True
        else:
            offer, again = self._new_offer(), False
        try:
            view: HandoffView = (await self._line(offer, "offer")).handoff
        except NoMatchError:
            return
        self._audit.answered(view.id)
        if again:
            self._world.figures["offered again"] += 1
            return
        self._world.figures["offered"] += 1
        if offer.idempotency_key is not None:
            self._sent.append(offer)
        self._world.spawn(self._follow(view.id))

    def _new_offer(self) -> requests.Offer:
        chance = self._chance
        routed = chance.strikes(0.35)
        fields: dict[str, Any] = {}
        if chance.strikes(self._world.plan.chained):
            legs = chance.randint(1, 3)
            fields["then"] = tuple(self._leg() for _ in range(legs))
        if chance.strikes(0.4):
            steps = chance.randint(1, 4)
            fields["escalation"] = tuple(self._step() for _ in range(steps))
        elif chance.strikes(0.15):
            fields["escalation"] = ()  # none, and none of the team's either
        return requests.Offer(
            to=None if routed else chance.choice((*self._workers, "latecomer")),
            capability=CAPABILITY if routed else None,
            title=f"work {chance.randint(1, 99)}",
            payload={"n": chance.randint(1, 1_000)},
            priority=chance.choice(("low", "medium", "high", "urgent")),
            accept_within=chance.choice((None, 60, 300, 1_800)),
            update_every=chance.choice((None, 60, 900)),
            deadline=chance.choice((None, 300, 1_800, 7_200, 14_400)),
            attempts_max=chance.choice((None, 1, 2, 5)),
            backoff=chance.choice((None, requests.BackoffSpec(first=30, factor=3, max=600))),
            watchers=tuple(chance.sample(self._workers, k=chance.randint(0, 1))),
            idempotency_key=self._world.new_id() if chance.strikes(0.6) else None,
            **fields,
        )

    def _step(self) -> requests.EscalationSpec:
        """Return a step of the ladder: tell somebody, give it away, or put it first."""
        chance = self._chance
        step = requests.EscalationSpec(
            when=chance.choice(_WHENS), after=chance.choice((0, 60, 600, 3_600))
        )
        match chance.randint(1, 10):
            case 1 | 2:
                return replace(
                    step, reassign=requests.ElsewhereSpec(to=chance.choice(self._workers))
                )
            case 3:
                return replace(step, reassign=requests.ElsewhereSpec(capability=CAPABILITY))
            case 4:
                return replace(step, raise_priority=chance.choice(("high", "urgent")))
            case _:
                return replace(step, notify=chance.choice(("me", self.name, *self._workers)))

    def _leg(self) -> requests.LegSpec:
        chance = self._chance
        on = "failed" if chance.strikes(0.25) else "completed"
        mapped = {"was": "${payload}", "n": "${origin.n}"} if chance.strikes(0.2) else None
        if chance.strikes(0.1):
            return requests.LegSpec(capability="nobody_can", on=on)
        if chance.strikes(0.3):
            return requests.LegSpec(capability=CAPABILITY, attempts_max=2, on=on, payload=mapped)
        return requests.LegSpec(
            to=chance.choice(self._workers),
            deadline=chance.choice((None, 900)),
            on=on,
            payload=mapped,
            detached=chance.strikes(0.1),
        )

    # --- groups ---

    async def _fan_out(self) -> None:
        """Hand several off together, and wait until they are joined."""
        await self._back()
        chance = self._chance
        count = chance.randint(1, 4)
        offers = {f"m{n}": _as_member(self._new_offer()) for n in range(count)}
        join = chance.choice(("all", "any", "quorum"))
        group = requests.OfferGroup(
            offers=offers,
            join=join,
            quorum=chance.randint(1, count) if join == "quorum" else None,
        )
        try:
            answer = await self._line(group, "offer_group")
        except NoMatchError:
            return
        self._world.figures["groups offered"] += 1
        self._audit.answered(answer.group.id)
        for member in answer.group.members.values():
            self._audit.answered(member.id)
        self._world.spawn(self._follow(answer.group.id))

    # --- outcomes ---

    async def _follow(self, handoff_id: str) -> None:
        """Wait for the outcome, and have it."""
        chance, until = self._chance, "finished"
        if chance.strikes(0.1):
            self._world.spawn(self._change_mind(handoff_id))
        while True:
            await self._back()
            wait = requests.GetHandoff(wait=60, until=until, of=chance.choice(("handoff", "chain")))
            answer = await self._line(wait, "get_handoff", handoff_id)
            view: HandoffView = answer.handoff
            if view.outcome is not None:
                break
            if not answer.wait_elapsed:
                raise Violation(f"{view.id} is {view.state}, and waiting for its end was over")
            await self._world.clock.sleep(chance.uniform(0, 5 * MINUTE))
        if chance.strikes(0.1):
            return  # forgets to say that it has it
        await self._world.clock.sleep(chance.uniform(0, MINUTE))
        settled: HandoffView = (await self._line(requests.Settle(), "settle", view.id)).handoff
        if settled.settled_at is None or settled.holder is not None:
            raise Violation(f"{view.id} was settled, and {settled.holder} owes something")
        if view.state in {"failed", "rejected", "expired"} and chance.strikes(0.4):
            await self._decide(view)

    async def _change_mind(self, handoff_id: str) -> None:
        chance = self._chance
        await self._world.clock.sleep(chance.about(10 * MINUTE))
        try:
            if chance.strikes(0.5):
                await self._line(requests.Cancel(reason="not any more"), "cancel", handoff_id)
            else:
                to = chance.choice(self._workers)
                await self._line(requests.Reassign(to=to), "reassign", handoff_id)
        except (AlreadyFinishedError, NoMatchError, WrongStateError):
            return  # the last: nobody else can be given a group

    async def _decide(self, dead: HandoffView) -> None:
        chance = self._chance
        await self._world.clock.sleep(chance.uniform(0, 30 * MINUTE))
        try:
            now: HandoffView = (
                await self._line(requests.GetHandoff(), "get_handoff", dead.id)
            ).handoff
            if now.late_result and now.decision is None:
                view = (await self._line(requests.AcceptLate(), "accept", dead.id)).handoff
                self._audit.answered(view.successor)
            elif (
                chance.strikes(0.7) and dead.to != "relay"
            ):  # a group is not tried again as a whole
                redrive = requests.Redrive(to=chance.choice((None, *self._workers)))
                view = (await self._line(redrive, "redrive", dead.id)).handoff
                self._audit.answered(view.successor)
                self._world.spawn(self._follow(view.successor))
            else:
                await self._line(requests.Discard(), "discard", dead.id)
        except (AlreadyDecidedError, NoMatchError):
            return

    # --- questions ---

    async def _read_inbox(self) -> None:
        await self._back()
        after = 0
        late = self._chance.strikes(0.1)  # answers what nobody waits for any more, too
        while True:
            read = requests.GetInbox(after=after, all=late, limit=500)
            page: InboxAnswer = await self._line(read, "inbox")
            if page.after == after:
                return
            after = page.after
            for item in page.items:
                if item.kind not in {"question", "counter"} or self._chance.strikes(0.3):
                    continue
                with suppress(*(CallerError,) if late else ANSWERED):
                    await self._answer(item.handoff_id or "", item.kind, item.seq)

    async def _answer(self, handoff_id: str, kind: str, seq: int) -> None:
        if kind == "question":
            await self._line(requests.Answer(seq=seq, answer="yes"), "answer", handoff_id)
        elif self._chance.strikes(0.6):
            await self._line(requests.Agree(seq=seq), "agree", handoff_id)
        else:
            await self._line(requests.Decline(seq=seq), "decline", handoff_id)


def _as_member(offer: requests.Offer) -> requests.Offer:
    """Return an offer as one of a group: without a key, and no step waits beyond its end."""
    steps = offer.escalation and tuple(
        replace(step, after=0) if step.when in {"overdue", "dead"} else step
        for step in offer.escalation
    )
    return replace(offer, idempotency_key=None, command_id=None, escalation=steps)
