import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Send = Callable[..., str]


def remembered(home: Path, agent: str) -> dict[str, int]:
    return json.loads((home / "attempts.json").read_text()).get(agent, {})


def test_the_inbox_shows_what_waits(nodrop: Run, send: Send) -> None:
    ref = send("--title", "Look at this", to="reader")
    shown = nodrop("inbox", "--agent", "reader", COLUMNS="80")
    assert shown.code == 0
    header, row, below = shown.out.splitlines()
    assert header.split() == ["seq", "kind", "what", "when"]
    assert all(word in row for word in ("handoff", "a: Look at this"))
    assert row.rstrip().endswith(("now", "ago"))
    assert below.strip() == ref
    [item] = nodrop("inbox", "--agent", "reader", "--json").json["items"]
    seq = str(item["seq"])
    assert nodrop("inbox", "--agent", "reader", "--after", seq, "--json").json["items"] == []


def test_an_empty_inbox_says_so(nodrop: Run) -> None:
    assert nodrop("inbox", "--agent", "idle").out == "Nothing waits for idle.\n"
    assert nodrop("take", "--agent", "idle").out == "Nothing to take.\n"
    assert nodrop("inbox", "--agent", "idle", "--wait", "20ms", "--json").json["items"] == []


def test_what_no_longer_waits_is_shown_on_request(nodrop: Run, send: Send) -> None:
    ref = send(to="once")
    nodrop("ack", ref, "--agent", "once")
    nodrop("done", ref, "--agent", "once")
    assert nodrop("inbox", "--agent", "once", "--json").json["items"] == []
    [item] = nodrop("inbox", "--agent", "once", "--all", "--json").json["items"]
    assert (item["ref"], item["open"]) == (ref, False)


def test_work_is_taken_acknowledged_updated_and_done(nodrop: Run, send: Send, home: Path) -> None:
    ref = send("--payload", '{"n": 1}', to="worker")
    taken = nodrop("take", "--agent", "worker")
    assert f"{ref}  delivered" in taken.out
    assert '"n": 1' in taken.out
    assert f"→ nodrop ack {ref}" in taken.err
    options = ["--status", "Added to queue", "--position", "2", "--eta", "2h"]
    acked = nodrop("ack", ref, *options, "--next-update", "10m", "--agent", "worker")
    assert acked.out == ""
    assert f"✓ acknowledged {ref} attempt 1" in acked.err
    assert "worker owes the next update or the result by" in acked.err
    updated = nodrop("update", ref, "reproducing", "--agent", "worker", "--json").handoff
    assert updated["ack"]["status"] == "reproducing"
    assert remembered(home, "worker") == {updated["id"]: 1}
    ended = nodrop("done", ref, "-", "--agent", "worker", "--json", stdin="fixed\n").handoff
    assert ended["outcome"]["result"] == "fixed"
    assert remembered(home, "worker") == {}


def test_something_offered_is_acknowledged_without_taking_it(nodrop: Run, send: Send) -> None:
    acked = nodrop("ack", send(), "--agent", "b", "--json").handoff
    assert (acked["state"], acked["attempt"]) == ("accepted", 1)


def test_what_cannot_be_begun_yet_is_acknowledged_as_queued(nodrop: Run, send: Send) -> None:
    first, second, third = (send("--title", f"bug {n}", to="busy") for n in range(3))
    nodrop("ack", first, "--agent", "busy")
    queue = ["--queued", "--eta", "2h", "--next-update", "20m", "--agent", "busy"]
    acked = nodrop("ack", second, *queue, "--status", "Added to queue")
    assert f"✓ acknowledged {second} queued 2 of 3" in acked.err
    assert "busy owes the next update by" in acked.err
    queued = nodrop("ack", third, *queue, "--json").handoff
    assert (queued["state"], queued["attempt"], queued["tries"]) == ("offered", 0, 0)
    assert {name: queued["ack"][name] for name in ("queued", "position", "of")} == {
        "queued": True,
        "position": 3,
        "of": 3,
    }
    assert f"{second}  queued 2 of 3" in nodrop("track", second).out
    rows = nodrop("inbox", "--agent", "busy").out
    assert "bug 1 (queued 2 of 3)" in rows
    assert "bug 2 (queued 3 of 3)" in rows
    assert "busy: queued 2 of 3" in nodrop("top").out
    nodrop("done", first, "--agent", "busy")
    assert "bug 2 (queued 2 of 2)" in nodrop("inbox", "--agent", "busy").out


def test_what_another_process_has_is_not_queued(nodrop: Run, send: Send) -> None:
    ref = send(to="shared")
    nodrop("take", "--agent", "shared")
    held = nodrop("ack", ref, "--queued", "--agent", "shared")
    assert (held.code, f"✓ already delivered: {ref} attempt 1" in held.err) == (0, True)
    refused = nodrop("ack", ref, "--queued", "--attempt", "1", "--agent", "shared", "--json")
    assert (refused.code, refused.json["code"]) == (2, "invalid_request")


def test_a_question_parks_the_work_and_its_answer_brings_it_back(
    nodrop: Run, send: Send, home: Path
) -> None:
    ref = send(to="asker")
    nodrop("ack", ref, "--agent", "asker")
    blocked = nodrop("ask", ref, "Which version?", "--to", "me", "--agent", "asker", "--json")
    assert (blocked.handoff["state"], blocked.handoff["holder"]) == ("blocked", "me")
    assert remembered(home, "asker") == {}
    nodrop("answer", ref, "3.4.1")
    early = nodrop("done", ref, "--agent", "asker")
    assert early.code == 2
    assert f"→ Say that you have it: nodrop ack {ref}" in early.err
    again = nodrop("ack", ref, "--agent", "asker", "--json").handoff
    assert (again["attempt"], again["answers"]) == (2, {"Which version?": "3.4.1"})
    assert nodrop("done", ref, "--agent", "asker").code == 0


def test_a_superseded_attempt_is_refused_and_forgotten(nodrop: Run, send: Send, home: Path) -> None:
    ref = send(to="worker2")
    handoff = nodrop("ack", ref, "--agent", "worker2", "--json").handoff
    nodrop("reassign", ref, "--to", "worker3", "--agent", "a")
    assert nodrop("ack", ref, "--agent", "worker3").code == 0
    assert remembered(home, "worker2") == {handoff["id"]: 1}
    stale = nodrop("done", ref, "--agent", "worker2")
    assert stale.code == 4
    assert "stale_attempt" in stale.err
    assert remembered(home, "worker2") == {}


def test_an_attempt_can_be_named(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    wrong = nodrop("update", ref, "x", "--attempt", "7", "--agent", "b", "--json")
    assert (wrong.code, wrong.json["code"]) == (4, "stale_attempt")
    assert nodrop("update", ref, "x", "--attempt", "1", "--agent", "b").code == 0


def test_the_current_attempt_stands_in_for_a_forgotten_one(
    nodrop: Run, send: Send, home: Path
) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    (home / "attempts.json").unlink()
    assert nodrop("update", ref, "still here", "--agent", "b").code == 0
    stranger = nodrop("update", ref, "not mine", "--agent", "c", "--json")
    assert stranger.code in {1, 3}


def test_a_command_of_nodrop_work_knows_its_attempt(nodrop: Run, send: Send) -> None:
    ref = send()
    handoff = nodrop("ack", ref, "--agent", "b", "--json").handoff
    ours = {"NODROP_HANDOFF_ID": handoff["id"], "NODROP_ATTEMPT": "9", "NODROP_AGENT": "b"}
    assert nodrop("update", ref, "x", "--json", **ours).json["code"] == "stale_attempt"
    ours["NODROP_ATTEMPT"] = "1"
    assert nodrop("update", ref, "x", **ours).code == 0


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        (["fail", "broken"], "failed"),
        (["fail", "later", "--retryable"], "offered"),
        (["reject", "not mine"], "rejected"),
        (["release", "--reason", "lunch", "--checkpoint", '{"seen": 3}'], "offered"),
    ],
)
def test_work_ends_in_other_ways(nodrop: Run, send: Send, verb: list[str], state: str) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    name, *rest = verb
    ended = nodrop(name, ref, *rest, "--agent", "b", "--json")
    assert (ended.code, ended.handoff["state"]) == (0, state)


def test_something_offered_can_be_rejected_at_once(nodrop: Run, send: Send) -> None:
    rejected = nodrop("reject", send(), "too busy", "--agent", "b", "--json").handoff
    assert rejected["outcome"] | {"at": None} == {
        "state": "rejected",
        "at": None,
        "by": "b",
        "code": "rejected",
        "reason": "too busy",
        "verified": False,
    }


def test_what_an_earlier_attempt_left_is_shown(nodrop: Run, send: Send) -> None:
    ref = send(to="heir")
    nodrop("ack", ref, "--agent", "heir")
    nodrop("release", ref, "--checkpoint", '{"seen": 3}', "--agent", "heir")
    assert 'checkpoint  {"seen": 3}' in nodrop("take", "--agent", "heir").out
