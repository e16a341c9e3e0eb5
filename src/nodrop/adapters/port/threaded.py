"""Runs that block: each in a thread of its own, its steps read from the event loop.

A thread cannot be stopped. When nobody reads its steps any more it is told so, and left behind; what
it still says is dropped here, and what it still asks is refused by `current`.
"""

import asyncio
import contextvars
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")

_CARRYING: Final[WeakSet[asyncio.AbstractEventLoop]] = WeakSet()


@dataclass(frozen=True, slots=True)
class Returned:
    """The last thing a run says: what it returned."""

    value: Any


class Stage:
    """What a blocking run can do from its thread."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether nobody waits for this run any more."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Have it end when it next looks."""
        self._stopped.set()

    def say(self, step: Any) -> None:
        """Tell how it goes."""
        if not self.stopped:
            self._tell(step)


async def steps(work: Callable[[Stage], Any], *, name: str) -> AsyncGenerator[Any]:
    """Run `work` in a thread; yield what it says, and at last what it returned, as `Returned`."""
    loop = asyncio.get_running_loop()
    said: asyncio.Queue[Any] = asyncio.Queue()

    def tell(item: Any) -> None:
        try:
            loop.call_soon_threadsafe(said.put_nowait, item)
        except RuntimeError:
            return  # the loop is gone, and with it whoever waited

    stage = Stage(tell)
    context = contextvars.copy_context()

    def body() -> None:
        try:
            stage.say(Returned(context.run(work, stage)))
        except BaseException as error:  # noqa: BLE001  # raised where it is read
            stage.say(error)

    threading.Thread(target=body, name=name, daemon=True).start()
    try:
        while True:
            item = await said.get()
            if isinstance(item, BaseException):
                raise item
            yield item
            if isinstance(item, Returned):
                return
    finally:
        stage.stop()


class ContextExecutor(ThreadPoolExecutor):
    """Threads that know what their caller worked on."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn` in the caller's context."""
        return super().submit(contextvars.copy_context().run, fn, *args, **kwargs)


def carry_context() -> None:
    """Have plain functions that this event loop runs in threads know what they are part of.

    `asyncio.to_thread` carries the context; a framework that calls `run_in_executor` does not.
    """
    loop = asyncio.get_running_loop()
    if loop not in _CARRYING:
        _CARRYING.add(loop)
        loop.set_default_executor(ContextExecutor(thread_name_prefix="nodrop"))
