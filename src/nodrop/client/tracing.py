"""The trace a handoff is part of (W3C trace context), where the process has OpenTelemetry.

It is no dependency of ours, and is not loaded from here. Where the process has loaded it, spans that are begun while a delivery is worked on are
part of the trace that the handoff came with; where the process has set a tracer provider, the work is a
span itself. What is handed off from there says so in any case. Whether spans are exported depends on how
the process configured OpenTelemetry.
"""

import functools
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from importlib import import_module
from typing import Any, Final

from nodrop.client.endings import Fail, Parked, Reject
from nodrop.client.shown import HandoffShown

_FIELD: Final = "traceparent"
_TRACE: Final = "opentelemetry.trace"
SCOPE: Final = "nodrop"
SYSTEM: Final = "nodrop"

_handled_in: Final[ContextVar[str | None]] = ContextVar("nodrop_traceparent", default=None)
"""Where in its trace the delivery is that is being worked on, without OpenTelemetry."""


class _OpenTelemetry:
    """What is used of its API."""

    def __init__(self) -> None:
        self.trace: Any = import_module(_TRACE)
        self.context: Any = import_module("opentelemetry.context")
        self.unset: Any = self.trace.ProxyTracerProvider
        """The kind of tracer provider of a process that has set none."""
        propagation: Any = import_module("opentelemetry.trace.propagation.tracecontext")
        self.propagator: Any = propagation.TraceContextTextMapPropagator()
        otel = self

        class Above(self.trace.NonRecordingSpan):
            """Where work in a trace is: read only where it is looked at, as most is not."""

            def __init__(self, traceparent: str | None) -> None:
                otel.trace.NonRecordingSpan.__init__(self, otel.trace.INVALID_SPAN_CONTEXT)
                self._traceparent = traceparent

            def get_span_context(self) -> Any:
                return otel.read(self._traceparent)

        self._above = Above

    def below(self, traceparent: str | None) -> Any:
        """Return the context of work in a trace."""
        return self.trace.set_span_in_context(self._above(traceparent), self.context.Context())

    def read(self, traceparent: str | None) -> Any:
        """Return where in a trace it is, as the propagator reads what the relay writes."""
        try:
            _, trace_id, span_id, flags = (traceparent or "").split("-")
            return self.trace.SpanContext(
                int(trace_id, 16),
                int(span_id, 16),
                is_remote=True,
                trace_flags=self.trace.TraceFlags(int(flags, 16)),
            )
        except ValueError:  # an older relay shows none
            return self.trace.INVALID_SPAN_CONTEXT


def _installed() -> _OpenTelemetry | None:
    """Return its API, if anything in this process uses it: else there is no span to be part of."""
    return _loaded() if _TRACE in sys.modules else None


@functools.cache
def _loaded() -> _OpenTelemetry | None:
    try:
        return _OpenTelemetry()
    except ImportError:
        return None


def current_traceparent() -> str | None:
    """Return where in a trace this code is; None: nowhere, or nobody here knows."""
    otel = _installed()
    if otel is not None and otel.context.get_current():  # else there is no span in it
        carrier: dict[str, str] = {}
        otel.propagator.inject(carrier)
        if _FIELD in carrier:
            return carrier[_FIELD]
    return _handled_in.get()


def handling(task: HandoffShown) -> AbstractContextManager[None]:
    """Have the work on a delivery be a span, and what is begun within part of its trace."""
    otel = _installed()
    if otel is None:
        return _Named(task.traceparent)
    provider: Any = otel.trace.get_tracer_provider()
    if isinstance(provider, otel.unset):
        return _Within(otel, task.traceparent)
    return _span(otel, provider.get_tracer(SCOPE), task)


class _Named:
    """Has what is handed off within name the trace, without a span."""

    __slots__ = ("_before", "_traceparent")

    def __init__(self, traceparent: str | None) -> None:
        self._traceparent = traceparent
        self._before: Token[str | None] | None = None

    def __enter__(self) -> None:
        self._before = _handled_in.set(self._traceparent)

    def __exit__(self, *_: object) -> None:
        assert self._before is not None, "entered"
        _handled_in.reset(self._before)


class _Within:
    """Has spans that are begun within be part of the trace, without a span of its own."""

    __slots__ = ("_otel", "_token", "_traceparent")

    def __init__(self, otel: _OpenTelemetry, traceparent: str | None) -> None:
        self._otel = otel
        self._traceparent = traceparent
        self._token: Any = None

    def __enter__(self) -> None:
        self._token = self._otel.context.attach(self._otel.below(self._traceparent))

    def __exit__(self, *_: object) -> None:
        self._otel.context.detach(self._token)


@contextmanager
def _span(otel: _OpenTelemetry, tracer: Any, task: HandoffShown) -> Generator[None]:
    above = otel.below(task.traceparent)
    span: Any = tracer.start_span(
        f"process {task.view.get('to', '')}".strip(),
        context=above,
        kind=otel.trace.SpanKind.CONSUMER,
        attributes=_attributes(task),
    )
    token = otel.context.attach(otel.trace.set_span_in_context(span, above))
    try:
        yield
    except Parked:
        span.set_attribute("nodrop.ending", "parked")
        raise
    except (Fail, Reject) as ending:
        code = ending.code if isinstance(ending, Fail) and ending.code else "rejected"
        _failed(otel, span, code)
        raise
    except Exception as error:
        span.record_exception(error)
        _failed(otel, span, type(error).__name__)
        raise
    finally:
        otel.context.detach(token)
        span.end()


def _failed(otel: _OpenTelemetry, span: Any, code: str) -> None:
    span.set_attribute("error.type", code)
    span.set_status(otel.trace.Status(otel.trace.StatusCode.ERROR, code))


def _attributes(task: HandoffShown) -> dict[str, str | int]:
    view = task.view  # telling must not fail where an older relay shows less
    told = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": view.get("to"),
        "messaging.message.id": task.id,
        "messaging.message.conversation_id": view.get("correlation_id"),
        "nodrop.attempt": task.attempt,
        "nodrop.capability": view.get("capability"),
    }
    return {name: value for name, value in told.items() if value is not None}
