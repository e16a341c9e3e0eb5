"""`nodrop trace`, and the verbs that talk."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodrop import connect_sync

Run = Callable[..., Any]
Send = Callable[..., str]


def test_trace_shows_a_broken_chain_as_a_tree_and_says_where_it_broke(
    nodrop: Run,
) -> None:
    block = "HANDOFF: a → b\nTITLE: Seven\nTHEN: c → d → else e\nKEY: traced"
    nodrop("send", "-", "--agent", "a", stdin=block)
    ref = "a/traced"
    nodrop("ack", ref, "--agent", "b")
    nodrop("done", ref, "1", "--agent", "b")
    leg = nodrop("trace", ref, "--json").json["steps"][1]
    nodrop("ack", leg["ref"], "--agent", "c")
    nodrop("fail", leg["ref"], "no access", "--agent", "c")
    shown = nodrop("trace", ref)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].split() == ["chain", "a", "broken"]
    assert "b completed  Seven" in lines[1]
    assert "c failed" in lines[2]
    assert "✗ broke at leg 2 of 3, c: failed (no access)" in lines
    assert any("no clock: it said so itself" in line for line in lines)
    assert "  a owes the next move" in lines
    assert f"nodrop dlq redrive {leg['ref']}" in shown.err
    answer = nodrop("trace", ref, "--json").json
    assert (answer["state"], answer["breaks"][0]["agent"]) == ("broken", "c")
    assert nodrop("trace", answer["correlation_id"], "--json").json == answer


def test_trace_draws_a_flowchart(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    assert nodrop("trace", ref, "--mermaid").out.splitlines()[:4] == [
        "flowchart TD",
        '    origin(["a"])',
        '    h0["b<br/>accepted"]:::open',
        "    origin --> h0",
    ]


def test_trace_draws_a_child_below_its_parent(
    nodrop: Run, send: Send, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = send()
    parent = nodrop("track", ref, "--json").handoff["id"]
    monkeypatch.setenv("NODROP_HOME", str(home))
    with connect_sync(agent="b") as b:
        b.hand_off(to="c", parent_id=parent, title="Part")
    lines = nodrop("trace", ref).out.splitlines()
    assert [line.index(name) for line, name in zip(lines[1:3], "bc", strict=True)] == [4, 8]


def test_trace_says_what_is_owed_by_when(nodrop: Run, send: Send) -> None:
    ref = send()
    assert ", owes an acknowledgement in " in nodrop("trace", ref).out
    nodrop("ack", ref, "--agent", "b")
    assert ", owes the next update or the result in " in nodrop("trace", ref).out


def test_what_is_no_chain_is_not_found(nodrop: Run) -> None:
    assert nodrop("trace", "nothing").code == 3


def test_people_talk_from_the_terminal(nodrop: Run, send: Send) -> None:
    ref = send()
    said = nodrop("say", "Are you there?", "--to", "talker", "--agent", "a", "--json").json
    assert said["to"] == ["talker"]
    assert "Are you there?" in nodrop("inbox", "--agent", "talker").out
    nodrop("subscribe", "mobile", "--agent", "fan")
    told = nodrop(
        "status", "stuck", "no device", "--about", ref, "--topic", "mobile", "--agent", "b"
    )
    assert told.err.startswith("✓ said at ")
    assert told.err.rstrip().endswith("to a, fan")
    read = nodrop("messages", "--from", "b", "--agent", "fan").out
    assert "stuck: no device" in read
    assert (
        "no longer hear of mobile" in nodrop("subscribe", "mobile", "--off", "--agent", "fan").err
    )
