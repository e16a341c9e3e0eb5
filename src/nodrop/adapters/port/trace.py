"""The trace a handoff is part of (W3C trace context), where the process has OpenTelemetry.

It is no dependency of ours. Where a framework brought it, the framework's own spans join the trace
that the handoff came with, and what it hands off names the span it was handed off in.
"""

import importlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

_FIELD: Final = "traceparent"
_PROPAGATION: Final = "opentelemetry.trace.propagation.tracecontext"


@contextmanager
def joined(traceparent: str | None) -> Generator[None]:
    """Have spans that are begun within be part of the trace."""
    propagator = _propagator()
    if traceparent is None or propagator is None:
        yield
        return
    context = importlib.import_module("opentelemetry.context")
    token = context.attach(propagator.extract({_FIELD: traceparent}))
    try:
        yield
    finally:
        context.detach(token)


def current_traceparent() -> str | None:
    """Return where in a trace this code is; None: nowhere, or nobody here knows."""
    propagator = _propagator()
    carrier: dict[str, str] = {}
    if propagator is not None:
        propagator.inject(carrier)
    return carrier.get(_FIELD)


def _propagator() -> Any:
    try:
        return importlib.import_module(_PROPAGATION).TraceContextTextMapPropagator()
    except ImportError:
        return None
