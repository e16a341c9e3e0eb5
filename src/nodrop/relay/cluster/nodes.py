"""The other nodes on a store: a node applies what they wrote, and takes over what they left behind.

State that a node keeps in memory besides the store is either read again when another node changes it,
or recounted every few seconds. A missed change only delays: the append decides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from nodrop.log.port import Attending, ConflictError, Fleet, Key, News, Roll
from nodrop.model.errors import NodropError
from nodrop.model.limits import SECOND
from nodrop.relay.engine import Engine
from nodrop.relay.ports import Clock

log = logging.getLogger("nodrop.relay")

T = TypeVar("T")

BEAT_SECONDS: Final = 1.0
"""How often a node renews its presence, and looks for processes of nodes that are gone. Wall time, as for
the timeouts of a connection: no decision rests on it."""
POLL_SECONDS: Final = 0.25
"""How often a node reads what others wrote where no notification arrives."""
FEED_MS: Final = 5 * SECOND
"""How often the inboxes of local consumers are checked, with or without a notification."""
RECOUNT_MS: Final = 5 * SECOND
"""How often counts are read again, where other nodes have written."""
SILENT_MAX: Final = 256


class Here(Protocol):
    """The parts of this node that other nodes are told about, and that act on their changes."""

    def attending(self) -> dict[Key, Attending]:
        """Return the agents that are connected to this node, or were seen lately."""
        ...

    def attended(self, roll: Roll) -> None:
        """Take over the presence of agents at other nodes."""
        ...

    async def take_in(self, news: News) -> None:
        """Apply what another node wrote."""
        ...

    async def recount(self) -> None:
        """Read the counts again."""
        ...

    async def make_sure(self) -> None:
        """Read kept records again after a batch that would have changed them failed."""
        ...


class Nodes:
    """Keeps this node up to date with the others."""

    def __init__(self, fleet: Fleet, engine: Engine, here: Here, *, clock: Clock) -> None:
        self._fleet = fleet
        self._engine = engine
        self._here = here
        self._clock = clock
        self._reading = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._told: dict[Key, Attending] = {}
        self._fed_at = 0
        self._counted_at = 0
        self._uncounted = False
        self._asked: asyncio.Task[None] | None = None
        self._learnt = 0
        """How often others have changed what decisions rest on."""

    async def join(self) -> int:
        """Register this node; return since when there has been a node. Comes before all reading."""
        roll = await self._fleet.join()
        self._here.attended(roll)
        return roll.up_since

    def start(self) -> None:
        """Begin to follow the other nodes."""
        self._tasks = [
            asyncio.create_task(self._forever(self._read, "reading what other nodes wrote")),
            asyncio.create_task(self._forever(self._beat, "renewing the presence of this node")),
        ]

    async def stop(self) -> None:
        """Stop following, and leave the cluster."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._fleet.leave()

    async def catch_up(self) -> None:
        """Apply everything that other nodes have written until now."""
        async with self._reading:
            await self._take_in()

    async def decide_again(self) -> None:
        """Catch up before a batch is decided again: its append lost a race."""
        await self.catch_up()
        await self._here.make_sure()

    async def ask(self) -> None:
        """Apply what other nodes have written until now; concurrent callers share the next read.

        Unauthenticated callers come this way, so that any number of them costs one read at a time.
        """
        if self._asked is None:
            self._asked = asyncio.create_task(self._answer())
        await asyncio.shield(self._asked)

    async def surely(self, reply: Callable[[], Awaitable[T]]) -> T:
        """Return what `reply` returns; after a refusal, try once more if other nodes changed something.

        An append is compared with what they wrote. A refusal appends nothing, so it could rest on
        state that is out of date.
        """
        learnt = self._learnt
        try:
            return await reply()
        except NodropError as error:
            if error.retryable:
                raise
            await self.ask()
            if self._learnt == learnt:
                raise
        return await reply()

    async def _answer(self) -> None:
        async with self._reading:
            self._asked = None  # what is written from now on is for another reading
            await self._take_in()

    async def _take_in(self) -> None:
        for news in await self._fleet.news():
            await self._here.take_in(news)
            self._engine.apply_changes(news.handoffs, news.processes)
            self._fleet.heard(news)
            self._learnt += news.known is not None
            self._uncounted = True

    async def _forever(self, do: Callable[[], Awaitable[None]], what: str) -> None:
        while True:
            try:
                await do()
            except (NodropError, ConflictError) as error:
                log.warning("%s failed, trying again in 1 s: %s", what, error)
                await asyncio.sleep(BEAT_SECONDS)

    async def _read(self) -> None:
        await self._fleet.hint(seconds=POLL_SECONDS)
        await self.catch_up()

    async def _beat(self) -> None:
        now = self._clock.now()
        here = self._here.attending()
        changed = [a for key, a in here.items() if self._told.get(key) != a]
        roll = await self._fleet.attend(changed)
        self._told = {} if roll.forgotten else here
        self._engine.served_since(roll.up_since)
        self._here.attended(roll)
        # Processes of nodes that are gone have to be checked by the others.
        heartbeats = self._engine.limits.lease_heartbeats
        silent = await self._fleet.silent(now=now, heartbeats=heartbeats, limit=SILENT_MAX)
        self._engine.apply_changes((), silent)
        if now - self._fed_at >= FEED_MS:
            self._fed_at = now
            consumers = self._engine.takers.with_credit()
            if consumers:
                self._engine.feed(await self._fleet.waiting(consumers))
        if self._uncounted and now - self._counted_at >= RECOUNT_MS:
            self._counted_at, self._uncounted = now, False
            await self._here.recount()
        await asyncio.sleep(BEAT_SECONDS)
