"""Callers repeat the cycle; one that is lost or wrong fails the measurement."""

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from nodrop_proof.bench import cycle as cycles
from nodrop_proof.bench import driving
from nodrop_proof.bench.cycle import Ask
from nodrop_proof.bench.driving import Measure, Window

SHORT = Window(warm_up_seconds=0.05, seconds=0.2)
IMPATIENT = Window(warm_up_seconds=0.05, seconds=0.2, drain_seconds_max=0.1)
LOST = 3
"""Which cycle does not come back as it should: every caller begins at least one after the first."""


class System:
    """Answers at once, but for one cycle."""

    def __init__(self, fault: str | None) -> None:
        self._fault = fault
        self._numbers = itertools.count(1)

    async def cycle(self, key: str, asked: Ask) -> Any:
        assert asked["key"] == key
        await asyncio.sleep(0.001)
        if next(self._numbers) == LOST:
            match self._fault:
                case "lost":
                    await asyncio.Event().wait()
                case "wrong":
                    return cycles.result(cycles.payload("another"))
                case "refused":
                    raise ConnectionError("gone")
                case _:
                    pass
        return cycles.result(asked)

    def blocking(self, key: str, asked: Ask) -> Any:
        if self._fault == "lost" and next(self._numbers) == LOST:
            threading.Event().wait()  # a thread that nobody joins
        return asyncio.run(self.cycle(key, asked))


def cpu() -> Iterator[float]:
    """An account that is read at the beginning of the window and at its end."""
    yield from (10.0, 10.5)


async def driven(fault: str | None, callers: int = 4, window: Window = SHORT) -> Measure:
    account = cpu()
    return await driving.drive(
        System(fault).cycle, callers=callers, window=window, cpu=lambda: next(account)
    )


def driven_threads(fault: str | None, window: Window = SHORT) -> Measure:
    account = cpu()
    return driving.drive_threads(
        System(fault).blocking, callers=3, window=window, cpu=lambda: next(account)
    )


async def test_what_comes_back_is_counted_and_timed() -> None:
    measure = await driven(None)
    assert measure.failure is None
    assert measure.cycles > 0
    assert 0 < measure.p50_ms <= measure.p99_ms
    assert measure.seconds >= SHORT.seconds
    assert measure.cpu_seconds == 0.5


def test_threads_are_measured_likewise() -> None:
    measure = driven_threads(None)
    assert measure.failure is None
    assert measure.cycles > 0
    assert measure.cpu_seconds == 0.5


async def test_a_window_lasts_until_a_cycle_has_ended() -> None:
    slow = asyncio.Event()
    first = True

    async def cycle(_: str, asked: Ask) -> Any:
        nonlocal first
        if not first:  # the first one only shows that somebody is there
            await slow.wait()
        first = False
        await asyncio.sleep(0.001)
        return cycles.result(asked)

    account = iter([0.0, 0.0])
    window = Window(warm_up_seconds=0, seconds=0.01, drain_seconds_max=20)
    asyncio.get_running_loop().call_later(0.1, slow.set)
    measure = await driving.drive(cycle, callers=1, window=window, cpu=lambda: next(account))
    assert measure.failure is None
    assert measure.cycles >= 1
    assert measure.seconds > window.seconds


async def test_a_cycle_that_never_comes_back_fails_the_measurement() -> None:
    measure = await driven("lost", window=IMPATIENT)
    assert measure.failure is not None
    assert "never came back" in measure.failure
    assert measure.cycles == 0


def test_a_cycle_that_a_thread_waits_for_in_vain_fails_the_measurement() -> None:
    measure = driven_threads("lost", window=IMPATIENT)
    assert measure.failure is not None
    assert "never came back" in measure.failure
    assert measure.cycles == 0


async def test_an_answer_to_something_else_fails_the_measurement() -> None:
    measure = await driven("wrong")
    assert measure.failure is not None
    assert "WrongAnswerError" in measure.failure
    assert measure.cycles == 0


async def test_a_refusal_fails_the_measurement() -> None:
    assert (await driven("refused")).failure == "ConnectionError: gone"


def test_rates_are_per_second_and_processor_time_per_cycle() -> None:
    measure = Measure(cycles=600, seconds=3.0, cpu_seconds=1.2)
    assert measure.rate == 200.0
    assert measure.cpu_ms == pytest.approx(2.0)


# --- what travels ---


def test_payload_and_result_have_the_sizes_that_are_claimed() -> None:
    asked = cycles.payload(cycles.fresh_key())
    assert len(_json(asked)) == 430
    assert len(_json(cycles.result(asked))) == 220


def test_no_two_keys_are_alike() -> None:
    assert len({cycles.fresh_key() for _ in range(1_000)}) == 1_000


def _json(value: Ask) -> str:
    return f'{{"key":"{value["key"]}","text":"{value["text"]}"}}'
