"""`nodrop analyze`: the relay's log or a saved one, verified first, told as text, JSON and a page."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def ping_pong(nodrop: Run, tmp_path: Path) -> str:
    """Two agents hand one chain to each other, five times."""
    chain = None
    offer = tmp_path / "offer.json"
    for n in range(6):
        one, other = ("ping", "pong") if n % 2 else ("pong", "ping")
        offer.write_text(
            json.dumps({"to": other, "payload": {"round": n}, "correlation_id": chain}),
            encoding="utf-8",
        )
        sent = nodrop("send", offer, "--json", "--agent", one).handoff
        chain = sent["correlation_id"]
        nodrop("ack", sent["id"], "--agent", other)
        nodrop("done", sent["id"], "{}", "--agent", other)
    assert isinstance(chain, str)
    return chain


@pytest.fixture
def saved(nodrop: Run, ping_pong: str, tmp_path: Path) -> Path:
    """The log of the relay, with a ping-pong in it."""
    assert ping_pong
    path = tmp_path / "log.jsonl"
    path.write_text(nodrop("log", "--json").out, encoding="utf-8")
    return path


def test_the_log_of_a_relay_is_verified_and_analysed(nodrop: Run, ping_pong: str) -> None:
    told = nodrop("analyze")
    assert told.code == 0
    assert "The log holds: " in told.out
    assert "ping and pong handed the same chain to each other" in told.out
    assert max(map(len, told.out.splitlines())) <= 80
    document = nodrop("analyze", "--json").json
    by_chain = {f["subject"]: f for f in document["findings"] if f["detector"] == "ping-pong"}
    finding = by_chain[ping_pong]
    assert finding["agents"] == ["ping", "pong"]
    entries = nodrop("log", "--json").out.splitlines()
    opened = [json.loads(entries[seq - 1]) for seq in finding["evidence"]]
    assert {entry["correlation_id"] for entry in opened} == {ping_pong}
    assert {entry["type"] for entry in opened} == {"handoff.offered.v1"}


def test_a_saved_log_can_fail_a_build_and_makes_a_page_that_needs_nothing(
    nodrop: Run, saved: Path, tmp_path: Path
) -> None:
    assert nodrop("analyze", saved, "--fail-on", "high").code == 0
    assert nodrop("analyze", saved, "--fail-on", "medium").code == 1
    assert nodrop("analyze", saved, "--out", tmp_path / "out").code == 0
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert len(page) < 400_000
    assert "<script" not in page
    assert not re.search(r"(src|href)=['\"]?(https?:)?//", page)
    assert (tmp_path / "out" / "findings.json").exists()


def test_a_log_that_does_not_hold_is_no_evidence(nodrop: Run, saved: Path, tmp_path: Path) -> None:
    lines = saved.read_text(encoding="utf-8").splitlines()
    changed = tmp_path / "changed.jsonl"
    lines[4] = lines[4].replace('"actor":"', '"actor":"not_')
    changed.write_text("\n".join(lines) + "\n", encoding="utf-8")
    told = nodrop("analyze", changed)
    assert told.code == 1
    assert "THE LOG DOES NOT HOLD at entry 5" in told.out


def test_words_of_agents_in_the_page_are_data(nodrop: Run, tmp_path: Path) -> None:
    rows = [
        {
            "ts": f"2026-01-01T00:{n:02d}:00Z",
            "type": "offered",
            "chain_id": "<script>alert(1)</script>",
            "handoff_id": str(n),
            "from_agent": "<i>a" if n % 2 else "b",
            "to_agent": "b" if n % 2 else "<i>a",
        }
        for n in range(9)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    assert nodrop("analyze", path, "--from", "jsonl", "--out", tmp_path).code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "<i>a" not in page
    assert "&lt;i&gt;a" in page


@pytest.mark.parametrize(
    ("written", "form"), [("{}\n", "nodrop"), ("[]", "otel"), ("<log>", "xes"), ("", "jsonl")]
)
def test_what_is_no_log_is_refused_with_what_to_do(
    nodrop: Run, tmp_path: Path, written: str, form: str
) -> None:
    path = tmp_path / "odd"
    path.write_text(written, encoding="utf-8")
    told = nodrop("analyze", path, "--from", form)
    assert told.code == 2
    assert "Traceback" not in told.err
    assert nodrop("analyze", tmp_path / "absent").code not in {0, 1}


def test_a_baseline_is_a_time_or_an_earlier_log(nodrop: Run, saved: Path) -> None:
    assert nodrop("analyze", saved, "--baseline", "2020-01-01T00:00:00Z").code == 0
    assert nodrop("analyze", saved, "--baseline", "yesterday").code == 2
