"""OpenTelemetry: spans of agents, as OTLP JSON (one document, or one per line).

| span | becomes |
|---|---|
| `traceId` | a chain |
| a span with `gen_ai.agent.name` or `.id`, else its service, that is another than its parent's | an offer from the parent's agent to this one, delivered and accepted at its start |
| `gen_ai.operation.name`, else the span's name | the capability |
| the span's end; status `ERROR` | completed; failed |
| `gen_ai.input.messages`, `input.value` | the payload that is compared |
"""

from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from nodrop.analysis.record import COMPLETED, FAILED, NONE, Record
from nodrop.analysis.sources.files import not_a_log, open_log

_ERROR = 2
_MS = 1_000_000
_AGENT = ("gen_ai.agent.name", "gen_ai.agent.id", "agent.name", "graph.node.id")
_INPUT = ("gen_ai.input.messages", "input.value")


class _Attribute(msgspec.Struct):
    key: str
    value: dict[str, Any] = {}


class _Status(msgspec.Struct, frozen=True):
    code: int | str = 0


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    start_time_unix_nano: int | str
    end_time_unix_nano: int | str = 0
    parent_span_id: str = ""
    name: str = ""
    attributes: list[_Attribute] = []
    status: _Status = _Status()


class _Scope(msgspec.Struct):
    spans: list[_Span] = []


class _Resource(msgspec.Struct, frozen=True):
    attributes: list[_Attribute] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource = _Resource()
    scope_spans: list[_Scope] = []


class _Document(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


class _Seen(msgspec.Struct):
    span: _Span
    agent: str
    values: dict[str, str]


def read(path: Path, record: Record) -> None:
    """Read every span into `record`.

    Raises:
        InvalidRequestError: it is no OTLP JSON.
    """
    decoder = msgspec.json.Decoder(_Document)
    with open_log(path) as file:
        written = file.read()
    try:
        documents = [decoder.decode(written)]
    except msgspec.MsgspecError:
        documents = list[_Document]()
        for number, line in enumerate(written.splitlines(), 1):
            if line.strip():
                try:
                    documents.append(decoder.decode(line))
                except msgspec.MsgspecError as error:
                    raise not_a_log(path, number, "otel", error) from error
    spans = [each for document in documents for each in _spans(document)]
    _read(spans, record)


def _spans(document: _Document) -> list[_Seen]:
    seen: list[_Seen] = []
    for resource in document.resource_spans:
        service = _values(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                values = _values(span.attributes)
                agent = next((values[key] for key in _AGENT if values.get(key)), service)
                seen.append(_Seen(span, agent, values))
    return seen


def _read(spans: list[_Seen], record: Record) -> None:
    by_id = {(each.span.trace_id, each.span.span_id): each for each in spans}
    moments: list[tuple[int, int, int, _Seen]] = []
    for number, each in enumerate(spans):
        moments.append((int(each.span.start_time_unix_nano), 0, number, each))
        moments.append((int(each.span.end_time_unix_nano), 1, number, each))
    moments.sort(key=lambda moment: moment[:3])
    for seq, (nanos, ends, _, each) in enumerate(moments, 1):
        at, span = nanos // _MS, each.span
        record.event(at)
        sender = _above(each, by_id)
        if not each.agent or sender == each.agent:
            continue
        handoff = f"{span.trace_id}/{span.span_id}"
        if ends:
            failed = span.status.code in {_ERROR, "STATUS_CODE_ERROR"}
            record.end(handoff, seq=seq, at=at, outcome=FAILED if failed else COMPLETED)
            record.settle(handoff, seq=seq, at=at)
            continue
        payload = next((each.values[key] for key in _INPUT if each.values.get(key)), None)
        record.offer(
            handoff,
            seq=seq,
            at=at,
            chain=span.trace_id,
            sender=sender or "(start)",
            recipient=each.agent,
            capability=each.values.get("gen_ai.operation.name") or span.name,
            digest=NONE if payload is None else _digest(payload),
        )
        record.deliver(handoff, seq=seq, at=at, attempt=1)
        record.accept(handoff, seq=seq, at=at)


def _above(each: _Seen, by_id: dict[tuple[str, str], _Seen]) -> str:
    """Return the agent of the nearest span above that has one."""
    trace = each.span.trace_id
    above = by_id.get((trace, each.span.parent_span_id))
    while above is not None and not above.agent:
        above = by_id.get((trace, above.span.parent_span_id))
    return above.agent if above else ""


def _values(attributes: list[_Attribute]) -> dict[str, str]:
    return {each.key: str(next(iter(each.value.values()), "")) for each in attributes}


def _digest(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=7).digest())
