"""Work on a delivery is a span where OpenTelemetry is, and what is handed on names it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import nodrop
from nodrop.client import tracing

WAIT = "20s"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """An application that has configured OpenTelemetry, for the length of a test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


@asynccontextmanager
async def working(agent: nodrop.Agent) -> AsyncGenerator[nodrop.Client]:
    serving = asyncio.create_task(agent.serve(":memory:", grace=0))
    async with nodrop.connect(":memory:", agent="asker") as me:
        yield me
        agent.stop()
        await serving


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODROP_HOME", str(tmp_path))


def ids(span: ReadableSpan) -> tuple[str, str, str | None]:
    context = span.get_span_context()
    assert context is not None
    parent = f"{span.parent.span_id:016x}" if span.parent else None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}", parent


async def test_a_handlers_span_is_below_its_handoff_and_above_what_it_hands_on(
    exporter: InMemorySpanExporter,
) -> None:
    agent = nodrop.Agent("worker")

    @agent.handler
    async def work(task: nodrop.Task) -> str:
        below = await task.client.hand_off("helper", parent_id=task.id)
        return below.id

    with trace.get_tracer("app").start_as_current_span("request") as request:
        async with working(agent) as me:
            handoff = await me.hand_off("worker")
            below = await handoff.result(wait=WAIT)
            log = await me.log(type="handoff.offered.v1")
    [offered] = [entry for entry in log if entry.handoff_id == below]
    [process] = [span for span in exporter.get_finished_spans() if span.name == "process worker"]
    trace_id = f"{request.get_span_context().trace_id:032x}"
    _, of_handoff = str(handoff.traceparent).split("-")[1:3]
    assert ids(process)[0] == trace_id
    assert ids(process)[2] == of_handoff
    assert process.kind is SpanKind.CONSUMER
    assert dict(process.attributes or {})["messaging.message.id"] == handoff.id
    assert str(handoff.traceparent).split("-")[1] == trace_id, "it was handed off in a request"
    assert offered.data["traceparent"].split("-")[1:3] == [trace_id, ids(process)[1]]


async def test_a_handler_in_a_thread_is_in_the_trace_too(exporter: InMemorySpanExporter) -> None:
    agent = nodrop.Agent("worker")

    @agent.handler
    def work() -> str | None:
        return tracing.current_traceparent()

    async with working(agent) as me:
        handoff = await me.hand_off("worker")
        seen = await handoff.result(wait=WAIT)
    [process] = exporter.get_finished_spans()
    assert str(seen).split("-")[1:3] == list(ids(process)[:2])
    assert str(seen).split("-")[1] == str(handoff.traceparent).split("-")[1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (nodrop.Fail("secret", code="no_access"), "no_access"),
        (nodrop.Reject("secret"), "rejected"),
        (ValueError("broken"), "ValueError"),
    ],
)
async def test_a_handler_that_fails_says_so_in_its_span(
    exporter: InMemorySpanExporter, error: Exception, code: str
) -> None:
    agent = nodrop.Agent("worker")

    @agent.handler
    async def work() -> None:
        raise error

    async with working(agent) as me:
        handoff = await me.hand_off("worker", attempts_max=1)
        with pytest.raises(nodrop.HandoffFailed):
            await handoff.result(wait=WAIT)
    [process] = exporter.get_finished_spans()
    assert process.status.status_code is StatusCode.ERROR
    assert dict(process.attributes or {})["error.type"] == code
    assert "secret" not in process.to_json()


async def test_without_opentelemetry_everything_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_installed", lambda: None)
    agent = nodrop.Agent("worker")

    @agent.handler
    async def work(task: nodrop.Task) -> str | None:
        return task.traceparent

    async with working(agent) as me:
        handoff = await me.hand_off("worker")
        assert await handoff.result(wait=WAIT) == handoff.traceparent
    assert tracing.current_traceparent() is None


@pytest.mark.parametrize("installed", ["no provider", "not installed"])
async def test_what_a_handler_hands_on_is_in_its_trace_though_nobody_records_spans(
    monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    if installed == "not installed":
        monkeypatch.setattr(tracing, "_installed", lambda: None)
    agent = nodrop.Agent("worker")

    @agent.handler
    async def work(task: nodrop.Task) -> str | None:
        below = await task.client.hand_off("helper")
        return below.traceparent

    async with working(agent) as me:
        handoff = await me.hand_off("worker")
        below = await handoff.result(wait=WAIT)
    assert str(below).split("-")[1] == str(handoff.traceparent).split("-")[1]
    assert below != handoff.traceparent


async def test_spans_of_a_provider_that_is_not_the_process_own_are_in_the_trace_too() -> None:
    agent = nodrop.Agent("worker")
    provider = TracerProvider(shutdown_on_exit=False)
    begun: list[str] = []

    @agent.handler
    async def work(_: nodrop.Task) -> None:
        with provider.get_tracer("app").start_as_current_span("step") as span:
            begun.append(f"{span.get_span_context().trace_id:032x}")

    async with working(agent) as me:
        handoff = await me.hand_off("worker")
        await handoff.result(wait=WAIT)
    assert begun == [str(handoff.traceparent).split("-")[1]]
