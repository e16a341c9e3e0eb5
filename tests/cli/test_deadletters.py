from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]
Send = Callable[..., str]


@pytest.fixture
def dead(nodrop: Run, send: Send) -> str:
    ref = send("--title", "Doomed")
    nodrop("ack", ref, "--agent", "b")
    nodrop("fail", ref, "no such branch", "--agent", "b")
    return ref


def noticed(nodrop: Run) -> list[str]:
    items = nodrop("inbox", "--each", "--json").json["items"]
    return [item["ref"] for item in items if item["kind"] == "notice"]


def test_notices_of_one_cause_are_shown_once_in_80_columns(nodrop: Run, send: Send) -> None:
    nodrop("dismiss", "--all")
    refs = [send("--title", f"Bug {n}", to="gatherer") for n in range(10)]
    for ref in refs:
        nodrop("ack", ref, "--agent", "gatherer")
        nodrop("fail", ref, "no such branch", "--agent", "gatherer")
    shown = nodrop("inbox", COLUMNS="80")
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= 80
    told = " ".join(shown.out.split())
    assert "10 handoffs failed with gatherer" in told
    assert '(the team\'s step "dead")' in told
    assert "(Bug 0)" in told
    assert "(Bug 3)" not in told
    assert "and 7 more" in told
    assert "nodrop dlq list" in told
    each = nodrop("inbox", "--each").out
    assert all(f"nodrop dlq redrive {ref}" in each for ref in refs)
    dismissed = nodrop("dismiss", refs[0], "--alike", "--json").json["handoffs"]
    assert {h["ref"] for h in dismissed} == set(refs)
    assert not set(refs) & set(noticed(nodrop))


def test_dead_letters_are_listed_with_their_reason(nodrop: Run, dead: str) -> None:
    listed = nodrop("dlq", "list")
    row = next(row for row in listed.out.splitlines() if dead in row)
    assert all(words in row for words in ("failed", "a → b", "failed no such branch"))
    assert "→ nodrop dlq redrive|discard|accept REF" in listed.err
    assert dead in {h["ref"] for h in nodrop("dlq", "list", "--json").json["handoffs"]}


def test_a_dead_letter_is_shown_in_full(nodrop: Run, dead: str) -> None:
    assert "outcome  failed by b (failed: no such branch)" in nodrop("dlq", "show", dead).out


def test_a_dead_letter_is_redriven_once(nodrop: Run, dead: str) -> None:
    redriven = nodrop("dlq", "redrive", dead, "--to", "c", "--reason", "b is ill", "--json")
    old, successor = redriven.handoff["id"], redriven.handoff["successor"]
    shown = nodrop("track", successor, "--json").handoff
    assert (shown["to"], shown["redrive_of"], shown["ref"]) == ("c", old, dead)
    again = nodrop("dlq", "redrive", old)
    assert again.code == 4
    assert "already_decided" in again.err


def test_a_redrive_says_where_it_goes_on(nodrop: Run, dead: str) -> None:
    told = nodrop("dlq", "redrive", dead).err
    successor = nodrop("track", dead, "--json").handoff["id"]
    assert "✓ redriven" in told
    assert f"→ nodrop track {successor}" in told


def test_a_dead_letter_is_laid_to_rest(nodrop: Run, dead: str) -> None:
    handoff_id = nodrop("track", dead, "--json").handoff["id"]
    assert "✓ discarded" in nodrop("dlq", "discard", dead, "--reason", "obsolete").err
    listed = nodrop("dlq", "list", "--json").json["handoffs"]
    assert handoff_id not in {handoff["id"] for handoff in listed}


def test_its_notice_is_dismissed_and_the_dead_letter_stays(nodrop: Run, dead: str) -> None:
    assert dead in noticed(nodrop)
    dismissed = nodrop("dismiss", dead)
    assert f"✓ dismissed the notices about {dead}" in dismissed.err
    assert dead not in noticed(nodrop)
    assert dead in {h["ref"] for h in nodrop("dlq", "list", "--json").json["handoffs"]}
    assert "dismissed" in nodrop("log", "--handoff", dead).out


def test_every_notice_is_dismissed_at_once(nodrop: Run, send: Send) -> None:
    refs = [send(), send()]
    for ref in refs:
        nodrop("reject", ref, "no time", NODROP_AGENT="b")
    dismissed = nodrop("dismiss", "--all", "--json").json["handoffs"]
    assert set(refs) <= {h["ref"] for h in dismissed}
    assert noticed(nodrop) == []
    assert "No notice waits." in nodrop("dismiss", "--all").out


@pytest.mark.parametrize("said", [(), ("--all", "x"), ("--all", "--inbox", "b")])
def test_which_notices_to_dismiss_must_be_said(nodrop: Run, said: tuple[str, ...]) -> None:
    refused = nodrop("dismiss", *said, NODROP_AGENT="me")
    assert refused.code == 2
    assert "Name handoffs, or --all" in refused.err


def test_there_is_nothing_late_to_accept(nodrop: Run, dead: str) -> None:
    refused = nodrop("dlq", "accept", dead)
    assert refused.code == 4
    assert "it has no late result to accept" in refused.err
