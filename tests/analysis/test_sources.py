"""Logs of other systems become the same record, by the documented mapping."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nodrop.analysis import record as records
from nodrop.analysis.analyze import analyze
from nodrop.analysis.detectors import cliques, paths
from nodrop.analysis.record import Record
from nodrop.analysis.sources import beads, otel, rows, xes
from nodrop.model.errors import InvalidRequestError, NotFoundError


def lines(path: Path, several: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in several), encoding="utf-8")
    return path


def bead(n: int, issue: str, kind: str, actor: str, new: Any) -> dict[str, Any]:
    return {
        "id": n,
        "issue_id": issue,
        "event_type": kind,
        "actor": actor,
        "created_at": f"2026-02-26T15:{n:02d}:00Z",
        "new_value": new if isinstance(new, str) else json.dumps(new),
        "old_value": "{}",
        "comment": None,
    }


def test_beads(tmp_path: Path) -> None:
    hooked = {"status": "hooked", "assignee": "nux"}
    path = lines(
        tmp_path / "events.jsonl",
        [
            bead(1, "gt-1", "created", "mayor", ""),
            bead(2, "gt-1", "status_changed", "mayor", hooked),
            bead(3, "gt-1", "status_changed", "nux", {"status": "in_progress"}),
            bead(4, "gt-1", "status_changed", "mayor", {"status": "open"}),
            bead(5, "gt-1", "status_changed", "mayor", hooked | {"assignee": "slit"}),
            bead(6, "gt-1", "closed", "slit", "Done, and tested."),
            bead(7, "gt-1", "closed", "refinery", "Merged."),
            bead(8, "gt-2", "status_changed", "mayor", hooked),
        ],
    )
    record = Record()
    beads.read(path, record)
    assert (record.events, len(record.handoffs)) == (8, 3)
    assert list(record.handoffs["again"]) == [0, 1, 0]
    assert list(record.handoffs["outcome"]) == [records.NONE, records.COMPLETED, records.NONE]
    found = {(f.detector, f.subject): f.effect for f in analyze(record).findings}
    assert found["handed-off-again", "gt-1"] == {"times": 2, "agents": 2}
    assert found["closed-again", "gt-1"] == {"times": 2, "agents": 2}
    assert [said.text for said in record.said["agent slit"]] == ["Done, and tested."]


XES = """<?xml version="1.0"?><log xmlns="http://www.xes-standard.org/"><trace>
<string key="concept:name" value="case 7"/>{events}</trace></log>"""
EVENT = """<event><string key="concept:name" value="{name}"/><string key="org:group" value="{group}"/>
<date key="time:timestamp" value="2026-01-01T00:{n:02d}:00+00:00"/></event>"""


def test_xes(tmp_path: Path) -> None:
    groups = "AABABAC"
    events = "".join(EVENT.format(name="Work", group=g, n=n) for n, g in enumerate(groups))
    events += EVENT.format(name="Completed", group="C", n=30)
    path = tmp_path / "log.xes.gz"
    path.write_bytes(gzip.compress(XES.format(events=events).encode()))
    record = Record()
    xes.read(path, record)
    assert (record.events, len(record.handoffs)) == (8, 6)
    counted = {(e.sender, e.recipient): e.times for e in cliques.network(record)}
    assert counted == {("(start)", "A"): 1, ("A", "B"): 2, ("B", "A"): 2, ("A", "C"): 1}
    assert [f.subject for f in analyze(record).findings if f.detector == "ping-pong"] == ["case 7"]
    assert record.handoffs["ended_at"][-1] == record.last_at


def span(n: int, parent: int, agent: str, *, failed: bool = False) -> dict[str, Any]:
    return {
        "traceId": "t1",
        "spanId": str(n),
        "parentSpanId": str(parent) if parent else "",
        "name": f"invoke_agent {agent}",
        "startTimeUnixNano": str(n * 10**9),
        "endTimeUnixNano": str((100 - n) * 10**9),
        "attributes": [{"key": "gen_ai.agent.name", "value": {"stringValue": agent}}],
        "status": {"code": 2 if failed else 0},
    }


def test_otel(tmp_path: Path) -> None:
    spans = [span(1, 0, "lead"), span(2, 1, "lead"), span(3, 2, "coder", failed=True)]
    document: dict[str, Any] = {
        "resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": spans}]}]
    }
    for written in (json.dumps(document), f"{json.dumps(document)}\n"):
        path = tmp_path / "spans.json"
        path.write_text(written, encoding="utf-8")
        record = Record()
        otel.read(path, record)
        assert record.events == 6
        counted = {(e.sender, e.recipient) for e in cliques.network(record)}
        assert counted == {("(start)", "lead"), ("lead", "coder")}
        assert list(record.handoffs["outcome"]) == [records.COMPLETED, records.FAILED]


def test_rows(tmp_path: Path) -> None:
    base = {"chain_id": "c", "handoff_id": "h", "from_agent": "a", "to_agent": "b"}
    path = lines(
        tmp_path / "rows.jsonl",
        [
            {"ts": "2026-01-01T00:00:00Z", "type": "offered", **base, "params": {"price": 3.5}},
            {"ts": "2026-01-01T00:01:00Z", "type": "handoff.accepted.v1", **base, "text": "on it"},
            {"ts": "2026-01-01T00:02:00Z", "type": "failed", **base},
        ],
    )
    record = Record()
    rows.read(path, record)
    assert list(record.handoffs["outcome"]) == [records.FAILED]
    assert [said.text for said in record.said["a ↔ b"]] == ["on it"]
    assert [quote.value for [quote] in record.quotes.values()] == [3.5]


@pytest.mark.parametrize(("results", "found"), [("aaa", ["livelock"]), ("abc", [])])
def test_rows_tell_a_livelock_from_polling_by_the_results(
    tmp_path: Path, results: str, found: list[str]
) -> None:
    written: list[dict[str, Any]] = []
    for n, result in enumerate(results):
        base = {"chain_id": "c", "handoff_id": f"h{n}", "from_agent": "a", "to_agent": "b"}
        for minute, kind, digest in ((0, "offered", "f"), (5, "completed", result)):
            ts = f"2026-01-01T0{n}:0{minute}:00Z"
            written.append({"ts": ts, "type": kind, **base, "payload_sha256": digest * 64})
    record = Record()
    rows.read(lines(tmp_path / "rows.jsonl", written), record)
    assert [f.detector for f in paths.detect(record).findings] == found


@pytest.mark.parametrize("read", [beads.read, xes.read, otel.read, rows.read])
def test_what_is_no_such_log_is_refused_with_its_line(read: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_text('{"seq": 1}\n<not this either', encoding="utf-8")
    with pytest.raises(InvalidRequestError) as refused:
        read(path, Record())
    assert "odd line" in refused.value.errors[0].path
    with pytest.raises(NotFoundError):
        read(tmp_path / "absent", Record())
