"""The figures of a relay through the meter of OpenTelemetry: those of `/metrics`, by like names."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider

from nodrop.relay.upkeep.figures import Figure

SCOPE: Final = "nodrop"
_SECONDS_MAX: Final = 5.0

Reading = Callable[[], Awaitable[Sequence[Figure]]]


async def observe(provider: MeterProvider, reading: Reading) -> None:
    """Have `provider` ask for every figure there is when it collects.

    It collects in a thread of its own, and `reading` is carried out on this loop.
    """
    loop = asyncio.get_running_loop()
    meter = provider.get_meter(SCOPE)

    async def read(name: str) -> list[Observation]:
        found = [figure for figure in await reading() if figure.name == name]
        return [Observation(n, of) for figure in found for of, n in figure.samples]

    def callback_for(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observed(_: CallbackOptions) -> Iterable[Observation]:
            asked = asyncio.run_coroutine_threadsafe(read(name), loop)
            return asked.result(timeout=_SECONDS_MAX)

        return observed

    for figure in await reading():
        make = meter.create_observable_counter if figure.counter else meter.create_observable_gauge
        make(
            f"nodrop.{figure.name}",
            callbacks=[callback_for(figure.name)],
            description=figure.about,
        )
