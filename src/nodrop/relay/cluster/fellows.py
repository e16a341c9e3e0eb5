"""The other engines on a store: what they wrote, who they hear of, what they left behind.

Everything an engine keeps in memory besides the store is either read again here when another engine
changes it, or counted anew now and then. What is missed here is only late: the store decides.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

from nodrop.log.port import Attending, ConflictError, Fleet, Key, News, Roll
from nodrop.model.errors import NodropError
from nodrop.model.limits import SECOND
from nodrop.relay.loop import Engine
from nodrop.relay.ports import Clock

log = logging.getLogger("nodrop.relay")

T = TypeVar("T")

BEAT_SECONDS: Final = 1.0
"""How often an engine is counted, and looks what the others have left behind. By the time that
really passes, like the waits of a connection: nothing is decided by it."""
POLL_SECONDS: Final = 0.25
"""How late an engine reads what the others wrote when no hint comes through."""
FEED_MS: Final = 5 * SECOND
"""How often inboxes are looked through that somebody waits at, hint or no hint."""
RECOUNT_MS: Final = 5 * SECOND
"""How often what is merely counted is counted anew, where others have written."""
SILENT_MAX: Final = 256


class Here(Protocol):
    """What an engine tells the others, and what is done with what they tell."""

    def attending(self) -> dict[Key, Attending]:
        """Return the agents that are connected here, or were lately heard of."""
        ...

    def attended(self, roll: Roll) -> None:
        """Know whom the others hear of."""
        ...

    async def take_in(self, news: News) -> None:
        """Act on what another engine wrote."""
        ...

    async def recount(self) -> None:
        """Count anew what is only counted."""
        ...

    async def make_sure(self) -> None:
        """Know what is kept, where a batch that would have changed it came to nothing."""
        ...

    def doubt(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Call `ask` before somebody is refused whom another engine may just have let in."""
        ...


class Fellows:
    """Keeps one engine up to date with the others."""

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
        """Be one of several engines; return since when there has been one. Comes before all reading."""
        roll = await self._fleet.join()
        self._here.attended(roll)
        return roll.up_since

    def start(self) -> None:
        """Begin to follow."""
        self._engine.on_conflict = self._decide_again
        self._here.doubt(self.ask)
        self._tasks = [
            asyncio.create_task(self._forever(self._read, "reading what others wrote")),
            asyncio.create_task(self._forever(self._beat, "being counted")),
        ]

    async def stop(self) -> None:
        """Follow no longer."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._fleet.leave()

    async def catch_up(self) -> None:
        """Take in everything that others have written until now."""
        async with self._reading:
            await self._take_in()

    async def _decide_again(self) -> None:
        """Know everything that the next decision rests on: the last one came to nothing."""
        await self.catch_up()
        await self._here.make_sure()

    async def ask(self) -> None:
        """Take in what others have written until now; all who ask meanwhile share the next reading.

        For strangers, so that however many there are, the store is asked one question at a time.
        """
        if self._asked is None:
            self._asked = asyncio.create_task(self._answer())
        await asyncio.shield(self._asked)

    async def surely(self, reply: Callable[[], Awaitable[T]]) -> T:
        """Return what `reply` returns; where it refuses, again if others have changed something.

        What is written is checked against what they changed. A refusal writes nothing, and would
        be for good although this engine merely had not heard.
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
            self._engine.hear_of(news.handoffs, news.processes)
            self._fleet.heard(news)
            self._learnt += news.known is not None
            self._uncounted = True

    async def _forever(self, do: Callable[[], Awaitable[None]], what: str) -> None:
        while True:
            try:
                await do()
            except (NodropError, ConflictError) as error:
                log.warning("%s failed, and is tried again: %s", what, error)
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
        self._engine.up_since(roll.up_since)
        self._here.attended(roll)
        # Processes that were connected to an engine that is gone are nobody's but ours.
        heartbeats = self._engine.limits.lease_heartbeats
        silent = await self._fleet.silent(now=now, heartbeats=heartbeats, limit=SILENT_MAX)
        self._engine.hear_of((), silent)
        if now - self._fed_at >= FEED_MS:
            self._fed_at = now
            wanting = self._engine.takers.wanting()
            if wanting:
                self._engine.feed(await self._fleet.waiting(wanting))
        if self._uncounted and now - self._counted_at >= RECOUNT_MS:
            self._counted_at, self._uncounted = now, False
            await self._here.recount()
        await asyncio.sleep(BEAT_SECONDS)
