"""A relay's exporters: spans of what has ended, and its figures, over OTLP while it runs.

Where to, with which headers and how patiently, the official exporters read from their variables.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource

from nodrop.model.errors import NodropError
from nodrop.outbound.telemetry import meters
from nodrop.outbound.telemetry.follower import Follower
from nodrop.outbound.telemetry.settings import Wanted
from nodrop.outbound.telemetry.spans import Spans
from nodrop.relay.ports import Clock
from nodrop.relay.relay import Relay, operator_of

log = logging.getLogger("nodrop.telemetry")

_FLUSH_SECONDS_MAX: Final = 3.0
"""How long the end of a relay waits for a collector, for spans and for figures."""


@asynccontextmanager
async def exporting(
    relay: Relay, wanted: Wanted, *, team: str, clock: Clock
) -> AsyncGenerator[None]:
    """Export what is wanted while the block runs."""
    resource = Resource.create({SERVICE_NAME: wanted.service} if wanted.service else None)
    async with AsyncExitStack() as stack:
        if wanted.metrics:
            await stack.enter_async_context(_figures(relay, team, resource))
        if wanted.traces:
            await stack.enter_async_context(_spans(relay, wanted, team, resource, clock))
        yield


@asynccontextmanager
async def _spans(
    relay: Relay, wanted: Wanted, team: str, resource: Resource, clock: Clock
) -> AsyncGenerator[None]:
    exporter = OTLPSpanExporter()
    follower = Follower(
        relay.endings,
        team,
        spans=Spans(resource),
        exporter=exporter,
        clock=clock,
        gather_ms=wanted.gather_ms,
    )
    duty = relay.duties.hold(f"spans/{team}", follower.run)
    following = asyncio.create_task(duty, name="nodrop spans")
    try:
        yield
        try:
            async with asyncio.timeout(_FLUSH_SECONDS_MAX):
                await follower.flush()
        except (NodropError, TimeoutError):
            log.warning("some spans are not out; the next start goes on with them")
    finally:
        exporter.shutdown()  # lets go of a collector that does not answer
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@asynccontextmanager
async def _figures(relay: Relay, team: str, resource: Resource) -> AsyncGenerator[None]:
    exporter = OTLPMetricExporter()
    reader = PeriodicExportingMetricReader(exporter)
    provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    try:
        await meters.observe(provider, lambda: relay.figures(operator_of(team)))
        yield
    finally:
        # Collects once more, from this loop; a collector that does not answer is let go of.
        ending = asyncio.ensure_future(asyncio.to_thread(provider.shutdown))
        done, _ = await asyncio.wait({ending}, timeout=_FLUSH_SECONDS_MAX)
        if not done:
            exporter.shutdown()  # pyright: ignore[reportUnknownMemberType]  # the SDK leaves its kwargs open
            await asyncio.gather(ending, return_exceptions=True)
