"""A log as rows: one per event, flat, for tools that read tables.

Each handoff is folded along the way, so that a row says what only the events before it tell: whom
it is from, how long it waited, how long it took.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

import msgspec

from nodrop.model import events
from nodrop.model.handoff import Handoff, Rung
from nodrop.model.machine import evolve
from nodrop.protocol import canonical, traces
from nodrop.protocol import events as wire_events
from nodrop.protocol.times import format_time, parse_time

View = dict[str, Any]

_EVENTS: Final = frozenset(wire_events.NAMES.values())
_TEXTS: Final = ("title", "status", "question", "text", "reason", "answer")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One event. What does not apply, or is not for the reader to see, is null."""

    seq: int
    event_id: str
    ts: str
    type: str
    actor: str
    chain_id: str | None = None
    handoff_id: str | None = None
    parent_handoff_id: str | None = None
    from_agent: str | None = None
    to_agent: str | None = None
    capability: str | None = None
    attempt: int | None = None
    status: str | None = None
    reason: str | None = None
    queue_ms: int | None = None
    """Of an acknowledgement: since it was offered."""
    latency_ms: int | None = None
    """Of an outcome: since it was stored."""
    deadline: str | None = None
    payload_sha256: str | None = None
    payload_bytes: int | None = None
    text: str | None = None
    params: dict[str, float] = {}
    covariates: dict[str, float] = {}
    observed_ids: list[str] = []
    manifest_rev: int | None = None
    traceparent: str | None = None
    prev_hash: str = ""
    hash: str = ""


class Rows:
    """Turns the entries of one team's log, oldest first, into rows."""

    def __init__(self, team: str, *, text: bool = True) -> None:
        """Begin; without `text`, nobody's words are in the rows."""
        self._team = team
        self._text = text
        self._handoffs: dict[str, Handoff] = {}

    def of(self, entries: Iterable[View]) -> Iterator[Row]:
        """Yield the row of each entry."""
        for entry in entries:
            yield self._row(entry)

    def _row(self, entry: View) -> Row:
        body = cast("View", entry["body"] if isinstance(entry["body"], dict) else {})
        about = self._fold(entry) if entry["type"] in _EVENTS else None
        at = parse_time(entry["at"])
        data: View = entry["data"]
        payload = body.get("payload", body.get("result", body.get("data")))
        written = None if payload is None else canonical.dumps(payload)
        fields: View = {
            "seq": entry["seq"],
            "event_id": f"{self._team}/{entry['seq']}",
            "ts": entry["at"],
            "type": entry["type"],
            "actor": entry["actor"],
            "chain_id": entry["correlation_id"],
            "handoff_id": entry["handoff_id"],
            "attempt": data.get("attempt"),
            "reason": data.get("reason") or data.get("code") or body.get("reason"),
            "payload_sha256": None if written is None else canonical.sha256(written),
            "payload_bytes": None if written is None else len(written),
            "text": _text(body) if self._text else None,
            "params": _numbers(body.get("parameters")),
            "covariates": _numbers(body.get("covariates")),
            "observed_ids": [str(each) for each in body.get("observations") or ()],
            "prev_hash": entry["prev_hash"],
            "hash": entry["hash"],
        }
        return Row(**fields, **(_about(about, entry["type"], at) if about else {}))

    def _fold(self, entry: View) -> Handoff | None:
        handoff_id = entry["handoff_id"]
        event = wire_events.decode(entry["type"], canonical.dumps(entry["data"]))
        before = self._handoffs.get(handoff_id)
        if before is None and not isinstance(event, events.Offered):
            return None  # it began before this log does
        after = evolve(
            before,
            event,
            team=self._team,
            handoff_id=handoff_id,
            by=entry["actor"],
            at=parse_time(entry["at"]),
        )
        self._handoffs[handoff_id] = after
        return after


def _about(h: Handoff, kind: str, at: int) -> View:
    acknowledged = kind == wire_events.NAMES[events.Acknowledged]
    delivered = next((r.at for r in h.receipts if r.rung is Rung.DELIVERED), at)
    ended = h.outcome is not None and h.outcome.at == at and h.settled_at is None
    return {
        "parent_handoff_id": h.parent_id,
        "from_agent": h.sender,
        "to_agent": h.recipient,
        "capability": h.capability,
        "status": h.state.value,
        "queue_ms": delivered - h.offered_at if acknowledged else None,
        "latency_ms": at - h.stored_at if ended else None,
        "deadline": format_time(h.terms.deadline_at),
        "manifest_rev": h.manifest_version,
        "traceparent": traces.traceparent(h),
    }


def _text(body: View) -> str | None:
    said = [str(body[name]) for name in _TEXTS if body.get(name) is not None]
    return "\n".join(said) or None


def _numbers(value: Any) -> dict[str, float]:
    """Return the numbers among named values; whatever else was measured is no number."""
    if not isinstance(value, dict):
        return {}
    named = cast("dict[str, Any]", value)
    return {
        name: float(number)
        for name, number in named.items()
        if isinstance(number, int | float) and not isinstance(number, bool)
    }
