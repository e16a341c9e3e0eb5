from collections.abc import Callable
from typing import Any

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
