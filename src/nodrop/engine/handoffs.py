"""What is asked about one handoff, and the offer that makes one.

Each request goes to whoever carries it out: reading and writing know how, this knows who.
"""

import msgspec

from nodrop.core.errors import NotFoundError
from nodrop.core.model import Handoff
from nodrop.engine.answers import Answers
from nodrop.engine.asking import Reply
from nodrop.engine.done import DoneBefore
from nodrop.engine.erasing import Erasing
from nodrop.engine.reading import Reading
from nodrop.engine.shows import Caller, Shows
from nodrop.engine.withdrawing import withdraw
from nodrop.engine.writing import Writing
from nodrop.wire import requests
from nodrop.wire.requests import Request


class Handoffs:
    """Carries out the operations that are about one handoff."""

    def __init__(
        self,
        *,
        reading: Reading,
        writing: Writing,
        erasing: Erasing,
        shows: Shows,
        answers: Answers,
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._erasing = erasing
        self._shows = shows
        self._answers = answers

    async def offer(self, caller: Caller, request: requests.Offer) -> Reply:
        """Make a handoff, below its parent if it names one."""
        parent: Handoff | None = None
        if request.parent_id is not None:
            parent_id = await self._reading.resolve(caller, request.parent_id)
            parent = await self._reading.find(caller, parent_id)
        done = await self._writing.offers.make(caller, request, parent=parent)
        return await self._answers.to_offer(caller, request, done)

    async def call(  # one flat match over the operations
        self, caller: Caller, request: Request, reference: str, name: str | None
    ) -> Reply:
        """Carry out an operation about the handoff that `reference` names."""
        handoff_id = await self._reading.resolve(caller, reference)
        match request:
            case requests.GetHandoff():
                found, elapsed = await self._reading.wait_for_rung(caller, handoff_id, request)
                return await self._answers.to_wait(caller, found, elapsed=elapsed)
            case requests.GetStep():
                handoff = await self._reading.find(caller, handoff_id)
                return Reply(answer=await self._shows.step(handoff, name or request.name))
            case requests.Step():
                named = msgspec.structs.replace(request, name=name or request.name)
                done = await self._writing.command(caller, named, handoff_id)
                handoff = await self._reading.find(caller, handoff_id)
                answer = await self._shows.step(handoff, named.name)
                return Reply(answer=answer, replayed=isinstance(done, DoneBefore))
            case requests.Answer() | requests.Agree() | requests.Decline():
                done = await self._writing.answer(caller, request, handoff_id)
            case requests.Cancel():
                done = await withdraw(self._writing, self._reading, caller, request, handoff_id)
            case requests.Reassign():
                done = await self._writing.reassign(caller, request, handoff_id)
            case requests.Redrive() | requests.AcceptLate():
                dead = await self._reading.find(caller, handoff_id)
                done = await self._writing.decide_dead_letter(caller, request, dead)
            case requests.Erase():
                await self._erasing.require_no_heirs(await self._reading.find(caller, handoff_id))
                done = await self._writing.command(caller, request, handoff_id)
                await self._erasing.finish(caller.team, handoff_id)
            case requests.Command():
                done = await self._writing.command(caller, request, handoff_id)
            case _:
                raise NotFoundError("no such operation")
        return await self._answers.to_command(caller, request, done)
