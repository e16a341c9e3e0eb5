"""Where a handoff is in a trace (W3C trace context): ids that follow from what it is called.

Each handoff is a span. Nothing is kept for that: after a restart the relay, and any reader of its
log, finds the same ids again. A trace that nobody began outside is named after the chain.
"""

import hashlib
import re
from functools import lru_cache
from typing import Final

from nodrop.model.handoff import Handoff

TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NIL: Final = "00000000-0000-0000-0000-000000000000"
_TRACE_ID: Final = slice(3, 35)
_SPAN_ID: Final = slice(36, 52)
_FLAGS: Final = slice(53, 55)
_SAMPLED: Final = "01"
_TRACE_CHARS: Final = 32
_SPAN_CHARS: Final = 16


def is_traceparent(value: str) -> bool:
    """Whether this is a context at all."""
    return TRACEPARENT.fullmatch(value) is not None


def traceparent(handoff: Handoff) -> str:
    """Return the context of a handoff's own span: what work on it is part of."""
    return own(handoff.team, handoff.id, handoff.correlation_id, handoff.traceparent)


@lru_cache(maxsize=8_192)  # an offer, its delivery and its outcome are each shown with it
def own(team: str, handoff_id: str, correlation_id: str, above: str | None) -> str:
    """Return the context of the span of a handoff that was offered in the context `above`."""
    is_uuid = _UUID.fullmatch(handoff_id) and handoff_id != _NIL
    named = handoff_id.replace("-", "") if is_uuid else _named(team, handoff_id)
    if above is not None:
        trace, flags = above[_TRACE_ID], above[_FLAGS]
    elif correlation_id == handoff_id:
        trace, flags = named, _SAMPLED
    else:
        trace, flags = _named(team, correlation_id), _SAMPLED
    # The end of a UUIDv7 is its random part.
    return f"00-{trace}-{named[-_SPAN_CHARS:]}-{flags}"


def trace_id_of(context: str) -> str:
    """Return the trace that a context is in."""
    return context[_TRACE_ID]


def span_id_of(context: str) -> str:
    """Return the span that a context is."""
    return context[_SPAN_ID]


def _named(team: str, name: str) -> str:
    """Return 32 hexadecimal digits for a name: those of a UUID are its own."""
    if _UUID.fullmatch(name) and name != _NIL:
        return name.replace("-", "")
    return hashlib.sha256(f"{team}\0{name}".encode()).hexdigest()[:_TRACE_CHARS]
