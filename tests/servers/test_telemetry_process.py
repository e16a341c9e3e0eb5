"""What a relay process tells a collector over OTLP, across kill -9: one trace over five legs."""

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp.web
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

import nodrop
from nodrop_proof.chaos.relay_process import RelayProcess

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PATIENCE_SECONDS = 60

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too


class Collector:
    """Takes OTLP over HTTP, as a collector does."""

    def __init__(self) -> None:
        self.spans: dict[str, Any] = {}
        """By their ids: what comes again is the same."""
        self.metrics: dict[str, Any] = {}
        self.services: set[str] = set()
        self.changed = asyncio.Event()
        self.url = ""

    async def traces(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        told = ExportTraceServiceRequest.FromString(await _body(request))
        for resource in told.resource_spans:
            self.services |= {
                a.value.string_value
                for a in resource.resource.attributes
                if a.key == "service.name"
            }
            for scope in resource.scope_spans:
                self.spans |= {span.span_id.hex(): span for span in scope.spans}
        self.changed.set()
        return _answered(ExportTraceServiceResponse())

    async def figures(self, request: aiohttp.web.Request) -> aiohttp.web.Response:
        told = ExportMetricsServiceRequest.FromString(await _body(request))
        for resource in told.resource_metrics:
            for scope in resource.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}
        self.changed.set()
        return _answered(ExportMetricsServiceResponse())

    async def until_spans(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(self.spans) < count:
                self.changed.clear()
                await self.changed.wait()


async def _body(request: aiohttp.web.Request) -> bytes:
    body = await request.read()
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


def _answered(message: Any) -> aiohttp.web.Response:
    return aiohttp.web.Response(
        body=message.SerializeToString(), content_type="application/x-protobuf"
    )


@asynccontextmanager
async def collecting() -> AsyncGenerator[Collector]:
    collector = Collector()
    web = aiohttp.web.Application()
    web.router.add_post("/v1/traces", collector.traces)
    web.router.add_post("/v1/metrics", collector.figures)
    runner = aiohttp.web.AppRunner(web)
    await runner.setup()
    try:
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        collector.url = f"http://{host}:{port}"
        yield collector
    finally:
        await runner.cleanup()


async def test_one_trace_over_five_legs_with_the_relay_killed_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
        monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
        names = [f"agent_{number}" for number in range(1, 6)]
        async with (
            RelayProcess(tmp_path / "relay") as relay,
            nodrop.connect(relay.url, agent="asker", home=relay.home) as asker,
        ):
            handoff = await asker.hand_off(
                to=names[0],
                title="five",
                then=[{"to": name} for name in names[1:]],
                traceparent=f"00-{TRACE}-{CALLER}-01",
            )
            given = [await _worked(relay, name) for name in names[:2]]
            await collector.until_spans(1)
            await relay.kill()
            await relay.start()
            given += [await _worked(relay, name) for name in names[2:]]
            await handoff.outcome(wait="30s", of="chain")
            shown = await asker.trace(handoff.correlation_id)
            await collector.until_spans(5)
    contexts = [str(each).split("-") for each in given]
    assert {context[1] for context in contexts} == {TRACE}, "as the legs were delivered"
    assert [leg.traceparent for leg in shown] == given, "as `trace` shows them"
    assert {span.trace_id.hex() for span in collector.spans.values()} == {TRACE}
    order = [context[2] for context in contexts]
    assert set(order) == collector.spans.keys(), "five spans, however often they were sent"
    parents = [collector.spans[span_id].parent_span_id.hex() for span_id in order]
    assert parents == [CALLER, *order[:-1]]
    assert [collector.spans[span_id].name for span_id in order] == [
        f"handoff {name}" for name in names
    ]
    for span_id in order:
        rungs = [event.name for event in collector.spans[span_id].events]
        assert rungs[:3] == ["stored", "delivered", "acknowledged"]
        assert rungs[-1] == "settled"
    assert collector.services == {"nodrop"}
    assert {"nodrop.entries", "nodrop.log_size", "nodrop.commits"} <= collector.metrics.keys()


async def _worked(relay: RelayProcess, name: str) -> str | None:
    """Do one leg, and return the context that it was handed over with."""
    agent = nodrop.Agent(name)
    seen: list[str | None] = []

    @agent.handler
    async def work(task: nodrop.Task) -> str:
        seen.append(task.traceparent)
        agent.stop()
        return name

    async with asyncio.timeout(PATIENCE_SECONDS):
        await agent.serve(relay.url, home=relay.home)
    return seen[0]
