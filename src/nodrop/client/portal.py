"""From a thread into an event loop and back: what blocking twins are made of."""

import asyncio
import concurrent.futures
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")


class Portal:
    """An event loop that other threads may ask to run something."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._calls: set[concurrent.futures.Future[Any]] = set()

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the loop and return what it returns. If we are interrupted, so is it."""
        if _running_loop() is self._loop:
            work.close()
            raise RuntimeError("a blocking call on the event loop would wait for itself")
        with self._lock:  # what has begun can be interrupted
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._calls.add(future)
        try:
            return future.result()
        finally:
            with self._lock:
                self._calls.discard(future)
            future.cancel()

    async def awaited(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the loop and return what it returns, for callers on this or another loop."""
        if _running_loop() is self._loop:
            return await work
        with self._lock:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._calls.add(future)
        try:
            return await asyncio.wrap_future(future)
        finally:
            with self._lock:
                self._calls.discard(future)

    def interrupt(self) -> None:
        """Cancel what threads wait for."""
        with self._lock:
            waiting = list(self._calls)
        for future in waiting:
            future.cancel()


class LoopThread:
    """An event loop in a thread of its own, for programs that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self.portal = Portal(self._loop)
        self._thread = threading.Thread(target=self._run, name="nodrop", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


class Twin:
    """Base of the blocking twins: does on a loop what `inner` does there."""

    def __init__(self, inner: Any, portal: Portal) -> None:
        self.inner = inner
        """The asynchronous original."""
        self.portal = portal


def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the blocking twin of an asynchronous method: same name, same arguments."""

    @functools.wraps(method)
    def twin(self: Twin, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.portal.call(method(self.inner, *args, **kwargs))

    return twin


def blocking_as(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    wrap: Callable[[R, Portal], W],
) -> Callable[Concatenate[Any, P], W]:
    """Return the blocking twin of a method whose answer has a twin as well."""

    @functools.wraps(method)
    def twin(self: Twin, *args: P.args, **kwargs: P.kwargs) -> W:
        return wrap(self.portal.call(method(self.inner, *args, **kwargs)), self.portal)

    return twin


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
