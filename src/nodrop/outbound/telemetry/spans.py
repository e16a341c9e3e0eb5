"""A handoff that has ended, as a span: its rungs are events, what it was handed on from its parent.

Times and ids come from the log, so that the same handoff is the same span whoever makes it. What
agents wrote (titles, payloads, reasons) stays in the relay.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import AttributeValue

from nodrop.model.handoff import DEAD, Handoff, State
from nodrop.protocol import traces
from nodrop.protocol.entries import Entry
from nodrop.protocol.showing import ref
from nodrop.relay.handoffs.endings import ENDINGS, Ended

SCOPE: Final = "nodrop"
SYSTEM: Final = "nodrop"
_NS_PER_MS: Final = 1_000_000
_EVENTS: Final[Mapping[str, str]] = {
    "handoff.offered.v1": "stored",
    "handoff.delivered.v1": "delivered",
    "handoff.queued.v1": "queued",
    "handoff.queue_lapsed.v1": "queue_lapsed",
    "handoff.accepted.v1": "acknowledged",
    "handoff.updated.v1": "updated",
    "handoff.step_recorded.v1": "step_recorded",
    "handoff.blocked.v1": "blocked",
    "handoff.answered.v1": "answered",
    "handoff.returned.v1": "returned",
    "handoff.reassigned.v1": "reassigned",
    "handoff.nudged.v1": "nudged",
    "handoff.escalated.v1": "escalated",
    "handoff.outcome_delivered.v1": "outcome_delivered",
    "handoff.settled.v1": "settled",
    **dict.fromkeys(ENDINGS, "finished"),
}
"""Which entries are events of a span, and what they are called there."""
_DETAILS: Final = ("attempt", "reason", "clock", "when", "name", "asked", "recipient")
"""What of an entry's data is told with its event: names and numbers, no words."""


class Spans:
    """Makes spans of what has ended."""

    def __init__(self, resource: Resource) -> None:
        self._ids = _GivenIds()
        self._made = _Made()
        provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(self._made)
        self._tracer = provider.get_tracer(SCOPE)

    def made(self, ended: Ended) -> list[ReadableSpan]:
        """Return the span of a handoff; none where its trace is not sampled."""
        handoff = ended.handoff
        assert handoff.outcome is not None, "it has ended"
        self._ids.next = traces.traceparent(handoff)
        span = self._tracer.start_span(
            f"handoff {handoff.recipient}",
            context=_above(handoff),
            kind=SpanKind.PRODUCER,
            attributes=_attributes(handoff),
            links=_links(handoff),
            start_time=handoff.stored_at * _NS_PER_MS,
        )
        for entry in ended.entries:
            if name := _EVENTS.get(entry.type):
                span.add_event(name, _details(entry), timestamp=entry.at * _NS_PER_MS)
        if handoff.state in DEAD:
            span.set_status(Status(StatusCode.ERROR, _why(handoff)))
        elif handoff.state is State.COMPLETED:
            span.set_status(Status(StatusCode.OK))
        span.end(handoff.outcome.at * _NS_PER_MS)
        return self._made.taken()


def _above(handoff: Handoff) -> Context:
    """Return where it was handed off: the span that was named, or that of the handoff before it."""
    if handoff.traceparent is None:
        return Context()
    return set_span_in_context(NonRecordingSpan(_context(handoff.traceparent)), Context())


def _context(traceparent: str) -> SpanContext:
    return SpanContext(
        trace_id=int(traces.trace_id_of(traceparent), 16),
        span_id=int(traces.span_id_of(traceparent), 16),
        is_remote=True,
        trace_flags=TraceFlags(int(traceparent[-2:], 16)),
    )


def _attributes(handoff: Handoff) -> dict[str, AttributeValue]:
    told: dict[str, AttributeValue | None] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "handoff",
        "messaging.operation.type": "send",
        "messaging.destination.name": handoff.recipient,
        "messaging.message.id": handoff.id,
        "messaging.message.conversation_id": handoff.correlation_id,
        "error.type": _why(handoff) if handoff.state in DEAD else None,
        "nodrop.team": handoff.team,
        "nodrop.ref": ref(handoff),
        "nodrop.from": handoff.sender,
        "nodrop.origin": handoff.origin,
        "nodrop.capability": handoff.capability,
        "nodrop.priority": handoff.terms.priority.value,
        "nodrop.state": handoff.state.value,
        "nodrop.attempts": handoff.attempt,
        "nodrop.tries": handoff.tries,
        "nodrop.leg": len(handoff.legs_done) + 1,
        "nodrop.legs": len(handoff.legs_done) + 1 + len(handoff.legs),
        "nodrop.group": handoff.member_of.group if handoff.member_of else None,
        "nodrop.redrive_of": handoff.redrive_of,
    }
    return {name: value for name, value in told.items() if value is not None}


def _why(handoff: Handoff) -> str:
    code = handoff.outcome.code if handoff.outcome else None
    return code or handoff.state.value


def _links(handoff: Handoff) -> Sequence[Link]:
    """Return what it carries on without being part of it."""
    if handoff.redrive_of is None:
        return ()
    before = traces.own(
        handoff.team,
        handoff.redrive_of,
        correlation_id=handoff.correlation_id,
        above=handoff.traceparent,
    )
    return (Link(_context(before), {"nodrop.link": "redrive_of"}),)


def _details(entry: Entry) -> dict[str, AttributeValue]:
    data: dict[str, Any] = msgspec.json.decode(entry.data)
    told: dict[str, AttributeValue] = {"nodrop.seq": entry.seq, "nodrop.by": entry.actor}
    for name in _DETAILS:
        if isinstance(value := data.get(name), str | int):
            told[f"nodrop.{name}"] = value
    return told


class _GivenIds(IdGenerator):
    """Ids that follow from the handoff, instead of random ones."""

    next: str = ""

    def generate_span_id(self) -> int:
        return int(traces.span_id_of(self.next), 16)

    def generate_trace_id(self) -> int:
        return int(traces.trace_id_of(self.next), 16)


class _Made(SpanProcessor):
    """Keeps what was made until it is taken."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._spans.append(span)

    def taken(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans
