"""A store that lives on an event loop of its own, in a thread, and seems to be here.

For loops of virtual time, on which no socket may be waited for: what is asked is asked there, and
this thread stands still until it is answered.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar, cast

from nodrop.log.port import Key, Store, Transaction
from nodrop.model.handoff import Handoff

T = TypeVar("T")

ANSWER_SECONDS_MAX: Final = 60.0


class StoreElsewhere:
    """Asks a store on another loop; structurally a `Store`."""

    def __init__(self, open_store: Callable[[], Coroutine[Any, Any, Store]]) -> None:
        """Start the thread, and open the store there."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._store = self._ask(open_store())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def asked(*args: Any, **kwargs: Any) -> Any:
            return self._ask(method(*args, **kwargs))

        return asked

    def cached(self, key: Key) -> Handoff | None:
        """Return what is at hand there, which takes no waiting."""
        return self._store.cached(key)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        """Open a unit of work there."""
        # Its beginning and its end must be in one task there, as they would be here.
        work, over = self._ask(self._begin())
        try:
            yield cast("Transaction", _TransactionElsewhere(work, self._ask))
        except BaseException as error:
            self._ask(_end(over, error))
            raise
        self._ask(_end(over, None))

    async def close(self) -> None:
        """Close the store, and end the thread."""
        if not self._loop.is_closed():
            self._ask(self._store.close())
            self._stop()

    def crash(self) -> None:
        """Let go of the store at once, as a crash would, if it is one that can."""
        self._ask(self._drop())
        self._stop()

    async def _drop(self) -> None:
        drop: Callable[[], None] = getattr(self._store, "crash", lambda: None)
        drop()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(ANSWER_SECONDS_MAX)
        self._loop.close()

    async def _begin(self) -> tuple[Transaction, "_Over"]:
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[Transaction] = loop.create_future()
        ended: asyncio.Future[BaseException | None] = loop.create_future()

        async def work() -> None:
            async with self._store.transaction() as transaction:
                begun.set_result(transaction)
                error = await ended
                if error is not None:
                    raise error

        task = asyncio.create_task(work())
        await asyncio.wait({task, begun}, return_when=asyncio.FIRST_COMPLETED)
        if not begun.done():
            await task  # it could not begin, and says why
        return begun.result(), (task, ended)

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(ANSWER_SECONDS_MAX)


_Over = tuple["asyncio.Task[None]", "asyncio.Future[BaseException | None]"]


async def _end(over: _Over, error: BaseException | None) -> None:
    task, ended = over
    ended.set_result(error)
    await asyncio.wait({task})
    if error is None:
        task.result()
    else:
        task.exception()


class _TransactionElsewhere:
    """A unit of work there; structurally a `Transaction`."""

    def __init__(self, work: Transaction, ask: Callable[..., Any]) -> None:
        self._work = work
        self._ask = ask

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._work, name)

        async def asked(*args: Any, **kwargs: Any) -> Any:
            return self._ask(method(*args, **kwargs))

        return asked
