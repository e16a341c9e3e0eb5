from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]
Send = Callable[..., str]


def test_a_settled_handoff_is_erased_and_an_open_one_is_not(nodrop: Run, send: Send) -> None:
    ref = send("--title", "Private")
    refused = nodrop("erase", ref, "--agent", "a")
    assert refused.code == 4
    assert "cancel" in refused.err
    nodrop("cancel", ref, "--agent", "a")
    assert "✓ erased" in nodrop("erase", ref, "--agent", "a").err
    shown = nodrop("track", ref, "--json").handoff
    assert (shown["erased"], shown["title"]) == (True, "(erased)")


def test_a_result_that_was_erased_is_not_shown_as_null(nodrop: Run, send: Send) -> None:
    ref = send("--title", "Private")
    nodrop("ack", ref, "--agent", "b")
    nodrop("done", ref, "secret", "--agent", "b")
    nodrop("settle", ref, "--agent", "a")
    assert "completed by b: secret" in nodrop("track", ref, "--agent", "a").out
    nodrop("erase", ref, "--agent", "a")
    assert "completed by b: (erased)" in nodrop("track", ref, "--agent", "a").out


def test_who_was_refused_is_shown_to_operators(nodrop: Run, send: Send) -> None:
    ref = send("--title", "Private")
    assert nodrop("track", ref, "--agent", "nosy").code == 3
    assert nodrop("track", ref, "--agent", "nosy").code == 3
    shown = nodrop("log", "--security").out
    row = next(line for line in shown.splitlines() if "nosy" in line)
    assert "get_handoff" in row
    assert "foreign_handoff" in row
    told = nodrop("log", "--security", "--json").json["refusals"]
    assert any((r["actor"], r["reason"]) == ("nosy", "foreign_handoff") for r in told)


def test_an_observers_token_is_made_by_name(nodrop: Run) -> None:
    made = nodrop("token", "auditor", "--role", "observer", "--json").json
    assert made["role"] == "observer"
    token = made["token"]
    refused = nodrop("note", "hello", NODROP_TOKEN=token, NODROP_AGENT="auditor")
    assert "forbidden" in refused.err
