import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., Any]


def publish(nodrop: Run, folder: Path, name: str) -> None:
    file = folder / f"{name}.json"
    file.write_text(json.dumps({"agent_id": name, "capabilities": []}))
    assert nodrop("agents", "publish", file).code == 0


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
    assert (
        dropped.err == f"✓ openclaw is no longer delivered to at {place}; its mail is kept here\n"
    )


def test_an_agent_of_this_team_has_no_address_to_drop(nodrop: Run, tmp_path: Path) -> None:
    publish(nodrop, tmp_path, "local")
    refused = nodrop("agents", "drop", "local")
    assert (refused.code, refused.out) == (4, "")
    assert "local lives in this team" in refused.err
    assert "→ To take it off the list: nodrop agents remove local" in refused.err


def test_an_agent_is_removed_and_its_mail_is_kept(nodrop: Run, tmp_path: Path) -> None:
    publish(nodrop, tmp_path, "leaver")
    nodrop("send", "--to", "leaver", "--key", "kept")
    removed = nodrop("agents", "remove", "leaver")
    assert removed.code == 0
    assert removed.err.startswith("✓ leaver is off the list")
    listed = [agent["agent_id"] for agent in nodrop("agents", "--json").json["agents"]]
    assert "leaver" not in listed
    assert nodrop("track", "me/kept", "--json").handoff["state"] == "offered"
    publish(nodrop, tmp_path, "leaver")
    assert "leaver" in nodrop("agents").out


def test_an_agent_elsewhere_is_removed_with_its_address(nodrop: Run) -> None:
    nodrop("agents", "add", "moved", "--a2a", "https://far.example/")
    assert nodrop("agents", "remove", "moved").code == 0
    assert "moved" not in nodrop("agents").out
    nodrop("agents", "publish", "-", stdin='{"agent_id": "moved", "capabilities": []}')
    assert nodrop("agents", "drop", "moved").code == 4, "nothing is delivered elsewhere any more"


def test_an_agent_removes_itself_and_nobody_else(nodrop: Run, tmp_path: Path) -> None:
    publish(nodrop, tmp_path, "self_remover")
    publish(nodrop, tmp_path, "stayer")
    refused = nodrop("agents", "remove", "stayer", "--agent", "self_remover", "--json")
    assert (refused.code, refused.json["code"]) == (1, "forbidden")
    assert nodrop("agents", "remove", "self_remover", "--agent", "self_remover").code == 0


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
    for verb in ("open", "close", "drop", "remove"):
        refused = nodrop("agents", verb, "nobody")
        assert refused.code == 3
        assert "nodrop agents" in refused.err
    assert "nobody" not in nodrop("agents").out


def test_what_is_no_address_is_refused(nodrop: Run) -> None:
    refused = nodrop("agents", "add", "far", "--a2a", "ftp://far.example/")
    assert refused.code == 2
    assert "http(s)" in refused.err
