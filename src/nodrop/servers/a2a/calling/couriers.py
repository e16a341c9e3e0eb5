"""The couriers of a relay: one for every agent that lives elsewhere, as operators add and drop them."""

import asyncio
import logging
from collections.abc import Callable

from nodrop.model.errors import InvalidRequestError, NodropError
from nodrop.relay.directory.reach import Reach
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.a2a.addresses import Addresses
from nodrop.servers.a2a.calling.courier import Courier
from nodrop.servers.a2a.calling.remote import Remote
from nodrop.servers.a2a.calling.visit import WorkWay

log = logging.getLogger("nodrop.a2a")

_AGAIN_MS = 5_000


class Couriers:
    """Whoever carries something elsewhere."""

    def __init__(
        self, relay: Relay, way: Callable[[Caller], WorkWay], *, addresses: Addresses
    ) -> None:
        self._relay = relay
        self._way = way
        self._addresses = addresses
        self._running: dict[tuple[str, str], tuple[Reach, asyncio.Task[None]]] = {}
        self._closed = False

    def look(self) -> None:
        """Begin for whoever was added or moved, end for whoever was dropped."""
        if self._closed:
            return
        wanted = {(reach.team, reach.agent): reach for reach in self._relay.reaches.elsewhere()}
        for key, (reach, task) in list(self._running.items()):
            if wanted.get(key) != reach:
                task.cancel()
                del self._running[key]
        for key, reach in wanted.items():
            if key not in self._running:
                task = asyncio.create_task(self._carry(reach), name=f"nodrop courier {reach.agent}")
                self._running[key] = (reach, task)

    async def check(self, url: str) -> None:
        """Refuse an address at which nothing would be delivered, for want of leave.

        Raises:
            InvalidRequestError: it is a private one.
        """
        try:
            await self._addresses.check(url, path="a2a")
        except InvalidRequestError as error:
            wanted = "Allow this one address with `--private` (`private` over HTTP)."
            raise InvalidRequestError(
                error.detail, next_step=wanted, errors=error.errors
            ) from error

    async def close(self) -> None:
        """Stop; the next run goes on."""
        self._closed = True
        tasks = [task for _, task in self._running.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, reach: Reach) -> None:
        """Carry for an agent, again and again: a relay that refuses now may not in a moment."""
        while True:
            way = self._way(Caller(team=reach.team, agent=reach.agent))
            remote = Remote(reach, self._addresses)
            try:
                await Courier(reach, way, remote, self._relay.clock).run()
            except NodropError as error:
                log.warning("the courier of %s begins anew: %s", reach.agent, error)
            except Exception:
                log.exception("the courier of %s failed, and begins anew", reach.agent)
            finally:
                await way.close()
            clock = self._relay.clock
            await clock.sleep_until(clock.now() + _AGAIN_MS)
