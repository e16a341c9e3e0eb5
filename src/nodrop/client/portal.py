"""From a thread into an event loop and back: what blocking twins are made of."""

import asyncio
import concurrent.futures
import functools
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from nodrop.model.errors import InvalidRequestError

P = ParamSpec("P")
R = TypeVar("R")
W = TypeVar("W")


class Portal:
    """An event loop that other threads may ask to run something."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._calls: set[concurrent.futures.Future[Any]] = set()
        self._closed = False

    def call(self, work: Coroutine[Any, Any, R]) -> R:
        """Run `work` on the loop and return what it returns. If we are interrupted, so is it."""
        if _running_loop() is self._loop:
            work.close()
            raise RuntimeError("a blocking call on the event loop would wait for itself")
        future = self._begin(work)
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
        future = self._begin(work)
        try:
            return await asyncio.wrap_future(future)
        finally:
            with self._lock:
                self._calls.discard(future)

    @property
    def is_open(self) -> bool:
        """Whether anything can be asked, from this process."""
        return not self._closed and not self._is_forked

    def close(self) -> None:
        """Refuse whatever is asked from now on: the loop is about to end."""
        with self._lock:
            self._closed = True

    def _begin(self, work: Coroutine[Any, Any, R]) -> "concurrent.futures.Future[R]":
        with self._lock:  # what has begun can be interrupted
            if self.is_open and not self._loop.is_closed():
                future = asyncio.run_coroutine_threadsafe(work, self._loop)
                self._calls.add(future)
                return future
        work.close()
        if self._is_forked:  # threads stay behind: it would wait for one that is not here
            raise InvalidRequestError(
                "the connection is that of the process which this one was forked from",
                next_step="Connect in each process, after the fork.",
            )
        raise InvalidRequestError("the connection was closed", next_step="Connect again.")

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process

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
        """End the loop and its thread, if they are this process's."""
        if not self.portal.is_open:
            return
        self.portal.close()
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
