"""An agent's line to the relay: what is not answered is sent again, as the SDK does.

Now and then an answer gets lost here though the relay gave it; the repeat must then be answered
as the first time.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from nodrop.model.errors import CallerError, UnavailableError
from nodrop.protocol import requests, views
from nodrop.protocol.requests import Request
from nodrop.relay.relay import Caller
from nodrop_proof.simulate.signs import Signs
from nodrop_proof.simulate.violation import Violation
from nodrop_proof.simulate.world import TEAM, LostError, World

LOST_ANSWERS: Final = 0.02
_PAUSE_MS: Final = (200, 3_000)
_SAME: Final = ("id", "state", "holder", "attempt", "tries", "receipts", "ack", "question")
"""What a repeated command must show of its handoff as it showed it first."""
_SIGNS: Final = (requests.Heartbeat, requests.OfDelivery)
"""What only a living process sends."""


class Line:
    """One agent's way in, however often the relay or the network goes away."""

    def __init__(
        self,
        world: World,
        agent: str,
        *,
        operator: bool = False,
        signs: Signs | None = None,
        of_agent: Signs | None = None,
    ) -> None:
        """Lay a line for `agent`.

        `signs` notes the signs of life that one of its processes gives, `of_agent` those that all do.
        """
        self.agent = agent
        self.caller = Caller(team=TEAM, agent=agent, operator=operator)
        self._world = world
        self._signs = signs
        self._of_agent = of_agent or Signs()
        self._chance = world.chance(f"line of {agent}")

    async def __call__(
        self,
        request: Request,
        operation: str,
        about: str | None = None,
        *,
        named: str | None = None,
    ) -> Any:
        """Return the answer to `request`, sent again until there is one.

        Raises:
            CallerError: the relay refused.
        """
        first: views.View | None = None
        if isinstance(request, requests.Command) and request.command_id is None:
            request = msgspec.structs.replace(request, command_id=self._world.new_id())
        while True:
            sent_at = self._world.now
            try:
                with self._alive(request):
                    reply = await self._world.ask(
                        self.caller, operation, request, about=about, named=named
                    )
            except (LostError, UnavailableError):
                self._world.figures["not answered"] += 1
                await self._pause()
                continue
            except CallerError as error:
                self._world.figures[f"refused: {error.code}"] += 1
                if first is not None:
                    raise Violation(
                        f"{operation} was done, and its repeat refused: {error.code}"
                    ) from error
                raise
            if first is not None:
                _compare(operation, request, first, reply.answer)
            elif self._loses(request):
                first = reply.answer
                self._world.figures["answers lost"] += 1
                await self._pause()
                continue
            self._of_agent.answered(sent_at)
            if self._signs is not None and isinstance(request, requests.Heartbeat):
                self._signs.answered(sent_at)
            self._world.figures["commands"] += isinstance(request, requests.Command)
            return reply.answer

    @contextmanager
    def _alive(self, request: Request) -> Generator[None]:
        """Note that whoever sends this is alive: from when it is sent to when it is answered."""
        sign = self._signs is not None and isinstance(request, _SIGNS)
        self._of_agent.sent_at = self._world.now
        if self._signs is not None and sign:
            self._signs.sent_at = self._world.now
        yield
        if self._signs is not None and sign:
            self._signs.sent_at = self._world.now

    def _loses(self, request: Request) -> bool:
        lossy = self._world.plan.faults and isinstance(request, requests.Command)
        return lossy and self._chance.strikes(LOST_ANSWERS)

    async def _pause(self) -> None:
        await self._world.clock.sleep(self._chance.randint(*_PAUSE_MS))


def _compare(operation: str, request: Request, first: views.View, again: views.View) -> None:
    """Hold the repeat of a command to its first answer."""
    if isinstance(first, views.HandoffAnswer) and isinstance(again, views.HandoffAnswer):
        if operation == "settle":
            return  # settling what is settled does nothing, and is answered with how it is now
        if (
            isinstance(request, requests.Ack)
            and request.queued
            and first.handoff.state != "offered"
        ):
            return  # nor does queueing what a process has
        for name in _SAME:
            before, now = getattr(first.handoff, name), getattr(again.handoff, name)
            if name == "ack" and before and now and before.queued:  # it is counted when it is shown
                now = msgspec.structs.replace(now, position=before.position, of=before.of)
            if before != now:
                raise Violation(
                    f"{operation} of {first.handoff.id} was answered with {name} {before}, "
                    f"and its repeat with {now}"
                )
    elif isinstance(first, views.DeliveriesAnswer) and isinstance(again, views.DeliveriesAnswer):
        taken = [(d.handoff.id, d.attempt) for d in first.deliveries]
        repeated = [(d.handoff.id, d.attempt) for d in again.deliveries]
        if taken and taken != repeated:
            raise Violation(f"take was answered with {taken}, and its repeat with {repeated}")
