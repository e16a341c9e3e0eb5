import json
import webbrowser
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import pytest

Run = Callable[..., Any]


def test_a_token_is_printed_alone_and_works(nodrop: Run) -> None:
    made = nodrop("token", "code_agent")
    assert (made.code, made.err) == (0, "")
    token = made.out.strip()
    nodrop("send", "--to", "code_agent", "--key", "for-the-token")
    items = nodrop("inbox", "--token", token, "--json").json["items"]
    assert [item["ref"] for item in items] == ["me/for-the-token"]


def test_a_token_alone_says_whose_attempts_it_remembers(nodrop: Run) -> None:
    token = nodrop("token", "tokened").out.strip()
    nodrop("send", "--to", "tokened", "--key", "tokened")
    for command in (["ack", "me/tokened"], ["update", "me/tokened", "x"], ["done", "me/tokened"]):
        assert nodrop(*command, "--token", token).code == 0


def test_a_token_alone_says_whose_outcome_is_settled(nodrop: Run) -> None:
    token = nodrop("token", "asker").out.strip()
    nodrop("send", "--to", "b", "--key", "settled", "--token", token)
    nodrop("ack", "asker/settled", "--agent", "b")
    nodrop("done", "asker/settled", "--agent", "b")
    assert nodrop("wait", "asker/settled", "--token", token).code == 0
    assert nodrop("track", "asker/settled", "--json").handoff["settled_at"] is not None


def test_a_token_can_be_an_operators(nodrop: Run) -> None:
    token = nodrop("token", "boss", "--role", "operator", "--json").json["token"]
    assert nodrop("token", "other", "--token", token).code == 0


def test_only_an_operator_makes_tokens(nodrop: Run) -> None:
    token = nodrop("token", "plain").out.strip()
    refused = nodrop("token", "other", "--token", token)
    assert (refused.code, refused.out) == (1, "")
    assert "forbidden" in refused.err


def test_tokens_are_made_in_a_directory_that_works_as_an_agent(nodrop: Run) -> None:
    assert nodrop("token", "other", NODROP_AGENT="code_agent").code == 0


def test_a_wrong_token_is_refused(nodrop: Run) -> None:
    refused = nodrop("inbox", "--token", "nd_wrong", "--agent", "a", "--json")
    assert (refused.code, refused.json["code"]) == (1, "unauthenticated")


def test_tokens_are_listed_and_revoked(nodrop: Run) -> None:
    kept, lost = (nodrop("token", "listed", "--json", "--label", n).json for n in ("a", "b"))
    assert nodrop("token", "--revoke", lost["token_id"]).code == 0
    shown = nodrop("token", "listed", "--list")
    assert kept["token_id"] in shown.out
    assert lost["token_id"] not in shown.out
    assert nodrop("inbox", "--token", lost["token"]).code != 0
    assert nodrop("inbox", "--token", kept["token"]).code == 0


def test_a_token_is_for_somebody(nodrop: Run) -> None:
    refused = nodrop("token")
    assert refused.code == 2
    assert "--list" in refused.err


# --- links ---------------------------------------------------------------------------------------


def redeem(link: str) -> Any:
    """Return what the page is answered when it redeems the code of a link."""
    base, _, code = link.partition("/#signin=")
    with closing(HTTPConnection(base.removeprefix("http://"), timeout=20)) as relay:
        relay.request("POST", "/v1/links/redeem", body=json.dumps({"code": code}))
        return json.load(relay.getresponse())


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the addresses that a browser was opened at."""
    addresses: list[str] = []

    def open_(url: str) -> bool:
        addresses.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", open_)
    return addresses


def no_browser(_: str) -> bool:
    return False


def test_open_signs_a_browser_in_once(nodrop: Run, opened: list[str]) -> None:
    made = nodrop("open")
    assert (made.code, made.out.strip()) == (0, opened[0])
    assert "opened in your browser" in made.err
    assert "works one time; expires in 1" in made.err
    signed_in = redeem(opened[0])
    assert (signed_in["agent"], signed_in["role"]) == ("me", "operator")
    assert nodrop("inbox", "--token", signed_in["token"]).code == 0


def test_open_prints_the_address_where_there_is_no_browser(
    nodrop: Run, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = nodrop("open", "--print")
    assert redeem(printed.out.strip())["agent"] == "me"
    assert opened == []
    monkeypatch.setattr(webbrowser, "open", no_browser)
    without = nodrop("open")
    assert redeem(without.out.strip())["agent"] == "me"
    assert "opened" not in without.err


def test_a_view_link_is_for_others_and_is_revoked_with_the_tokens(
    nodrop: Run, opened: list[str]
) -> None:
    made = nodrop("open", "--view", "--expires", "2h")
    assert opened == []
    assert "without payloads; it expires in" in made.err
    viewer = redeem(made.out.strip())
    assert (viewer["role"], viewer["payloads"]) == ("observer", False)
    listed = nodrop("token", "--list")
    assert "view link" in listed.out
    assert f"nodrop token --revoke {viewer['token_id']}" in made.err
    assert nodrop("agents", "--token", viewer["token"]).code == 0
    assert nodrop("send", "--to", "b", "--token", viewer["token"]).code == 1
    assert nodrop("token", "--revoke", viewer["token_id"]).code == 0
    assert nodrop("agents", "--token", viewer["token"]).code == 1


def test_a_link_that_shows_payloads_says_so(nodrop: Run) -> None:
    made = nodrop("open", "--view", "--payloads", "--json").json
    assert redeem(made["url"])["payloads"] is True
    assert "view link, with payloads" in nodrop("token", "--list").out
    refused = nodrop("open", "--payloads")
    assert refused.code == 2
    assert "--payloads" in refused.err


def test_a_database_has_no_page_to_open(nodrop: Run, tmp_path: Any) -> None:
    refused = nodrop("open", "--url", str(tmp_path / "team.db"))
    assert refused.code == 2
    assert "nodrop up" in refused.err
    assert not (tmp_path / "team.db").exists()
