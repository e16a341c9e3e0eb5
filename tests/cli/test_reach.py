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


def test_what_is_no_address_is_refused(nodrop: Run) -> None:
    refused = nodrop("agents", "add", "far", "--a2a", "ftp://far.example/")
    assert refused.code == 2
    assert "http(s)" in refused.err
