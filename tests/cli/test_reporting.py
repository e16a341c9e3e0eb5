"""`nodrop export`, `nodrop debrief`, and the filters of `nodrop log`."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Send = Callable[..., str]


@pytest.fixture
def worked(nodrop: Run, send: Send) -> str:
    """One handoff that was done, one that broke, and one that waits."""
    done = send("--title", "Fix it", "--payload", '{"n": 1}')
    nodrop("ack", done, "--agent", "b")
    result = {"ok": True, "usage": {"input_tokens": 100, "cost_usd": 0.25}}
    nodrop("done", done, json.dumps(result), "--agent", "b")
    broken = send("--title", "Break it")
    nodrop("ack", broken, "--agent", "b")
    nodrop("fail", broken, "no access", "--agent", "b")
    send("--title", "Wait for it")
    return broken


@pytest.mark.usefixtures("worked")
def test_the_log_is_written_as_rows(nodrop: Run, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in nodrop("export").out.splitlines()]
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    done = next(row for row in rows if row["type"] == "handoff.completed.v1")
    assert (done["from_agent"], done["to_agent"], done["status"]) == ("a", "b", "completed")
    assert done["latency_ms"] >= 0
    acked = next(row for row in rows if row["type"] == "handoff.accepted.v1")
    assert acked["queue_ms"] >= 0
    offered = next(row for row in rows if row["type"] == "handoff.offered.v1")
    assert (offered["payload_bytes"], offered["text"]) == (len('{"n":1}'), "Fix it")
    assert nodrop("export", "--no-text", "--out", tmp_path / "log.jsonl").code == 0
    quiet = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {row["text"] for row in quiet} == {None}
    assert [row["hash"] for row in quiet] == [row["hash"] for row in rows]

    assert nodrop("export", "--format", "parquet", "--out", tmp_path / "log.parquet").code == 0
    pq: Any = import_module("pyarrow.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    assert table.column("hash").to_pylist() == [row["hash"] for row in rows]
    assert table.schema.field("covariates").type.key_type == "string"
    assert nodrop("export", "--format", "parquet").code == 2


def test_the_debrief_tells_what_happened_what_is_owed_what_broke_and_what_it_cost(
    nodrop: Run, worked: str, tmp_path: Path
) -> None:
    report = nodrop("debrief", "--since", "1h", "--json").json
    assert report["happened"]["offered"] >= 3
    assert report["by_agent"]["b"]["completed"] >= 1
    assert worked in [broken["ref"] for broken in report["broken"]]
    assert report["broken"][0]["decide"].startswith("nodrop dlq redrive a/")
    assert "Wait for it" in [owed["title"] for owed in report["owed"]]
    assert report["usage"]["b"]["input_tokens"] >= 100
    text = nodrop("debrief", "--since", "1h").out
    assert "What is owed" in text
    assert "failed: no access" in text
    page = tmp_path / "debrief.html"
    nodrop("note", "<script>alert(1)</script>")
    assert nodrop("debrief", "--format", "html", "--out", page).code == 0
    assert "<h2>What broke" in page.read_text()
    assert nodrop("debrief", "--since", "soon").code == 2


def test_a_title_in_the_page_is_data(nodrop: Run, send: Send) -> None:
    send("--title", "<script>alert(1)</script>")
    page = nodrop("debrief", "--format", "html").out
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.usefixtures("worked")
def test_the_log_is_read_by_agent_time_and_text(nodrop: Run) -> None:
    def types(*options: str) -> set[str]:
        return {
            json.loads(line)["type"] for line in nodrop("log", "--json", *options).out.splitlines()
        }

    assert types("--by", "b") <= {
        "handoff.delivered.v1", "handoff.accepted.v1", "handoff.completed.v1", "handoff.failed.v1",
    }  # fmt: skip
    assert types("--text", "NO ACCESS") == {"handoff.failed.v1"}
    assert types("--since", "1h", "--by", "b")
    assert types("--until", "1h") == set()
    assert nodrop("log", "--since", "whenever").code == 2


@pytest.mark.parametrize("verb", ["log", "debrief", "export"])
def test_a_beginning_that_is_neither_a_duration_nor_a_time_is_told_both(
    nodrop: Run, verb: str
) -> None:
    for said in ("yesterday", "2026-13-99", "last-week"):
        refused = nodrop(verb, "--since", said)
        assert (refused.code, refused.out) == (2, "")
        assert 'expected a duration such as "6h" or "2 days", or a time with' in refused.err
        assert "2026-01-31T09:00:00Z" in refused.err
        assert "`errors`" not in refused.err
    assert nodrop(verb, "--since", "2026-01-31T09:00:00Z").code == 0
