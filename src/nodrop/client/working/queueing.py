"""The queue of a worker: what waits for a free slot is acknowledged at once, with position and ETA.

Each acknowledgement promises the next word. Where the work still waits when that is due, one update
keeps the promise; what has moved on meanwhile needs none.
"""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final

from nodrop.client.client import Client
from nodrop.client.durations import seconds
from nodrop.client.shown import HandoffShown
from nodrop.client.transports.transport import DeliveryStream
from nodrop.client.values import given
from nodrop.model.errors import CallerError, NodropError

OBSERVATIONS_MIN: Final = 5
"""Fewer durations than this are not enough to tell when something will be done."""
OBSERVATIONS_MAX: Final = 100
"""The durations that count: the last ones."""
KEPT_EARLY: Final = 0.8
"""After which part of the promised time its update is sent."""
STATUS: Final = "Added to queue"

_LOG: Final = logging.getLogger("nodrop.worker")


class Queueing:
    """Acknowledges what waits for this worker."""

    def __init__(
        self, client: Client, *, slots: Callable[[], int], able: Callable[[str | None], bool]
    ) -> None:
        """Prepare the queue of one worker.

        Args:
            client: the worker's connection.
            slots: how many deliveries it can have at once.
            able: whether it can do what a capability names.
        """
        self._client = client
        self._slots = slots
        self._able = able
        self._durations: defaultdict[str | None, deque[float]] = defaultdict(
            lambda: deque(maxlen=OBSERVATIONS_MAX)
        )
        self._promised: dict[str, asyncio.TimerHandle] = {}
        """When each update is sent, by handoff."""
        self._updating: set[asyncio.Task[None]] = set()

    @property
    def promises(self) -> int:
        """How many handoffs this worker owes another word about."""
        return len(self._promised)

    def observe(self, capability: str | None, duration: float) -> None:
        """Note how many seconds a delivery took."""
        self._durations[capability].append(duration)

    def begun(self, handoff_id: str) -> None:
        """Promise nothing more about what was delivered: its own updates follow."""
        handle = self._promised.pop(handoff_id, None)
        if handle is not None:
            handle.cancel()

    async def run(self, stream: DeliveryStream) -> None:
        """Acknowledge what comes, until cancelled."""
        try:
            async for offer in stream.waiting():
                if "capability" not in offer or self._able(offer["capability"]):
                    await self._say(offer)
        except NodropError as error:
            _LOG.warning("what waits is no longer acknowledged: %s", error)
        finally:
            for handle in self._promised.values():
                handle.cancel()
            for task in self._updating:
                task.cancel()

    def eta(self, capability: str | None, position: int, slots: int) -> float | None:
        """Return in how many seconds something at `position` will be done; None: nobody can tell."""
        observed = self._durations.get(capability, ())
        if len(observed) < OBSERVATIONS_MIN:
            return None
        return sum(observed) / len(observed) * position / max(slots, 1)

    async def _say(self, offer: dict[str, Any]) -> None:
        """Acknowledge something as queued, and again when the next word is due."""
        handoff_id: str = offer["id"]
        slots = offer.get("slots") or self._slots()
        eta = self.eta(offer.get("capability"), offer.get("position") or slots + 1, slots)
        said = given(queued=True, status=STATUS, eta=eta)
        try:
            handoff = HandoffShown(await self._client.about(handoff_id, "ack", **said))
        except CallerError as error:  # it has moved on, or so many are queued already
            _LOG.debug("%s is not acknowledged as queued: %s", handoff_id, error)
            return
        self.begun(handoff_id)  # it may have been queued before, and come back from another process
        if handoff.ack is None or not handoff.ack.queued:
            return  # another process of the agent has it
        later = {**offer, "capability": handoff.capability, "position": handoff.ack.position}
        self._promised[handoff_id] = asyncio.get_running_loop().call_later(
            KEPT_EARLY * seconds(handoff.view["update_every"]), self._update, later
        )

    def _update(self, offer: dict[str, Any]) -> None:
        self._promised.pop(offer["id"], None)
        task = asyncio.create_task(self._keep(offer))
        self._updating.add(task)
        task.add_done_callback(self._updating.discard)

    async def _keep(self, offer: dict[str, Any]) -> None:
        try:
            await self._say(offer)
        except NodropError as error:
            _LOG.warning("%s waits without the promised update: %s", offer["id"], error)
