"""Withdrawing: whoever cancels a handoff means the work, wherever its chain has come to."""

from nodrop.core.errors import AlreadyFinishedError
from nodrop.core.limits import DEFAULT
from nodrop.engine.done import Done, DoneBefore
from nodrop.engine.reading import Reading
from nodrop.engine.shows import Caller
from nodrop.engine.writing import Writing
from nodrop.wire import requests


async def withdraw(
    writing: Writing, reading: Reading, caller: Caller, request: requests.Cancel, handoff_id: str
) -> Done | DoneBefore:
    """Withdraw a handoff; where its chain has gone on from there, the leg that it has come to."""
    for _ in range(DEFAULT.legs_max):
        leg = await reading.at_work(caller, handoff_id)
        try:
            return await writing.command(caller, request, leg.id)
        except AlreadyFinishedError:
            if (await reading.find(caller, leg.id)).next_leg is None:
                raise
    raise AlreadyFinishedError("its chain goes on faster than it can be withdrawn")
