"""One of fifty workers reads at a hundredth of the speed. The others must not feel it.

Phases without it and with it alternate in one run, under the same load; compared is the time from
handing off to the outcome at the other forty-nine. What waits for the slow one when it comes is more
than a relay may hold for one connection; afterwards a worker that reads as usual takes its place.

CONTROL: beside `testing.one_line.one_line`, everybody waits for the slow one.
"""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from types import TracebackType
from typing import Final, Self

import msgspec

from nodrop_proof.chaos import export
from nodrop_proof.chaos.caller import Caller
from nodrop_proof.chaos.callers import connected
from nodrop_proof.chaos.plan import Plan
from nodrop_proof.chaos.record import Record
from nodrop_proof.chaos.relay_process import RelayProcess, ServedRelay, rss_mb
from nodrop_proof.chaos.report import Report, quantile
from nodrop_proof.chaos.slow_reader import SlowReader
from nodrop_proof.chaos.worker import worker, working

WORKERS: Final = 50
LAST: Final = "worker-last"
"""The one that may be slow."""
PERIOD_SECONDS: Final = 0.5
"""Each worker is handed something so often."""
PHASE_SECONDS: Final = 10.0
PADDING: Final = 2_000
SLOW_PADDING: Final = 64_000
BURST: Final = 400
"""What waits for the slow one when it comes: more than a relay buffers for one connection."""
SLOWNESS: Final = 100
PATIENCE_SECONDS: Final = 60.0
"""Whoever is not served within this time is not served."""
FINISH_SECONDS_MAX: Final = 120.0


async def run(plan: Plan, progress: Callable[[int, int], None]) -> Report:
    """Let the slow one come `plan.count` times, for `plan.seconds` in all."""
    async with RelayProcess(plan.folder / "relay") as relay:
        return await endure(plan, progress, relay, pid=relay.pid)


async def endure(
    plan: Plan, progress: Callable[[int, int], None], relay: ServedRelay, *, pid: int
) -> Report:
    """Let the slow one come to `relay`, which the process `pid` serves."""
    began = time.monotonic()
    chance = random.Random(plan.seed)  # noqa: S311  # to be repeated, not to be secret
    seconds = PHASE_SECONDS if plan.seconds is None else plan.seconds / plan.count / 2
    with Record(plan.folder / "records.jsonl") as record:
        async with _Office(relay, record, chance, pid=pid) as office:
            for number in range(plan.count):
                await office.phase(seconds, slow=False)
                await office.phase(seconds, slow=True)
                progress(number + 1, plan.count)
    async with relay.operator() as me:
        verdict = await export.check(record.path, me)
    verdict = msgspec.structs.replace(verdict, wrong=(*verdict.wrong, *office.wrong))
    return verdict.report(
        plan, count=plan.count, seconds=time.monotonic() - began, extras=office.figures()
    )


class _Office:
    """The workers that read as usual, those who keep them busy, and what was measured."""

    def __init__(
        self, relay: ServedRelay, record: Record, chance: random.Random, *, pid: int
    ) -> None:
        self.wrong: list[str] = []
        self._relay = relay
        self._pid = pid
        self._record = record
        self._chance = chance
        self._callers: list[Caller] = []
        self._stack = AsyncExitStack()
        self._asks = itertools.count()
        self._waiting: set[asyncio.Task[None]] = set()
        self._latencies_ms: dict[bool, list[float]] = {False: [], True: []}
        self._memory_mb: dict[bool, list[float]] = {False: [], True: []}
        self._cut_off = 0

    async def __aenter__(self) -> Self:
        clients = await self._stack.enter_async_context(connected(self._relay))
        self._callers = [Caller(client, self._record) for client in clients]
        for number in range(WORKERS - 1):
            agent = worker(self._record, name=f"worker-{number}")
            await self._stack.enter_async_context(working(agent, self._relay))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._waiting:
            task.cancel()
        await self._stack.aclose()

    async def phase(self, seconds: float, *, slow: bool) -> None:
        """Measure for a while, with the slow one or without; then do what was left to it."""
        await asyncio.gather(*(self._feed_the_last() for _ in range(BURST)))
        async with self._slow_worker() if slow else nullcontext():
            await self._measure(seconds, slow=slow)
        async with (
            working(worker(self._record, name=LAST), self._relay),
            asyncio.timeout(FINISH_SECONDS_MAX),
        ):
            await asyncio.gather(*self._waiting)

    def figures(self) -> dict[str, float]:
        """Return what was measured."""
        measured = {
            "others_samples": sum(map(len, self._latencies_ms.values())),
            "cut_off": self._cut_off,
            "rss_mb_without": round(max(self._memory_mb[False], default=0), 1),
            "rss_mb_beside": round(max(self._memory_mb[True], default=0), 1),
        }
        without, beside = self._latencies_ms[False], self._latencies_ms[True]
        if not (without and beside):
            return measured  # then somebody waited in vain, and that is told
        p99_without, p99_beside = quantile(without, 0.99), quantile(beside, 0.99)
        return {
            **measured,
            "others_p50_ms_without": round(quantile(without, 0.5), 1),
            "others_p50_ms_beside": round(quantile(beside, 0.5), 1),
            "others_p99_ms_without": round(p99_without, 1),
            "others_p99_ms_beside": round(p99_beside, 1),
            "others_p99_ratio": round(p99_beside / p99_without, 2),
        }

    # --- the last of the workers ----------------------------------------------------------------

    @asynccontextmanager
    async def _slow_worker(self) -> AsyncGenerator[None]:
        usual_bytes_per_second = SLOW_PADDING / PERIOD_SECONDS
        reader = SlowReader(
            self._relay, agent=LAST, bytes_per_second=usual_bytes_per_second / SLOWNESS
        )
        reading = asyncio.create_task(reader.run())
        try:
            yield
            reader.end()
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            self._cut_off += reader.cut_off

    async def _feed_the_last(self) -> None:
        """Hand it something, and leave it to a task to wait for what becomes of it."""
        ask = f"slow-{next(self._asks)}"
        caller = self._chance.choice(self._callers)
        handoff = await caller.hand_off(ask, to=LAST, padding=SLOW_PADDING)
        waiting = asyncio.create_task(caller.outcome(ask, handoff))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    # --- the others -----------------------------------------------------------------------------

    async def _measure(self, seconds: float, *, slow: bool) -> None:
        until = time.monotonic() + seconds
        try:
            async with (
                asyncio.timeout(seconds + PATIENCE_SECONDS),
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._regularly(until, self._feed_the_last))
                group.create_task(self._regularly(until, lambda: self._weigh(slow=slow)))
                for number in range(WORKERS - 1):
                    name = f"worker-{number}"
                    group.create_task(self._regularly(until, partial(self._time, name, slow=slow)))
        except TimeoutError:
            beside = "beside the slow reader" if slow else "although all read as usual"
            self.wrong.append(f"somebody waited for {PATIENCE_SECONDS:g} s {beside}")

    async def _regularly(self, until: float, act: Callable[[], Awaitable[None]]) -> None:
        """Do something every period, not all at the same moment."""
        due = time.monotonic() + self._chance.uniform(0, PERIOD_SECONDS)
        while due < until:
            await asyncio.sleep(max(due - time.monotonic(), 0))
            await act()
            due += PERIOD_SECONDS

    async def _time(self, name: str, *, slow: bool) -> None:
        ask = f"usual-{next(self._asks)}"
        caller = self._chance.choice(self._callers)
        began = time.monotonic()
        await caller.outcome(ask, await caller.hand_off(ask, to=name, padding=PADDING))
        self._latencies_ms[slow].append((time.monotonic() - began) * 1_000)

    async def _weigh(self, *, slow: bool) -> None:
        memory = rss_mb(self._pid)
        if memory is not None:
            self._memory_mb[slow].append(memory)
