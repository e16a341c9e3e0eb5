import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Send = Callable[..., str]

BLOCK = """\
HANDOFF: inbox_monitor → code_agent
TRIGGER: Bug report detected
PRIORITY: medium
PAYLOAD: {
"email_id": "msg_123",
"reproduction_steps": [...]
}
DEADLINE: 4 hours
ESCALATION: If no response in 1 hour, notify meThe coding agent receives this, and so on
"""


def test_a_text_block_is_sent_as_it_is_written(nodrop: Run) -> None:
    sent = nodrop("send", "-", "--key", "bug_123", stdin=BLOCK)
    assert (sent.code, sent.out) == (0, "inbox_monitor/bug_123\n")
    warning = "! line 6 (PAYLOAD): `[...]` is sent as an empty list; write out what belongs there"
    assert sent.err.splitlines()[0] == warning
    shown = nodrop("track", "inbox_monitor/bug_123", "--json").handoff
    assert (shown["from"], shown["to"]) == ("inbox_monitor", "code_agent")
    assert shown["trigger"] == "Bug report detected"
    assert shown["payload"] == {"email_id": "msg_123", "reproduction_steps": []}
    assert shown["escalation"] == [{"when": "unacknowledged", "after": "1h", "notify": "me"}]


def test_an_offer_is_sent_from_a_json_file(nodrop: Run, tmp_path: Path) -> None:
    file = tmp_path / "offer.json"
    offer = {"to": "b", "title": "T", "payload": {"n": 1}, "then": [{"to": "c"}], "from": "a"}
    file.write_text(json.dumps(offer))
    shown = nodrop("send", file, "--json", "--agent", "a").handoff
    assert (shown["title"], shown["payload"], shown["chain"]["next"]) == ("T", {"n": 1}, ["c"])


def test_an_offer_is_made_of_options(nodrop: Run, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('{"n": 2}')
    options = ["--to", "b", "--title", "T", "--trigger", "X", "--priority", "high"]
    options += ["--payload", "@payload.json", "--deadline", "2h", "--key", "of-options"]
    shown = nodrop("send", *options, "--json").handoff
    assert shown["ref"] == "me/of-options"
    assert (shown["title"], shown["trigger"], shown["priority"]) == ("T", "X", "high")
    assert shown["payload"] == {"n": 2}


def test_an_offer_opts_out_of_the_teams_steps(nodrop: Run) -> None:
    shown = nodrop("send", "--to", "b", "--title", "loud", "--json").handoff
    assert (shown["escalation"], len(shown["team_steps"])) == (None, 3)
    shown = nodrop("send", "--to", "b", "--title", "quiet", "--no-escalation", "--json").handoff
    assert (shown["escalation"], shown["team_steps"]) == ([], [])
    block = "HANDOFF: a → b\nTITLE: quiet\nESCALATION: none\n"
    shown = nodrop("send", "-", "--json", stdin=block).handoff
    assert (shown["escalation"], shown["team_steps"]) == ([], [])


def test_options_overrule_the_file(nodrop: Run) -> None:
    shown = nodrop("send", "-", "--to", "c", "--json", stdin='{"to": "b", "title": "T"}').handoff
    assert (shown["to"], shown["title"]) == ("c", "T")


def test_sending_again_says_that_it_was_sent_before(nodrop: Run) -> None:
    first = nodrop("send", "--to", "b", "--title", "T", "--key", "twice")
    again = nodrop("send", "--to", "b", "--title", "T", "--key", "twice")
    assert "✓ stored me/twice" in first.err
    assert "✓ stored before, and not again: me/twice" in again.err
    assert (again.code, again.out) == (0, "me/twice\n")


def test_the_same_typed_again_is_recognised_without_a_key(nodrop: Run) -> None:
    offer = ["send", "--to", "b", "--title", "typed twice", "--agent", "a"]
    first, again = nodrop(*offer), nodrop(*offer)
    assert (first.code, again.code, again.out) == (0, 0, first.out)
    assert "stored before, and not again" in again.err
    assert "give it a --key" in again.err
    assert nodrop(*offer, "--key", "typed-thrice").out != first.out


def test_another_request_with_the_same_key_is_a_conflict(nodrop: Run) -> None:
    nodrop("send", "--to", "b", "--title", "T", "--key", "taken")
    other = nodrop("send", "--to", "b", "--title", "U", "--key", "taken")
    assert (other.code, other.out) == (4, "")
    assert "idempotency_conflict" in other.err


@pytest.mark.parametrize(
    ("arguments", "stdin", "path"),
    [
        (["send", "-"], '{"to": "b", "color": "red"}', "color"),
        (["send", "-"], '{"to": "b", "priority": "asap"}', "priority"),
        (["send", "-"], '{"to": "b",\n "title": }', "stdin line 2 column 11"),
        (["send", "-"], "HANDOFF: a → b\nSEVERITY: high", "line 2 (SEVERITY)"),
        (["send", "--to", "b", "--payload", "{"], None, "--payload line 1 column 2"),
        (["send", "--to", "b", "--deadline", "soon"], None, "deadline"),
        (["send", "--to", "b", "--wait", "soon"], None, "--wait"),
        (["send"], None, "FILE"),
        (["wait", "x", "--for", "soon"], None, "--for"),
    ],
)
def test_bad_input_is_refused_with_its_place(
    nodrop: Run, arguments: list[str], stdin: str | None, path: str
) -> None:
    refused = nodrop(*arguments, "--json", stdin=stdin)
    assert refused.code == 2
    assert [problem["path"] for problem in refused.json["errors"]] == [path]
    told = nodrop(*arguments, stdin=stdin)
    assert (told.code, told.out) == (2, "")
    assert f"\n  {path}: " in told.err


def test_a_wait_that_runs_out_is_no_failure(nodrop: Run, send: Send) -> None:
    ref = send()
    elapsed = nodrop("wait", ref, "--for", "50ms", "--agent", "a")
    assert (elapsed.code, elapsed.out) == (75, "")
    assert "goes on: offered, last rung stored" in elapsed.err
    as_json = nodrop("wait", ref, "--for", "50ms", "--json").json
    assert as_json["wait_elapsed"] is True
    assert as_json["handoff"]["state"] == "offered"


def test_waiting_prints_the_result_and_settles(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    nodrop("done", ref, '{"timeline": "Friday"}', "--agent", "b")
    ended = nodrop("wait", ref, "--agent", "a")
    assert (ended.code, json.loads(ended.out)) == (0, {"timeline": "Friday"})
    assert nodrop("track", ref, "--json").handoff["receipts"][-1]["rung"] == "settled"


def test_whoever_is_not_the_requester_only_looks(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    nodrop("done", ref, "ok", "--agent", "b")
    assert nodrop("wait", ref).out == "ok\n"
    assert nodrop("track", ref, "--json").handoff["settled_at"] is None
    assert nodrop("settle", ref, "--agent", "a").code == 0
    assert nodrop("track", ref, "--json").handoff["settled_at"] is not None


def test_a_failed_outcome_is_exit_1(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    nodrop("fail", ref, "no such branch", "--agent", "b", "--code", "no_branch")
    ended = nodrop("wait", ref, "--agent", "a")
    assert (ended.code, ended.out) == (1, "")
    assert "failed by b (no_branch: no such branch)" in ended.err


def test_waiting_for_a_rung_ends_with_it(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    reached = nodrop("wait", ref, "--until", "acknowledged", "--json")
    assert (reached.code, reached.handoff["state"]) == (0, "accepted")


def test_waiting_for_a_chain_gives_the_last_result(nodrop: Run) -> None:
    block = "HANDOFF: a → b\nTHEN: c\nKEY: chain"
    assert nodrop("send", "-", "--agent", "a", stdin=block).code == 0
    for agent in ("b", "c"):
        leg = nodrop("inbox", "--agent", agent, "--json").json["items"][-1]["handoff_id"]
        nodrop("ack", leg, "--agent", agent)
        assert nodrop("done", leg, f"by {agent}", "--agent", agent).code == 0
    assert nodrop("wait", "a/chain", "--chain", "--agent", "a").out == "by c\n"


def test_sending_can_wait_for_the_outcome(nodrop: Run) -> None:
    offer = ["send", "--to", "b", "--key", "waited", "--agent", "a"]
    assert nodrop(*offer, "--wait", "10ms").code == 75
    nodrop("ack", "a/waited", "--agent", "b")
    nodrop("done", "a/waited", "42", "--agent", "b")
    ended = nodrop(*offer, "--wait", "10s")
    assert (ended.code, ended.out) == (0, "42\n")


def test_a_wait_that_cannot_be_read_is_refused_before_anything_is_sent(nodrop: Run) -> None:
    assert nodrop("send", "--to", "b", "--key", "unsent", "--wait", "soon").code == 2
    assert nodrop("track", "me/unsent").code == 3


def test_a_question_is_answered_by_its_reference_alone(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    nodrop("ask", ref, "Which version?", "--agent", "b")
    assert nodrop("answer", ref, "3.4.1", "--agent", "a").code == 0
    shown = nodrop("track", ref, "--json", "--agent", "b").handoff
    assert (shown["state"], shown["answers"]) == ("offered", {"Which version?": "3.4.1"})
    late = nodrop("answer", ref, "3.5", "--agent", "a")
    assert late.code == 4
    assert "stale_question" in late.err


def test_a_counter_is_agreed_to_or_declined(nodrop: Run, send: Send) -> None:
    agreed, declined = send(), send()
    for ref in (agreed, declined):
        countered = nodrop("counter", ref, "--deadline", "48h", "--agent", "b", "--json").handoff
        assert countered["question"]["kind"] == "terms"
    assert nodrop("agree", agreed, "--agent", "a", "--json").handoff["state"] == "accepted"
    assert nodrop("decline", declined, "--agent", "a", "--json").handoff["state"] == "rejected"


def test_a_handoff_is_given_to_somebody_else_or_withdrawn(nodrop: Run, send: Send) -> None:
    ref = send()
    assert nodrop("reassign", ref, "--to", "c", "--agent", "a", "--json").handoff["to"] == "c"
    cancelled = nodrop("cancel", ref, "no longer wanted", "--agent", "a", "--json").handoff
    assert cancelled["outcome"]["reason"] == "no longer wanted"


def test_an_unknown_handoff_is_exit_3(nodrop: Run) -> None:
    missing = nodrop("wait", "a/nothing")
    assert (missing.code, missing.out) == (3, "")
    assert missing.err.startswith("✗ No such thing here  not_found\n")
    named = re.findall(r"`nodrop ([a-z ]+)`", missing.err)
    assert named
    for verb in named:  # each lists something as it is written there
        assert nodrop(*verb.split()).code == 0
