"""Which relay pushes: one of those that share a store, for all of them, until it is gone.

Needs nothing of the SDK, which is loaded when there is something to push.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from nodrop.log.port import Key
from nodrop.model.errors import NodropError
from nodrop.relay.coordination.webhooks import Webhook
from nodrop.relay.relay import Relay

if TYPE_CHECKING:
    from nodrop.servers.a2a.pushing import Pushing

log = logging.getLogger("nodrop.a2a")

DUTY: Final = "webhooks"
AGAIN_SECONDS: Final = 1.0
"""How long a store that did not say is left alone. By the time that really passes, like the claims."""


class Pushers:
    """This relay among those that could push."""

    def __init__(self, relay: Relay, pushing: Callable[[], Awaitable["Pushing"]]) -> None:
        """Take part.

        Args:
            relay: what is pushed from.
            pushing: returns what pushes, loaded.
        """
        self._webhooks = relay.webhooks
        self._duties = relay.duties
        self._load = pushing
        self._pushing: Pushing | None = None
        self._changed: set[Key] = set()
        self._news = asyncio.Event()

    async def watch(self) -> None:
        """Push what there is to push whenever that falls to this relay."""
        if find_spec("a2a") is not None:  # else it is for another
            await self._duties.hold(DUTY, self._push)

    async def _push(self) -> None:
        try:
            with self._webhooks.telling(self._heard):
                while True:
                    try:
                        await self._keep_up()
                    except NodropError as error:
                        log.warning("what is to be pushed is not known: %s", error)
                        await asyncio.sleep(AGAIN_SECONDS)
        finally:
            await self._look_after({}, self._about())

    def _heard(self, handoff: Key) -> None:
        self._changed.add(handoff)
        self._news.set()

    async def _keep_up(self) -> None:
        """Look after everything, and from then on after what has changed."""
        hooks: defaultdict[Key, list[Webhook]] = defaultdict(list)
        for hook in await self._webhooks.pending():
            hooks[hook.handoff].append(hook)
        await self._look_after(hooks, self._about() | hooks.keys())
        while True:
            await self._news.wait()
            self._news.clear()
            changed, self._changed = self._changed, set()
            for handoff in changed:
                pending = await self._webhooks.pending(handoff)
                await self._look_after({handoff: pending}, {handoff})

    async def _look_after(self, hooks: dict[Key, list[Webhook]], handoffs: set[Key]) -> None:
        if self._pushing is None and any(hooks.values()):
            self._pushing = await self._load()
        if self._pushing is not None:
            for handoff in handoffs:
                self._pushing.look_after(handoff, hooks.get(handoff, ()))

    def _about(self) -> set[Key]:
        return set() if self._pushing is None else set(self._pushing.about())
