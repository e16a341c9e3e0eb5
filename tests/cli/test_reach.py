from collections.abc import Callable
from typing import Any

Run = Callable[..., Any]


def test_an_agent_elsewhere_is_added_shown_and_dropped(nodrop: Run) -> None:
    place = "http://127.0.0.1:9/agent"
    added = nodrop(
        "agents", "add", "openclaw", "--a2a", place, "--token", "s", "--private", "--json"
    )
    assert added.json == {
        "agent": "openclaw", "public": False, "a2a": place, "token": True, "private": True,
    }  # fmt: skip
    assert "openclaw" in nodrop("agents").out
    dropped = nodrop("agents", "drop", "openclaw")
    assert dropped.err.strip().endswith("lives in this team; members of the team may call it")


def test_an_agent_is_opened_to_anybody_and_closed_again(nodrop: Run) -> None:
    nodrop("agents", "add", "far", "--a2a", "https://far.example/", "--token", "s")
    opened = nodrop("agents", "open", "far", "--json").json
    assert (opened["public"], opened["a2a"], opened["token"]) == (
        True,
        "https://far.example/",
        True,
    )
    assert nodrop("agents", "close", "far", "--json").json["public"] is False


def test_an_address_of_this_machine_takes_leave(nodrop: Run) -> None:
    place = "http://127.0.0.1:9/agent"
    refused = nodrop("agents", "add", "near", "--a2a", place)
    assert refused.code == 2
    assert "not a public address" in refused.err
    assert "--private" in refused.err
    assert "near" not in nodrop("agents").out
    assert nodrop("agents", "add", "near", "--a2a", place, "--private").code == 0
    closed = nodrop("agents", "close", "near")
    assert closed.code == 0


def test_a_token_that_no_header_carries_is_refused(nodrop: Run) -> None:
    place = "https://far.example/"
    for token in ("a\nb", "ä", " a"):
        refused = nodrop("agents", "add", "far-off", "--a2a", place, "--token", token)
        assert (refused.code, "printable ASCII" in refused.err) == (2, True)
    assert "far-off" not in nodrop("agents").out


def test_nobody_is_opened_closed_or_dropped_who_is_not_there(nodrop: Run) -> None:
    for verb in ("open", "close", "drop"):
        refused = nodrop("agents", verb, "nobody")
        assert refused.code == 3
        assert "nodrop agents" in refused.err
    assert "nobody" not in nodrop("agents").out


def test_what_is_no_address_is_refused(nodrop: Run) -> None:
    refused = nodrop("agents", "add", "far", "--a2a", "ftp://far.example/")
    assert refused.code == 2
    assert "http(s)" in refused.err
