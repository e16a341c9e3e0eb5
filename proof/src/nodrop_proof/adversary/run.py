"""An adversary against a relay, and what it cost: others' latency, the relay's memory, restarts."""

import asyncio
import os
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from nodrop.client.client import Client
from nodrop_proof.adversary import agent, bystander, probed
from nodrop_proof.adversary.waves import BOUNDS, LARGE, NAME, WAVES
from nodrop_proof.bench.figures import quantile
from nodrop_proof.chaos.relay_process import RelayProcess, environment, rss_mb

P99_MS_MAX: Final = 250.0
PEAK_MB_MAX: Final = 1_024.0
AFTER_MAX: Final = 1.3
AFTER_SECONDS: Final = 60.0
WARM: Final = 12_000
"""Handoffs until the relay's caches are full. One that has just begun would grow without an adversary."""
BUSY_MS_MAX: Final = 150.0
"""Of the relay's event loop, in processor time, between two looks at what else there is to do."""
_END_SECONDS: Final = 5.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How long, and what."""

    seconds: float
    wave_seconds: float = 20.0
    warm: int = WARM
    """Handoffs before anything is measured."""
    before_seconds: float = 10.0
    """Honest work alone, that everything is measured against."""
    after_seconds: float = AFTER_SECONDS
    waves: Sequence[str] = tuple(WAVES)
    large: int = LARGE
    """Large bodies that it stores."""
    turns: int = 0
    """How often it goes through its waves; 0: until the time is over."""
    limits: Mapping[str, int] = {}
    """Bounds of the relay that are replaced: for a control, or so that a short run meets them."""
    bounds: Mapping[str, int] = {}
    """What it may then have of what `BOUNDS` names."""


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of wave did, over all its turns."""

    name: str
    handoffs: int
    """Handoffs of the bystanders that were answered meanwhile."""
    p99_ms: float
    worst_ms: float
    peak_mb: float
    rise_mb: float
    """Memory at its ends, less that at its beginnings."""
    busy_ms: float
    during: str
    """What the relay's loop was busy with for longest."""
    told: dict[str, int]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What it came to."""

    seconds: float
    load: tuple[float, float]
    """The machine's load average before and after."""
    handoffs: int
    p50_before_ms: float
    p99_before_ms: float
    p50_ms: float
    p99_ms: float
    before_mb: float
    peak_mb: float
    after_mb: float
    after_seconds: float
    """How long it took until the memory was within its bound again, or how long was waited."""
    restarts: int
    busy_ms: float
    """The longest that the relay's event loop was busy without a pause, in processor time."""
    waves: Sequence[Wave]
    seen: Mapping[str, int]
    """The most that the adversary was let have of what `BOUNDS` names."""
    bounds: Mapping[str, int]

    def exceeded(self) -> list[str]:
        """Return of what the adversary was let have too much."""
        return [
            f"{what}: {count}, at most {self.bounds[what]}"
            for what, count in self.seen.items()
            if count > self.bounds[what]
        ]

    def broken(self) -> list[str]:
        """Return which bounds do not hold, each with the waves that broke it."""
        after_max = AFTER_MAX * self.before_mb
        slow = [f"{w.name} {w.p99_ms:.0f}" for w in self.waves if w.p99_ms > P99_MS_MAX]
        large = [f"{w.name} {w.peak_mb:.0f}" for w in self.waves if w.peak_mb > PEAK_MB_MAX]
        rose = sorted(self.waves, key=lambda w: w.rise_mb, reverse=True)[:3]
        busy = [f"{w.name}: {w.during}" for w in self.waves if w.busy_ms > BUSY_MS_MAX]
        checks = {
            f"others' p99 is {self.p99_ms:.0f} ms, at most {P99_MS_MAX:.0f} ({', '.join(slow)})": (
                self.p99_ms > P99_MS_MAX or not self.handoffs
            ),
            f"memory rose to {self.peak_mb:.0f} MiB, at most {PEAK_MB_MAX:.0f} ({', '.join(large)})": (
                self.peak_mb > PEAK_MB_MAX
            ),
            f"memory stayed at {self.after_mb:.0f} MiB, at most {after_max:.0f} "
            f"({', '.join(f'{w.name} {w.rise_mb:+.0f}' for w in rose)})": self.after_mb > after_max,
            f"the relay ended {self.restarts} times": self.restarts > 0,
            f"its loop was busy for {self.busy_ms:.0f} ms, at most {BUSY_MS_MAX:.0f} "
            f"({'; '.join(busy)})": self.busy_ms > BUSY_MS_MAX,
        }
        return self.exceeded() + [said for said, is_broken in checks.items() if is_broken]


class _Watch:
    """What is seen while it goes on."""

    def __init__(self) -> None:
        self.wave = ""
        self.took: dict[str, list[float]] = {}
        self.told: dict[str, Counter[str]] = {}
        self.peaks: dict[str, float] = {}
        self.rises: dict[str, float] = {}
        self.busy: dict[str, probed.Busy] = {}
        self.warm = asyncio.Event()
        """Set once the bystanders have said something."""
        self.seen: dict[str, int] = {}
        self.seen_at = time.monotonic()
        """When the bystanders last said something."""

    def count_silence(self) -> None:
        """Count what bystanders that were not answered would have waited, one handoff a second."""
        silent = time.monotonic() - self.seen_at
        waited = [seconds * 1_000.0 for seconds in range(2, int(silent))]
        self.took.setdefault(self.wave, []).extend(waited)

    def count_busy(self, told: Iterable[probed.Busy]) -> None:
        """Know how long the relay's loop was busy in this wave."""
        known = self.busy.get(self.wave, probed.Busy(busy_ms=0.0))
        self.busy[self.wave] = max((known, *told), key=lambda busy: busy.busy_ms)

    def all_took(self) -> list[float]:
        """Return every handoff's time while the adversary was there, sorted."""
        return sorted(ms for wave, took in self.took.items() if wave for ms in took)


async def run(plan: Plan, folder: Path, progress: Callable[[str], None]) -> Report:
    """Let it happen."""
    watch = _Watch()
    began = os.getloadavg()[0]
    home = folder / "home"
    home.mkdir(mode=0o700)
    (home / probed.LIMITS).write_bytes(msgspec.json.encode(plan.limits))
    async with RelayProcess(home, program=probed.__name__) as relay:
        async with relay.operator() as me:
            alice, bob, mallory = [
                await _token(me, name) for name in (bystander.REQUESTER, bystander.WORKER, NAME)
            ]
        arguments = (str(plan.wave_seconds), str(plan.large), str(plan.turns), *plan.waves)
        warm = str(plan.warm)
        async with _started(folder, bystander.__name__, relay.url, alice, bob, warm) as honest:
            seeing = asyncio.create_task(_see(honest, watch))
            await watch.warm.wait()
            await asyncio.sleep(plan.before_seconds)
            before_mb = rss_mb(relay.pid) or 0.0
            progress(f"before: {before_mb:.0f} MiB")
            async with _started(folder, agent.__name__, relay.url, mallory, *arguments) as hostile:
                hearing = asyncio.create_task(_hear(hostile, watch, progress))
                await _sample(relay, watch, plan.seconds, hearing)
                busy_ms = max(busy.busy_ms for busy in watch.busy.values())
                hearing.cancel()
            watch.count_silence()
            watch.wave = ""
            ended_at = time.monotonic()
            after_mb = await _settled(relay, AFTER_MAX * before_mb, plan.after_seconds)
            after_seconds = time.monotonic() - ended_at
            seeing.cancel()
            await asyncio.gather(seeing, hearing, return_exceptions=True)
        restarts = int(relay.ended)
    return _report(
        watch,
        seconds=plan.seconds,
        load=(began, os.getloadavg()[0]),
        before_mb=before_mb,
        after_mb=after_mb,
        after_seconds=after_seconds,
        restarts=restarts,
        busy_ms=busy_ms,
        bounds={**BOUNDS, **plan.bounds},
    )


async def _token(me: Client, name: str) -> str:
    return (await me.call("create_token", {"agent": name}))["token"]


@asynccontextmanager
async def _started(folder: Path, module: str, *arguments: str) -> AsyncGenerator[Process]:
    """Run one of our programs while the block runs."""
    with (folder / f"{module}.log").open("ab") as complaints:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=complaints,
            env=environment(folder / "elsewhere"),
            start_new_session=True,
            limit=2**24,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _see(honest: Process, watch: _Watch) -> None:
    assert honest.stdout is not None, "a pipe"
    while line := await honest.stdout.readline():
        second = msgspec.json.decode(line, type=bystander.Second)
        watch.took.setdefault(watch.wave, []).extend(second.took_ms)
        watch.seen_at = time.monotonic()
        watch.warm.set()


async def _hear(hostile: Process, watch: _Watch, progress: Callable[[str], None]) -> None:
    assert hostile.stdout is not None, "a pipe"
    while line := await hostile.stdout.readline():
        said = msgspec.json.decode(line, type=agent.Told)
        watch.seen.update(said.seen)
        if said.told is None:
            watch.wave = said.wave
            continue
        watch.told.setdefault(said.wave, Counter()).update(said.told)
        progress(_line(_wave(watch, said.wave)))


async def _sample(
    relay: RelayProcess, watch: _Watch, seconds: float, until: asyncio.Task[None]
) -> None:
    """Look at the relay's memory for so long, or until it or the adversary is gone."""
    ends_at = time.monotonic() + seconds
    probe = probed.Probed(relay.home)
    probe.news()  # of the time before
    before = rss_mb(relay.pid) or 0.0
    while time.monotonic() < ends_at and not relay.ended and not until.done():
        seen = rss_mb(relay.pid) or 0.0
        watch.count_busy(probe.news())
        watch.rises[watch.wave] = watch.rises.get(watch.wave, 0.0) + seen - before
        before = seen
        watch.peaks[watch.wave] = max(watch.peaks.get(watch.wave, 0.0), seen)
        await asyncio.sleep(0.1)


async def _settled(relay: RelayProcess, bound_mb: float, seconds: float) -> float:
    """Return the relay's memory once it is within a bound, or after so many seconds."""
    ends_at = time.monotonic() + seconds
    seen = rss_mb(relay.pid) or 0.0
    while seen > bound_mb and time.monotonic() < ends_at and not relay.ended:
        await asyncio.sleep(0.5)
        seen = rss_mb(relay.pid) or 0.0
    return seen


def _wave(watch: _Watch, name: str) -> Wave:
    took = sorted(watch.took.get(name, ()))
    busy = watch.busy.get(name, probed.Busy(busy_ms=0.0))
    return Wave(
        name=name,
        handoffs=len(took),
        p99_ms=quantile(took, 0.99) if took else 0.0,
        worst_ms=took[-1] if took else 0.0,
        peak_mb=watch.peaks.get(name, 0.0),
        rise_mb=watch.rises.get(name, 0.0),
        busy_ms=busy.busy_ms,
        during=busy.during,
        told=dict(watch.told.get(name, Counter()).most_common()),
    )


def _line(wave: Wave) -> str:
    """Return a line about a wave that fits a terminal."""
    told = " ".join(f"{code} {count}" for code, count in wave.told.items())
    return (
        f"{wave.name:<11}p99 {wave.p99_ms:>5.0f} ms  worst {wave.worst_ms:>6.0f} ms"
        f"  {wave.peak_mb:>5.0f} MiB  busy {wave.busy_ms:>3.0f} ms  {told}"
    )[:80]


def _report(
    watch: _Watch,
    *,
    seconds: float,
    load: tuple[float, float],
    before_mb: float,
    after_mb: float,
    after_seconds: float,
    restarts: int,
    busy_ms: float,
    bounds: Mapping[str, int],
) -> Report:
    calm, took = sorted(watch.took.get("", ())), watch.all_took()
    return Report(
        seconds=seconds,
        load=load,
        handoffs=len(took),
        p50_before_ms=quantile(calm, 0.5) if calm else 0.0,
        p99_before_ms=quantile(calm, 0.99) if calm else 0.0,
        p50_ms=quantile(took, 0.5) if took else 0.0,
        p99_ms=quantile(took, 0.99) if took else 0.0,
        before_mb=before_mb,
        peak_mb=max(watch.peaks.values(), default=0.0),
        after_mb=after_mb,
        after_seconds=after_seconds,
        restarts=restarts,
        busy_ms=busy_ms,
        seen=watch.seen,
        bounds=bounds,
        waves=[_wave(watch, name) for name in watch.told],
    )
