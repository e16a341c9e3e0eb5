"""Queued acknowledgements of a worker: an ETA if it can tell one, one word per promise."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from nodrop.client.client import Client
from nodrop.client.transports.transport import DeliveryStream
from nodrop.client.working.queueing import OBSERVATIONS_MIN, Queueing
from nodrop.model.errors import LimitReachedError


class Relay:
    """Answers queued acknowledgements as the test says."""

    def __init__(self, **view: Any) -> None:
        self.view = {
            "id": "h1",
            "state": "offered",
            "capability": None,
            "update_every": "50ms",
            "ack": {"position": 2, "queued": True},
            **view,
        }
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.refusal: LimitReachedError | None = None

    async def about(self, handoff: str, operation: str, **fields: Any) -> dict[str, Any]:
        assert (handoff, operation) == ("h1", "ack")
        self.said.put_nowait(fields)
        if self.refusal is not None:
            raise self.refusal
        return self.view


class Stream:
    """One offer, told so many times, and then nothing more."""

    def __init__(self, times: int = 1) -> None:
        self._times = times

    async def waiting(self) -> AsyncIterator[dict[str, Any]]:
        for _ in range(self._times):
            yield {"id": "h1", "position": 2, "slots": 1}
        await asyncio.Event().wait()


def queueing(relay: Relay) -> Queueing:
    return Queueing(cast("Client", relay), slots=lambda: 1, able=lambda _: True)


def test_nobody_can_tell_an_eta_from_few_observations() -> None:
    queue = queueing(Relay())
    for _ in range(OBSERVATIONS_MIN - 1):
        queue.observe("triage", 60.0)
    assert queue.eta("triage", 2, 1) is None
    queue.observe("triage", 60.0)
    assert queue.eta("triage", 2, 1) == 120.0
    assert queue.eta("triage", 6, 3) == 120.0  # three slots share the queue
    assert queue.eta("review", 2, 1) is None


async def test_each_promise_is_kept_by_one_update_until_it_is_delivered() -> None:
    relay = Relay()
    queue = queueing(relay)
    running = asyncio.create_task(queue.run(cast("DeliveryStream", Stream())))
    async with asyncio.timeout(20):
        first, second = await relay.said.get(), await relay.said.get()
    assert first["queued"] is second["queued"] is True
    assert "eta" not in first
    queue.begun("h1")
    running.cancel()


async def test_what_came_back_from_another_process_is_acknowledged_again() -> None:
    relay = Relay(update_every="1h")
    queue = queueing(relay)
    running = asyncio.create_task(queue.run(cast("DeliveryStream", Stream(times=2))))
    async with asyncio.timeout(20):
        first, second = await relay.said.get(), await relay.said.get()
    assert first == second
    assert queue.promises == 1
    running.cancel()


async def test_what_another_process_holds_is_left_alone() -> None:
    relay = Relay(state="accepted", ack={"position": 1, "queued": False})
    queue = queueing(relay)
    running = asyncio.create_task(queue.run(cast("DeliveryStream", Stream())))
    async with asyncio.timeout(20):
        await relay.said.get()
    assert not queue.promises
    running.cancel()


async def test_what_the_relay_has_no_room_for_is_left_to_its_accept_clock() -> None:
    relay = Relay()
    relay.refusal = LimitReachedError("1000 handoffs are acknowledged as queued already")
    queue = queueing(relay)
    running = asyncio.create_task(queue.run(cast("DeliveryStream", Stream())))
    async with asyncio.timeout(20):
        await relay.said.get()
    assert not queue.promises
    assert not running.done()
    running.cancel()
