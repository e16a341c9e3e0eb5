"""One delivery in the hands of a process: what becomes of it is up to chance."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from nodrop.model.errors import (
    AlreadyBlockedError,
    AlreadyFinishedError,
    NotFoundError,
    StaleAttemptError,
    WrongStateError,
)
from nodrop.model.limits import HOUR, MINUTE, SECOND
from nodrop.protocol import requests
from nodrop.protocol.requests import OfDelivery
from nodrop.protocol.views import HandoffView, PushView
from nodrop_proof.simulate.chance import Chance
from nodrop_proof.simulate.line import Line
from nodrop_proof.simulate.violation import Violation
from nodrop_proof.simulate.world import World

Key = tuple[str, int]
"""A handoff and the attempt at it."""

GONE: Final = (StaleAttemptError, AlreadyFinishedError, NotFoundError)
"""It is somebody else's now, or over."""


class Errand:
    """The work on one delivery."""

    def __init__(
        self,
        world: World,
        line: Line,
        delivery: PushView,
        chance: Chance,
        awake: Callable[[], Awaitable[None]],
    ) -> None:
        """Prepare the work; `awake` returns when the process does something again."""
        self._world = world
        self._line = line
        self._id = delivery.handoff.id
        self._attempt = delivery.attempt
        self._chance = chance
        self._awake = awake

    async def run(self) -> None:
        """Do it, or fail to."""
        try:
            if await self._begin():
                for _ in range(self._chance.randint(0, 4)):
                    await self._spend(self._chance.about(2 * MINUTE))
                    if not await self._go_on():
                        return
                await self._finish()
        except GONE as error:
            self._world.figures["errands lost"] += 1
            if isinstance(error, AlreadyFinishedError) and self._chance.strikes(0.5):
                await self._hand_in_late()

    async def _spend(self, ms: float) -> None:
        await self._world.clock.sleep(ms)
        await self._awake()

    async def _say(self, said: OfDelivery, operation: str) -> HandoffView:
        return (await self._line(said, operation, self._id)).handoff

    # --- beginning ---

    async def _begin(self) -> bool:
        """Acknowledge it; or not, in one of the ways there are. Return whether to go on."""
        attempt = self._attempt
        if self._chance.strikes(0.05):
            await self._spend(self._chance.about(10 * MINUTE))
        match self._chance.pick({"ack": 83, "reject": 6, "counter": 6, "release": 3}):
            case "reject":
                await self._say(requests.Reject(attempt=attempt, reason="busy"), "reject")
                return False
            case "counter":
                return await self._counter()
            case "release":
                await self._say(requests.Release(attempt=attempt), "release")
                return False
            case _:
                promised = self._chance.choice((None, 30, 600))
                said = requests.Ack(attempt=attempt, status="got it", next_update=promised)
                await self._say(said, "ack")
                return True

    # --- in the middle ---

    async def _go_on(self) -> bool:
        """Do a bit of it; return whether it goes on."""
        attempt = self._attempt
        match self._chance.pick(
            {"update": 40, "step": 20, "checkpoint": 10, "ask": 20, "counter": 5, "dream": 5}
        ):
            case "update":
                await self._say(requests.Update(attempt=attempt, status="working"), "update")
            case "step":
                await self._step(f"step {self._chance.randint(1, 3)}")
            case "checkpoint":
                said = requests.Checkpoint(attempt=attempt, checkpoint={"page": 7})
                await self._say(said, "checkpoint")
            case "ask":
                return await self._ask()
            case "counter":
                return await self._counter()
            case _:
                pass
        return True

    async def _step(self, name: str) -> None:
        said = requests.Step(attempt=self._attempt, value=self._attempt)
        answer = await self._line(said, "step", self._id, named=name)
        if not answer.recorded:
            raise Violation(f"{self._id}: {name} was recorded, and is not")

    async def _counter(self) -> bool:
        counter = requests.Counter(attempt=self._attempt, deadline="8h", reason="later")
        await self._say(counter, "counter")
        return await self._answered()

    async def _ask(self) -> bool:
        park = self._chance.strikes(0.3)
        to = self._chance.choice((None, None, "me"))
        question = requests.Block(attempt=self._attempt, question="which?", to=to, park=park)
        try:
            await self._say(question, "block")
        except AlreadyBlockedError as error:
            raise Violation(f"{self._id}: no question was open") from error
        return not park and await self._answered()

    async def _answered(self) -> bool:
        """Wait for the answer, not for ever; return whether to go on."""
        gives_up_at = self._world.now + self._chance.about(HOUR)
        while self._world.now < gives_up_at:
            wait = requests.GetHandoff(wait=30, until="unblocked")
            view: HandoffView = (await self._line(wait, "get_handoff", self._id)).handoff
            if view.question is None or view.id != self._id:
                return view.id == self._id and view.state == "accepted"
            await self._spend(self._chance.uniform(1, 60) * SECOND)
        with suppress(WrongStateError):  # a counter is no acceptance: nothing can come of it yet
            await self._give_up()
        return False

    async def _give_up(self) -> None:
        attempt = self._attempt
        match self._chance.pick({"complete": 40, "retry": 20, "fail": 20, "release": 20}):
            case "complete":
                await self._say(requests.Complete(attempt=attempt, result="guessed"), "complete")
            case "retry":
                await self._say(requests.Fail(attempt=attempt, retryable=True), "fail")
            case "fail":
                await self._say(requests.Fail(attempt=attempt), "fail")
            case _:
                await self._say(requests.Release(attempt=attempt), "release")

    # --- ending ---

    async def _finish(self) -> None:
        attempt = self._attempt
        if self._chance.strikes(0.05):
            await self._spend(self._chance.about(3 * HOUR))
        match self._chance.pick(
            {"complete": 70, "retry": 10, "fail": 7, "release": 7, "reject": 3, "vanish": 3}
        ):
            case "complete":
                result = requests.Complete(attempt=attempt, result={"done": attempt})
                await self._say(result, "complete")
            case "retry":
                await self._say(requests.Fail(attempt=attempt, retryable=True), "fail")
            case "fail":
                await self._say(requests.Fail(attempt=attempt, code="no_access"), "fail")
            case "release":
                released = requests.Release(attempt=attempt, checkpoint={"page": 9})
                await self._say(released, "release")
            case "reject":
                await self._say(requests.Reject(attempt=attempt), "reject")
            case _:
                pass  # never heard of again, though its process lives

    async def _hand_in_late(self) -> None:
        """Too late; but somebody may want it all the same."""
        await self._spend(self._chance.about(MINUTE))
        with suppress(*GONE):
            result = requests.Complete(attempt=self._attempt, result="late")
            await self._say(result, "complete")
