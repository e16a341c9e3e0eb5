"""Plays a script to a relay: its agents act at their times, the relay does the rest by itself.

The relay is the real one on the virtual clock. Its retry budget is switched off, because a scenario
decides by itself how much is tried again.
"""

from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from nodrop.log.memory import MemoryStore
from nodrop.model.limits import DEFAULT, SECOND
from nodrop.protocol import requests
from nodrop.protocol.coordination import talk_requests
from nodrop.protocol.views import HandoffAnswer, HandoffView, LogAnswer
from nodrop.relay.relay import Caller, Relay
from nodrop.testing.clock import T0
from nodrop_proof.emergence.script import Act, Script, Step, chain_id
from nodrop_proof.simulate import loop
from nodrop_proof.simulate.chance import Chance
from nodrop_proof.simulate.clock import VirtualClock
from nodrop_proof.simulate.ids import NoSigner, SeededIds

TEAM: Final = "default"
PERSON: Final = "me"
ATTEMPTS_MAX: Final = 5
BACKOFF: Final = requests.BackoffSpec(first=1, factor=2.0, max=300)
LIMITS: Final = msgspec.structs.replace(
    DEFAULT, retries_per_second=1e6, retries_burst_max=1e6, offers_per_second_max=1e9
)
_PAGE: Final = 500
_BY_ITSELF: Final = frozenset({Act.ESCALATE, Act.EXPIRE})
"""Steps that nobody takes: the relay does when their time has come."""


def play(script: Script, seed: int) -> list[bytes]:
    """Return the log that a relay has after a script, one entry per line, as an operator reads it."""
    return loop.run(played(script, seed))


async def played(script: Script, seed: int) -> list[bytes]:
    """Same. Runs on a virtual loop."""
    player = Player(seed)
    await player.start()
    for step in script.ordered():
        await player.take(step)
    lines = [line async for line in player.log()]
    await player.stop()
    return lines


class Player:
    """A relay, and everybody who talks to it."""

    def __init__(self, seed: int) -> None:
        self._clock = VirtualClock()
        self._ids = SeededIds(self._clock, Chance(seed, "ids"))
        self._handoffs: dict[int, str] = {}
        """The relay's ids of handoffs, by the script's numbers."""
        self._attempts: dict[int, int] = {}
        self._questions: dict[int, int] = {}
        self._countered: set[int] = set()

    async def start(self) -> None:
        """Start the relay."""
        self._relay = await Relay.start(
            MemoryStore(), clock=self._clock, ids=self._ids, signer=NoSigner(), limits=LIMITS
        )
        await self._relay.ensure_team(TEAM)

    async def stop(self) -> None:
        """Stop it."""
        await self._relay.stop()

    async def take(self, step: Step) -> None:
        """Let the time of a step come, and take it."""
        at = T0 + step.at
        while (alarm := self._clock.next_alarm()) is not None and alarm <= at:
            self._clock.set(max(alarm, self._clock.now()))
            await loop.running().settled()
        self._clock.set(at)
        if step.act not in _BY_ITSELF:
            await self._do(step)

    async def log(self) -> AsyncGenerator[bytes]:
        """Yield the log."""
        operator = Caller(team=TEAM, agent=PERSON, operator=True)
        after = 0
        while True:
            page = requests.GetLog(after=after, limit=_PAGE)
            answer = (await self._relay.call(operator, "log", page)).answer
            assert isinstance(answer, LogAnswer), "the answer to `log`"
            if not answer.entries:
                return
            for entry in answer.entries:
                yield msgspec.json.encode(entry) + b"\n"
            after = answer.after

    async def _do(self, step: Step) -> None:
        match step.act:
            case Act.REGISTER:
                await self._register(step)
            case Act.OFFER:
                made = await self._ask(step.actor, "offer", _offer(step))
                self._handoffs[step.handoff] = made.id
            case Act.SAY:
                said = talk_requests.Say(
                    to=step.to, thread=f"{step.actor}-{step.to}", text=step.text or ""
                )
                await self._relay.call(Caller(team=TEAM, agent=step.actor), "say", said)
            case _:
                await self._move(step)

    async def _register(self, step: Step) -> None:
        can = [
            {"name": name} | ({} if sla is None else {"reliability_sla": sla})
            for name, sla in step.capabilities.items()
        ]
        manifest = msgspec.json.encode({"agent_id": step.actor, "capabilities": can})
        request = requests.Register(agent=step.actor, manifest=msgspec.Raw(manifest))
        caller = Caller(team=TEAM, agent=step.actor)
        await self._relay.call(caller, "register", request, name=step.actor)

    async def _move(self, step: Step) -> None:
        number = step.handoff
        operation, request = self._said(step)
        made = await self._ask(step.actor, operation, request, about=self._handoffs[number])
        if step.act is Act.ACK:
            self._attempts[number] = made.attempt
        elif step.act in {Act.ASK, Act.COUNTER}:
            assert made.question is not None, "it was asked just now"
            self._questions[number] = made.question.seq
            if step.act is Act.COUNTER:
                self._countered.add(number)
        elif step.opens >= 0:
            assert made.next_leg is not None, "a leg was declared"
            self._handoffs[step.opens] = made.next_leg

    def _said(self, step: Step) -> tuple[str, requests.Request]:
        """Return the operation of a step about a handoff, and its request."""
        attempt = self._attempts.get(step.handoff)
        match step.act:
            case Act.ACK:
                return "ack", requests.Ack()  # what is merely offered is taken with it
            case Act.ASK:
                return "block", requests.Block(attempt=attempt, question=step.text or "")
            case Act.COUNTER:
                # The terms that hold already: what is simulated is the round trip.
                counter = requests.Counter(attempt=attempt, priority="medium", reason=step.text)
                return "counter", counter
            case Act.ANSWER if step.handoff in self._countered:
                self._countered.discard(step.handoff)
                return "agree", requests.Agree(seq=self._questions[step.handoff])
            case Act.ANSWER:
                seq = self._questions[step.handoff]
                return "answer", requests.Answer(seq=seq, answer=step.text)
            case Act.RETRY:
                return "fail", requests.Fail(attempt=attempt, retryable=True)
            case Act.COMPLETE:
                return "complete", requests.Complete(attempt=attempt, result=step.payload)
            case Act.FAIL:
                return "fail", requests.Fail(attempt=attempt, reason=step.text or "failed")
            case Act.SETTLE:
                return "settle", requests.Settle()
            case _:
                raise AssertionError(step.act)

    async def _ask(
        self, agent: str, operation: str, request: requests.Request, *, about: str | None = None
    ) -> HandoffView:
        caller = Caller(team=TEAM, agent=agent)
        answer = (await self._relay.call(caller, operation, request, reference=about)).answer
        assert isinstance(answer, HandoffAnswer), "an answer about a handoff"
        return answer.handoff


def _offer(step: Step) -> requests.Offer:
    told: tuple[requests.EscalationSpec, ...] = ()
    if step.escalate_ms:
        after = step.escalate_ms / SECOND
        told = (requests.EscalationSpec(when="unacknowledged", after=after, notify=PERSON),)
    return requests.Offer(
        to=step.to,
        capability=step.capability,
        title=step.title,
        payload=step.payload,
        deadline=step.deadline_ms / SECOND,
        attempts_max=ATTEMPTS_MAX,
        backoff=BACKOFF,
        escalation=told,
        then=tuple(requests.LegSpec(to=to, capability=what) for to, what in step.then),
        correlation_id=chain_id(step.chain),
        observations=list(step.observations),
        parameters=dict(step.parameters),
        covariates=dict(step.covariates),
    )
