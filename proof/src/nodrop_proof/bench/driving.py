"""Callers that repeat the cycle, and the measure that is taken of them in a window of time.

A cycle that does not come back, or comes back with something else, fails the whole measurement:
losing work is fast.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench.cycle import BlockingCycle, Cycle
from nodrop_proof.bench.figures import quantile

FIRST_SECONDS_MAX: Final = 60.0
"""How long the first cycle may take: the worker may still be on its way."""
DRAIN_SECONDS_MAX: Final = 20.0
"""How long callers may take to finish what they have begun when the window is over."""

_PIECE_SECONDS: Final = 0.01


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """How long to warm up, and how long to measure."""

    warm_up_seconds: float = 1.0
    seconds: float = 3.0
    drain_seconds_max: float = DRAIN_SECONDS_MAX


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen in a window."""

    cycles: int = 0
    seconds: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    cpu_seconds: float = 0.0
    failure: str | None = None
    """Why none of this counts."""

    @property
    def rate(self) -> float:
        """Cycles per second."""
        return self.cycles / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Processor time per cycle, over all processes of the system."""
        return self.cpu_seconds / self.cycles * 1_000


class _Tally:
    """What the callers have to tell."""

    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.begun = 0
        self.done = 0
        self.wrong: list[str] = []
        self.over = False

    def measure(self, began: "_Mark", ended: "_Mark") -> Measure:
        seen = sorted(self.latencies[began.done : ended.done])
        lost = self.begun - self.done - len(self.wrong)
        failure = None
        if self.wrong:
            failure = self.wrong[0]
        elif lost:
            failure = f"{lost} of {self.begun} cycles never came back"
        elif not seen:
            failure = "no cycle came to its end"
        if failure is not None:
            return Measure(failure=failure)
        return Measure(
            cycles=len(seen),
            seconds=ended.at - began.at,
            p50_ms=quantile(seen, 0.5) * 1_000,
            p99_ms=quantile(seen, 0.99) * 1_000,
            cpu_seconds=ended.cpu - began.cpu,
        )

    def pieces(self, window: Window) -> Iterator[float]:
        """Yield how long to wait: the window, and then on until at least one cycle has ended."""
        before = len(self.latencies)
        until = time.monotonic() + window.seconds + window.drain_seconds_max
        yield window.seconds
        while len(self.latencies) == before and not self.over and time.monotonic() < until:
            yield _PIECE_SECONDS

    def mark(self, cpu: Callable[[], float]) -> "_Mark":
        return _Mark(done=len(self.latencies), at=time.perf_counter(), cpu=cpu())


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Where a window begins or ends."""

    done: int
    at: float
    cpu: float


async def drive(cycle: Cycle, *, callers: int, window: Window, cpu: Callable[[], float]) -> Measure:
    """Have `callers` tasks repeat the cycle and return what was seen in the window."""
    tally = _Tally()

    async def once() -> None:
        key = cycles.fresh_key()
        asked = cycles.payload(key)
        tally.begun += 1
        began = time.perf_counter()
        try:
            cycles.check(asked, await cycle(key, asked))
        except Exception as error:  # noqa: BLE001  # whatever a client library raises fails the run
            tally.wrong.append(f"{type(error).__name__}: {error}"[:300])
            tally.over = True
            return
        tally.latencies.append(time.perf_counter() - began)
        tally.done += 1

    async def caller() -> None:
        while not tally.over:
            await once()

    try:
        async with asyncio.timeout(FIRST_SECONDS_MAX):
            await once()
    except TimeoutError:
        return Measure(failure="the first cycle never came back")
    if tally.wrong:
        return Measure(failure=tally.wrong[0])
    tasks = [asyncio.create_task(caller()) for _ in range(callers)]
    await asyncio.sleep(window.warm_up_seconds)
    began = tally.mark(cpu)
    for seconds in tally.pieces(window):
        await asyncio.sleep(seconds)
    ended = tally.mark(cpu)
    tally.over = True
    _, pending = await asyncio.wait(tasks, timeout=window.drain_seconds_max)
    measure = tally.measure(began, ended)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    return measure


def drive_threads(
    cycle: BlockingCycle, *, callers: int, window: Window, cpu: Callable[[], float]
) -> Measure:
    """Have `callers` threads repeat the cycle and return what was seen in the window."""
    tally = _Tally()
    lock = threading.Lock()

    def once() -> None:
        key = cycles.fresh_key()
        asked = cycles.payload(key)
        with lock:
            tally.begun += 1
        began = time.perf_counter()
        try:
            cycles.check(asked, cycle(key, asked))
        except Exception as error:  # noqa: BLE001  # whatever a client library raises fails the run
            tally.wrong.append(f"{type(error).__name__}: {error}"[:300])
            tally.over = True
            return
        took = time.perf_counter() - began
        with lock:
            tally.latencies.append(took)
            tally.done += 1

    def caller() -> None:
        while not tally.over:
            once()

    first = threading.Thread(target=once, daemon=True)
    first.start()
    first.join(FIRST_SECONDS_MAX)
    if first.is_alive():
        return Measure(failure="the first cycle never came back")
    if tally.wrong:
        return Measure(failure=tally.wrong[0])
    threads = [threading.Thread(target=caller, daemon=True) for _ in range(callers)]
    for thread in threads:
        thread.start()
    time.sleep(window.warm_up_seconds)
    began = tally.mark(cpu)
    for seconds in tally.pieces(window):
        time.sleep(seconds)
    ended = tally.mark(cpu)
    tally.over = True
    until = time.monotonic() + window.drain_seconds_max
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0))
    return tally.measure(began, ended)
