"""Spans and metrics: one span for each handoff, with ids that anybody can find again."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from nodrop import app
from nodrop.log.memory import MemoryStore
from nodrop.outbound.telemetry import door, meters, settings
from nodrop.outbound.telemetry.follower import SETTLES_WITHIN_MS, Follower
from nodrop.outbound.telemetry.spans import Spans
from nodrop.relay.handoffs.endings import Endings
from nodrop.relay.relay import Relay, operator_of
from nodrop.servers.inprocess import InProcessTransport
from nodrop.testing.clock import FakeClock

PATIENCE_SECONDS = 20
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"


class Collector(InMemorySpanExporter):
    """An exporter that fails as often as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.fails:
            self.fails -= 1
            return SpanExportResult.FAILURE
        return super().export(spans)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.get_finished_spans())


class Office:
    """A relay whose spans are followed, and the agents at its door."""

    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.collector = Collector()
        self.store = MemoryStore()
        self.relay: Relay
        self._home = home

    async def open(self) -> None:
        self.relay = await Relay.start(
            self.store,
            clock=self.clock,
            ids=app.SystemIds(),
            signer=app.KeyFile(self._home / "relay.pem"),
        )
        await self.relay.ensure_team("default")

    def follower(self) -> Follower:
        return Follower(
            self.relay.endings,
            "default",
            spans=Spans(Resource.create({"service.name": "relay"})),
            exporter=self.collector,
            clock=self.clock,
            gather_ms=1_000,
        )

    async def member(self, name: str) -> InProcessTransport:
        secret = f"nd_{name}"
        await self.relay.ensure_token("default", agent=name, role="agent", secret=secret)
        return InProcessTransport(self.relay, await self.relay.authenticate(secret))

    async def offer(self, **fields: Any) -> dict[str, Any]:
        offer = {"title": "secret words", **fields}
        return (await (await self.member("asker")).call("offer", offer))["handoff"]

    async def work(self, name: str, ending: str = "complete", **said: Any) -> dict[str, Any]:
        worker = await self.member(name)
        [delivery] = (await worker.call("take", {}))["deliveries"]
        handoff, attempt = delivery["handoff"]["id"], delivery["attempt"]
        self.clock.advance(1_000)
        await worker.call("ack", {"attempt": attempt}, handoff=handoff)
        self.clock.advance(1_000)
        await worker.call("update", {"attempt": attempt, "status": "half"}, handoff=handoff)
        self.clock.advance(1_000)
        await worker.call(ending, {"attempt": attempt, **said}, handoff=handoff)
        return delivery["handoff"]

    async def settle(self, handoff_id: str) -> None:
        await (await self.member("asker")).call("settle", {}, handoff=handoff_id)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncGenerator[Office]:
    office = Office(tmp_path)
    await office.open()
    yield office
    await office.relay.stop()


def hexadecimal(span: ReadableSpan) -> tuple[str, str]:
    context = span.get_span_context()
    assert context is not None
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


async def test_a_handoff_is_a_span_and_its_rungs_are_events(office: Office) -> None:
    follower = office.follower()
    await follower.begin()
    began = office.clock.now()
    offered = await office.offer(to="worker", idempotency_key="k1", traceparent=TRACEPARENT)
    await office.work("worker")
    office.clock.advance(1_000)
    await office.settle(offered["id"])
    await follower.flush()
    [span] = office.collector.spans
    assert hexadecimal(span) == (TRACE, offered["id"].replace("-", "")[-16:])
    assert parent_of(span) == CALLER
    assert (span.name, span.kind) == ("handoff worker", SpanKind.PRODUCER)
    assert span.status.status_code is StatusCode.OK
    rungs = [(event.name, (event.timestamp // 1_000_000) - began) for event in span.events]
    assert rungs == [
        ("stored", 0),
        ("delivered", 0),
        ("acknowledged", 1_000),
        ("updated", 2_000),
        ("finished", 3_000),
        ("outcome_delivered", 4_000),
        ("settled", 4_000),
    ]
    assert (span.start_time, span.end_time) == (began * 1_000_000, (began + 3_000) * 1_000_000)
    attributes = dict(span.attributes or {})
    assert attributes == {
        "messaging.system": "nodrop",
        "messaging.operation.name": "handoff",
        "messaging.operation.type": "send",
        "messaging.destination.name": "worker",
        "messaging.message.id": offered["id"],
        "messaging.message.conversation_id": offered["id"],
        "nodrop.team": "default",
        "nodrop.ref": "asker/k1",
        "nodrop.from": "asker",
        "nodrop.origin": "asker",
        "nodrop.priority": "medium",
        "nodrop.state": "completed",
        "nodrop.attempts": 1,
        "nodrop.tries": 0,
        "nodrop.leg": 1,
        "nodrop.legs": 1,
    }
    assert span.resource.attributes["service.name"] == "relay"
    assert "secret words" not in span.to_json()


async def test_each_leg_has_the_one_before_it_for_a_parent(office: Office) -> None:
    follower = office.follower()
    await follower.begin()
    await office.offer(to="one", then=[{"to": "two"}, {"to": "three"}])
    legs = [await office.work(name) for name in ("one", "two", "three")]
    await follower.flush()
    spans = office.collector.spans
    ids = [leg["id"].replace("-", "")[-16:] for leg in legs]
    assert [hexadecimal(span)[1] for span in spans] == ids
    assert [parent_of(span) for span in spans] == [None, *ids[:2]]
    assert {hexadecimal(span)[0] for span in spans} == {legs[0]["id"].replace("-", "")}
    assert [leg["traceparent"].split("-")[2] for leg in legs] == ids, "what agents were given"


async def test_what_failed_says_so_and_what_carries_it_on_is_linked_to_it(office: Office) -> None:
    follower = office.follower()
    await follower.begin()
    dead = await office.offer(to="worker", traceparent=TRACEPARENT)
    await office.work("worker", "fail", code="no_access", reason="secret words")
    asker = await office.member("asker")
    await asker.call("redrive", {}, handoff=dead["id"])
    await office.work("worker")
    await follower.flush()
    failed, again = office.collector.spans
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "no_access"
    assert dict(failed.attributes or {})["error.type"] == "no_access"
    assert parent_of(again) == parent_of(failed) == CALLER
    [link] = again.links
    assert f"{link.context.span_id:016x}" == hexadecimal(failed)[1]
    assert "secret words" not in failed.to_json()


async def test_the_members_of_a_group_are_below_it(office: Office) -> None:
    follower = office.follower()
    await follower.begin()
    asker = await office.member("asker")
    offers = {name: {"to": name} for name in ("one", "two")}
    fields = {"offers": offers, "join": "all", "traceparent": TRACEPARENT}
    await asker.call("offer_group", fields)
    for name in offers:
        await office.work(name)
    await follower.flush()
    spans = {dict(span.attributes or {})["messaging.destination.name"]: span
             for span in office.collector.spans}  # fmt: skip
    assert spans.keys() == {"one", "two", "relay"}
    assert {hexadecimal(span)[0] for span in spans.values()} == {TRACE}
    group = hexadecimal(spans["relay"])[1]
    assert [parent_of(spans[name]) for name in ("relay", "one", "two")] == [CALLER, group, group]


async def test_a_trace_that_is_not_sampled_makes_no_spans(office: Office) -> None:
    follower = office.follower()
    await follower.begin()
    await office.offer(to="worker", traceparent=f"00-{TRACE}-{CALLER}-00")
    handed = await office.work("worker")
    await follower.flush()
    assert office.collector.spans == []
    assert handed["traceparent"].endswith("-00"), "whoever works on it is told not to either"


async def killed_after_the_first(office: Office) -> None:
    """Two handoffs end, and the follower is gone before it has seen the second."""
    first = office.follower()
    await first.begin()
    for _ in range(2):
        offered = await office.offer(to="worker")
        await office.work("worker")
        await office.settle(offered["id"])
        if not office.collector.spans:
            await first.flush()
    assert len(office.collector.spans) == 1
    second = office.follower()
    await second.begin()
    await second.flush()


async def test_another_follower_goes_on_where_the_last_one_was(office: Office) -> None:
    await killed_after_the_first(office)
    assert len(office.collector.spans) == 2
    assert len({hexadecimal(span) for span in office.collector.spans}) == 2


async def test_a_follower_beyond_the_log_goes_on_at_its_end(office: Office) -> None:
    await office.relay.endings.keep("default", "spans", 10_000)
    follower = office.follower()
    await follower.begin()
    offered = await office.offer(to="worker")
    await office.work("worker")
    await office.settle(offered["id"])
    await follower.flush()
    assert len(office.collector.spans) == 1


async def test_a_follower_whose_log_was_put_back_begins_again(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    follower = office.follower()
    await follower.begin()
    offered = await office.offer(to="worker")
    await office.work("worker")
    await office.settle(offered["id"])
    follower._read = 10_000  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  # as of a log that is gone
    running = asyncio.create_task(follower.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not office.collector.spans:
            office.clock.advance(1_000)
            await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "begin again where the store says" in caplog.text


async def test_without_a_cursor_that_is_kept_spans_would_be_missing(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def forget(*_: Any) -> None:
        pass

    monkeypatch.setattr(Endings, "keep", forget)
    await killed_after_the_first(office)
    assert len(office.collector.spans) == 1


async def test_what_the_collector_does_not_take_is_sent_again(office: Office) -> None:
    office.collector.fails = 2
    follower = office.follower()
    await follower.begin()
    offered = await office.offer(to="worker")
    await office.work("worker")
    await office.settle(offered["id"])
    following = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not office.collector.spans:
                office.clock.advance(1_000)
                await asyncio.sleep(0)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert len(office.collector.spans) == 1
    assert office.collector.fails == 0


async def test_a_span_waits_a_minute_for_its_last_rung_and_no_longer(office: Office) -> None:
    follower = office.follower()
    await follower.begin()
    await office.offer(to="worker")
    await office.work("worker")
    ended, waited = office.clock.now(), 0
    following = asyncio.create_task(follower.run())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not office.collector.spans:
                waited = office.clock.now() - ended
                office.clock.advance(1_000)
                await asyncio.sleep(0)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    assert waited >= SETTLES_WITHIN_MS - 1_000
    assert [event.name for event in office.collector.spans[0].events][-1] == "finished"


async def test_the_meter_tells_the_figures_of_metrics(office: Office) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    await meters.observe(provider, lambda: office.relay.figures(operator_of("default")))
    await office.offer(to="worker")
    data: Any = await asyncio.to_thread(reader.get_metrics_data)
    [metrics] = [scope.metrics for each in data.resource_metrics for scope in each.scope_metrics]
    told = {
        (metric.name, tuple(sorted(point.attributes.items()))): point.value
        for metric in metrics
        for point in metric.data.data_points
    }
    team = ("team", "default")
    assert told["nodrop.entries", (team, ("type", "handoff.offered.v1"))] == 1
    assert told["nodrop.unfinished_handoffs", (("agent", "worker"), team)] == 1
    assert told["nodrop.log_size", (team,)] == (await office.store.head("default")).seq
    assert told["nodrop.commits", ()] >= 2
    await asyncio.to_thread(provider.shutdown)


@pytest.mark.parametrize(
    ("variables", "signals"),
    [
        ({}, set[str]()),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c"}, {"traces", "metrics"}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, {"traces"}),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"}, {"metrics"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_TRACES_EXPORTER": "none"}, {"metrics"}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"}, set[str]()),
    ],
)
def test_the_standard_variables_decide(variables: dict[str, str], signals: set[str]) -> None:
    wanted = settings.wanted(variables)
    assert {name for name in ("traces", "metrics") if getattr(wanted, name)} == signals


async def test_a_relay_without_the_extra_says_what_to_install(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nodrop.outbound.telemetry.exporting", None)
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    telling = door.telling(office.relay, team="default", clock=office.clock, environment=variables)
    async with telling as notes:
        [note] = notes
    assert "pip install 'nodrop[relay]'" in note


async def test_a_relay_says_that_it_does_not_speak_grpc(office: Office) -> None:
    variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    }
    telling = door.telling(office.relay, team="default", clock=office.clock, environment=variables)
    async with telling as notes:
        assert "not grpc" in notes[0]
