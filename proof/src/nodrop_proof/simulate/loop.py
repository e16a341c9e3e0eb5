"""An event loop without a wall clock: where another would wait, this one is idle.

Nothing here sleeps. When no callback is ready, whoever waits in `settled` goes on; when nobody
does, the loop's own time jumps to its next timer. With no threads and no sockets in it, a program
runs in the same order every time.
"""

import asyncio
import selectors
from collections import deque
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")


TURNS_MAX: Final = 10_000
"""Turns of the loop in one moment, after which it counts as never coming to rest."""


class RestlessError(Exception):
    """Something goes on and on, though no time passes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs callbacks in the order in which they became ready, and never waits."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._turns = 0
        self._settling: deque[asyncio.Future[None]] = deque()
        super().__init__(_Impatient(self))

    def time(self) -> float:
        """Return the loop's own time, in seconds from its beginning."""
        return self._seconds

    async def settled(self) -> None:
        """Return when everything that could happen now has happened.

        Raises:
            RestlessError: it never has.
        """
        idle: asyncio.Future[None] = self.create_future()
        self._settling.append(idle)
        await idle

    def idle(self, seconds: float | None) -> None:
        """Go on, though no callback is ready: `seconds` to the next timer, None without one."""
        self._turns = 0
        while self._settling:
            waiting = self._settling.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return
        if seconds is None:
            raise RuntimeError("everybody waits, and nobody for a time")
        self._seconds += seconds

    def busy(self) -> None:
        """Take note of a turn with callbacks that are ready."""
        self._turns += 1
        if self._turns > TURNS_MAX and self._settling:
            self._turns = 0
            self._settling.popleft().set_exception(RestlessError())


class _Impatient(selectors.SelectSelector):
    """Looks whether something is ready; does not wait for it."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            self._loop.busy()
        else:
            self._loop.idle(timeout)
        return ready


def running() -> VirtualLoop:
    """Return the loop that runs this."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop), "this belongs on a virtual loop"
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Return what `main` returns, run on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
