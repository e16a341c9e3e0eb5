"""Requesters and workers in the relay's own process, who remember everything they were told.

They outlive their relay: what was not answered they ask again, with the same command id, of the
next one. An answer that comes when the power is off never left, and is not remembered. What they
do is drawn from random sources of their own, so that a seed repeats it.
"""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from random import Random
from typing import Any, Final, TypeVar

import msgspec

from nodrop.log.port import Store
from nodrop.model.errors import NodropError
from nodrop.protocol import requests, views
from nodrop.protocol.requests import Request
from nodrop.relay.relay import Caller, Relay, Reply
from nodrop.testing.clock import FakeClock
from nodrop_proof.chaos.memory import Memory, Promise

T = TypeVar("T")

TEAM: Final = "default"
OPEN_MAX: Final = 12
"""Handoffs that one requester has open at once."""
HELD_MAX: Final = 4
"""Deliveries that one worker has at once."""
TEXT_CHARS_MAX: Final = 6_000
"""More than a page: some bodies spill over."""
PASSES_MS_MAX: Final = 50
"""How much time goes by with an answer."""
BACK_SECONDS_MAX: Final = 10.0
"""A stopped relay leaves nobody waiting; this is only how long we look."""
HEARTBEAT_SECONDS: Final = 10.0


class Desk:
    """Where colleagues find the relay that serves now, and wait for the next one."""

    def __init__(self, clock: FakeClock, random: Random) -> None:
        self.memory = Memory()
        self.clock = clock
        self.is_off: Callable[[], bool] = lambda: False
        self._random = random
        self._relay: Relay | None = None
        self._store: Store | None = None
        self._open = asyncio.Event()
        self._asking = 0
        self._numbers = itertools.count(1)

    def serve(self, relay: Relay, store: Store) -> None:
        """Let everybody ask `relay`, which is on `store`, from now on."""
        self._relay, self._store = relay, store
        self._open.set()

    def close(self) -> None:
        """Let everybody wait."""
        self._relay = self._store = None
        self._open.clear()

    async def relay(self) -> Relay:
        """Return the relay that serves, once there is one."""
        while self._relay is None:
            await self._open.wait()
        return self._relay

    @contextmanager
    def asking(self) -> Generator[None]:
        """Be known as somebody who waits for an answer."""
        self._asking += 1
        try:
            yield
        finally:
            self._asking -= 1

    async def answers(self, count: int) -> None:
        """Return when there were `count` more answers, or there can be no more."""
        enough = self.memory.answers + count
        while self.memory.answers < enough and not self.is_off():  # noqa: ASYNC110  # each turn brings some
            await asyncio.sleep(0)

    async def deserted(self) -> bool:
        """Whether everybody got some answer from the relay that was stopped."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BACK_SECONDS_MAX):
                while self._asking:  # noqa: ASYNC110  # each turn brings some back
                    await asyncio.sleep(0)
        return not self._asking

    async def store(self) -> tuple[Relay, Store]:
        """Return the relay that serves and what it is on, for housekeeping."""
        relay = await self.relay()
        assert self._store is not None, "a relay has a store"
        return relay, self._store

    def hears(self, relay: Relay) -> bool:
        """Whether what `relay` says can still reach anybody."""
        return relay is self._relay and not self.is_off()

    def command_id(self) -> str:
        """Return a fresh id for a command."""
        return f"command-{next(self._numbers)}"

    def answered(self) -> None:
        """Let a little time go by."""
        self.memory.answers += 1
        self.clock.advance(self._random.randint(0, PASSES_MS_MAX))


class Colleague:
    """An agent of the team, for as long as the database lives."""

    def __init__(self, agent: str, desk: Desk, random: Random) -> None:
        self.agent = agent
        self.memory = desk.memory
        self.desk = desk
        self.random = random
        self._caller = Caller(team=TEAM, agent=agent)

    async def live(self) -> None:
        """Do one thing after the other, until cancelled."""
        while True:
            for _ in range(self.random.randint(1, 4)):
                await asyncio.sleep(0)
            await self.act()

    async def act(self) -> None:
        """Do something."""
        raise NotImplementedError

    async def ask(
        self, operation: str, request: Request, about: str | None = None, *, name: str | None = None
    ) -> Reply | None:
        """Return the answer of whichever relay gives one; None if it refuses for good."""
        while True:
            relay = await self.desk.relay()
            try:
                with self.desk.asking():
                    reply = await relay.call(
                        self._caller, operation, request, reference=about, name=name
                    )
            except NodropError as error:
                if self.desk.hears(relay):
                    self.memory.refusals[error.code] += 1
                    if not error.retryable:
                        return None
            else:
                if self.desk.hears(relay):
                    self.desk.answered()
                    return reply
            await asyncio.sleep(0)  # nobody heard it; whoever cut the power must get a turn

    async def command(
        self, operation: str, request: requests.Command, about: str, *, name: str | None = None
    ) -> views.View | None:
        """Have a command about a handoff carried out, and remember that it was."""
        reply = await self.ask(operation, request, about, name=name)
        if reply is None:
            return None
        if isinstance(reply.answer, views.HandoffAnswer):
            self.memory.shown(reply.answer.handoff)
            if operation == "cancel":
                about = reply.answer.handoff.id  # where the chain has come to
        self.promised(operation, request, about)
        return reply.answer

    def promised(
        self, operation: str, request: requests.Command, handoff_id: str | None = None
    ) -> None:
        """Remember that a command was answered."""
        assert request.command_id is not None, "colleagues give every command an id"
        self.memory.promises.append(
            Promise(
                actor=self.agent,
                operation=operation,
                command_id=request.command_id,
                handoff_id=handoff_id,
            )
        )

    def text(self) -> str:
        """Return something to say: mostly short, now and then longer than a page."""
        return "x" * int(TEXT_CHARS_MAX * self.random.random() ** 4)

    def draw(self, chances: Mapping[T, int]) -> T:
        """Return one of `chances`, each as often as its number says."""
        return self.random.choices(list(chances), list(chances.values()))[0]


class Requester(Colleague):
    """Hands off, looks how it goes, settles; sometimes cancels, or leaves a note."""

    def __init__(self, agent: str, desk: Desk, random: Random, *, workers: list[str]) -> None:
        super().__init__(agent, desk, random)
        self._workers = workers
        self._open: list[str] = []
        self._offers: list[tuple[requests.Offer, str]] = []

    async def act(self) -> None:
        """Do something."""
        move = self.draw(
            {
                self._offer: 45,
                self._look: 45,
                self._offer_again: 3,
                self._cancel: 2,
                self._note: 3,
                self._mint: 2,
            }
        )
        await move()

    async def _offer(self) -> None:
        if len(self._open) >= OPEN_MAX:
            await self._look()
            return
        number = len(self._offers)
        request = requests.Offer(
            to=self.random.choice(self._workers),
            title=f"{self.agent} {number}",
            payload={"text": self.text()},
            then=self.draw({(): 4, (requests.LegSpec(to=self._workers[0]),): 1}),
            idempotency_key=f"key-{number}",
            command_id=self.desk.command_id(),
        )
        reply = await self.ask("offer", request)
        if reply is not None:
            made = _handoff(reply.answer)
            self.promised("offer", request, made.id)
            self.memory.stored.add(made.id)
            self.memory.shown(made)
            self._offers.append((request, made.id))
            self._open.append(made.id)

    async def _offer_again(self) -> None:
        """Offer what was offered before, as somebody does who forgot that it was."""
        if not self._offers:
            return
        first, handoff_id = self.random.choice(self._offers)
        again = msgspec.structs.replace(first, command_id=self.desk.command_id())
        reply = await self.ask("offer", again)
        if reply is not None and _handoff(reply.answer).id != handoff_id:
            self.memory.stored.add(_handoff(reply.answer).id)  # the log shows the key twice

    async def _look(self) -> None:
        if not self._open:
            return
        handoff_id = self.random.choice(self._open)
        reply = await self.ask("get_handoff", requests.GetHandoff(), handoff_id)
        if reply is None:
            self._open.remove(handoff_id)
            return
        shown = _handoff(reply.answer)
        self.memory.shown(shown)
        if shown.outcome is None:
            return
        if shown.settled_at is None:
            await self.command(
                "settle", requests.Settle(command_id=self.desk.command_id()), handoff_id
            )
        self._open.remove(handoff_id)
        self.memory.ended.append(handoff_id)
        if shown.next_leg is not None:
            self._open.append(shown.next_leg)

    async def _cancel(self) -> None:
        if not self._open:
            return
        handoff_id = self.random.choice(self._open)
        request = requests.Cancel(reason="no longer", command_id=self.desk.command_id())
        await self.command("cancel", request, handoff_id)

    async def _note(self) -> None:
        request = requests.Note(text="a remark" + self.text(), command_id=self.desk.command_id())
        if await self.ask("note_team", request) is not None:
            self.promised("note_team", request)

    async def _mint(self) -> None:
        reply = await self.ask("create_token", requests.CreateToken(agent=self.agent))
        if reply is not None:
            assert isinstance(reply.answer, views.TokenAnswer), "what create_token answers"
            self.memory.tokens.add(reply.answer.token_id)


class Worker(Colleague):
    """Takes, acknowledges, records steps, and finishes in one way or another."""

    def __init__(self, agent: str, desk: Desk, random: Random, *, heartbeat: bool) -> None:
        super().__init__(agent, desk, random)
        self._heartbeat_seconds = HEARTBEAT_SECONDS if heartbeat else None
        self._held: list[_Held] = []

    async def act(self) -> None:
        """Do something."""
        move = self.draw({self._go_on: 65, self._take: 30, self._stay_alive: 5})
        await move()

    async def _stay_alive(self) -> None:
        await self.ask("heartbeat", requests.Heartbeat(process="p"))

    async def _take(self) -> None:
        if len(self._held) >= HELD_MAX:
            return
        request = requests.Take(
            max=self.random.randint(1, HELD_MAX),
            heartbeat_seconds=self._heartbeat_seconds,
            process="p",
            command_id=self.desk.command_id(),
        )
        reply = await self.ask("take", request)
        if reply is None:
            return
        assert isinstance(reply.answer, views.DeliveriesAnswer), "what take answers"
        for delivery in reply.answer.deliveries:
            self.promised("take", request, delivery.handoff.id)
            self.memory.shown(delivery.handoff)
            unknown = self.memory.steps[delivery.handoff.id] - set(delivery.steps)
            self.memory.steps_rerun += len(unknown)
            self._held.append(
                _Held(id=delivery.handoff.id, attempt=delivery.attempt, steps=len(delivery.steps))
            )

    async def _go_on(self) -> None:
        if not self._held:
            return
        held = self.random.choice(self._held)
        operation = self.draw(_WORK) if held.accepted else "ack"
        name = f"step-{held.steps}" if operation == "step" else None
        answer = await self.command(operation, self._move(operation, held), held.id, name=name)
        if answer is None or operation in _LAST:
            self._held.remove(held)
        elif operation == "ack":
            held.accepted = True
        elif name is not None:
            held.steps += 1
            self.memory.steps[held.id].add(name)

    def _move(self, operation: str, held: "_Held") -> requests.Command:
        this: dict[str, Any] = {"attempt": held.attempt, "command_id": self.desk.command_id()}
        match operation:
            case "ack":
                return requests.Ack(status="queued", **this)
            case "update":
                return requests.Update(status="half way", **this)
            case "step":
                return requests.Step(value=self.text(), **this)
            case "checkpoint":
                return requests.Checkpoint(checkpoint=self.text(), **this)
            case "complete":
                return requests.Complete(result=self.text(), **this)
            case "release":
                return requests.Release(reason="not now", **this)
            case _:
                retryable = self.draw({True: 1, False: 1})
                return requests.Fail(reason="cannot", retryable=retryable, **this)


_WORK: Final = {
    "step": 25,
    "update": 10,
    "checkpoint": 5,
    "complete": 50,
    "fail": 5,
    "release": 5,
}
_LAST: Final = frozenset({"complete", "fail", "release"})
"""After these the worker has it no more."""


class _Held(msgspec.Struct, kw_only=True, eq=False):
    id: str
    attempt: int
    steps: int
    accepted: bool = False


class Janitor(Colleague):
    """Erases the bodies of what is over, as an operator may: that empties the write-ahead log."""

    async def act(self) -> None:
        """Do something, seldom."""
        if not self.memory.ended or self.draw({True: 49, False: 1}):
            return
        handoff_id = self.memory.ended.pop()
        self.memory.erasing.add(handoff_id)
        while True:
            relay, store = await self.desk.store()
            with suppress(NodropError), self.desk.asking():
                await store.erase(TEAM, handoff_id)
                if self.desk.hears(relay):
                    self.memory.erased.add(handoff_id)
                    return
            await asyncio.sleep(0)


def team(desk: Desk, random: Random, *, requesters: int, workers: int) -> list[Colleague]:
    """Return everybody who works together."""
    names = [f"worker-{number}" for number in range(workers)]
    return [
        *(
            Requester(f"requester-{number}", desk, Random(random.random()), workers=names)  # noqa: S311  # a seed repeats it
            for number in range(requesters)
        ),
        *(
            Worker(name, desk, Random(random.random()), heartbeat=number % 2 == 0)  # noqa: S311  # a seed repeats it
            for number, name in enumerate(names)
        ),
        Janitor("me", desk, Random(random.random())),  # noqa: S311  # a seed repeats it
    ]


@asynccontextmanager
async def at_work(colleagues: list[Colleague]) -> AsyncGenerator[None]:
    """Let everybody work while the block runs.

    Raises:
        AssertionError: somebody gave up, which is a defect of ours.
    """
    tasks = [asyncio.create_task(colleague.live()) for colleague in colleagues]
    try:
        yield
        for task in tasks:
            assert not task.done(), f"somebody gave up: {task}"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _handoff(answer: views.View) -> views.HandoffView:
    assert isinstance(answer, views.HandoffAnswer), "an answer about one handoff"
    return answer.handoff
