import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
Send = Callable[..., str]

pytestmark = pytest.mark.timeout(180)  # real processes, on a machine that does other things too

SECONDS_MAX = 60


@pytest.mark.parametrize(
    "verb",
    ["log", "log --json", "log --follow", "log --follow --json", "export", "agents", "token x"],
)
def test_a_verb_whose_reader_has_left_ends_quietly_as_a_pipe_does(home: Path, verb: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "nodrop.cli", *verb.split(), "--home", str(home)],
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=subprocess.PIPE,
            timeout=SECONDS_MAX,
            check=False,
        )
    finally:
        os.close(write)
    assert done.stderr == b""
    assert done.returncode == 141  # as the shell shows a program that SIGPIPE ended


def test_track_shows_contract_ladder_and_who_owes_what(nodrop: Run) -> None:
    block = (
        "HANDOFF: a → b\nTITLE: Login broken\nTRIGGER: Bug report\nPRIORITY: high\n"
        'PAYLOAD: {"n": 1}\nDEADLINE: 4 hours\n'
        "ESCALATION: If no response in 1 hour, notify me\nTHEN: c → d\nKEY: tracked"
    )
    nodrop("send", "-", "--agent", "a", stdin=block)
    options = ["--status", "Added to queue", "--position", "2", "--eta", "2h"]
    nodrop("ack", "a/tracked", *options, "--agent", "b")
    shown = [line.rstrip() for line in nodrop("track", "a/tracked").out.splitlines()]
    assert shown[0] == "a/tracked  accepted  Login broken"
    assert shown[3:21] == [
        "  HANDOFF: a → b",
        "  TITLE: Login broken",
        "  TRIGGER: Bug report",
        "  PRIORITY: high",
        "  PAYLOAD: {",
        '    "n": 1',
        "  }",
        "  DEADLINE: 4 hours",
        "  ESCALATION: If no response in 1 hour, notify me",
        "  THEN: c → d",
        "  KEY: tracked",
        "",
        "  HANDOFF_ACK: b received a/tracked",
        "  STATUS: Added to queue (position 2)",
        "  ETA: 2 hours",
        "  NEXT_UPDATE: 30 minutes",
        "",
        shown[20],
    ]
    ladder = [line.split() for line in shown[20:26]]
    assert [row[:2] for row in ladder] == [
        ["●", "stored"],
        ["●", "delivered"],
        ["●", "acknowledged"],
        ["○", "finished"],
        ["○", "outcome_delivered"],
        ["○", "settled"],
    ]
    assert ladder[2][-3:] == ["b", "attempt", "1"]
    assert shown[27] == "  chain     a → [b] → c → d"
    assert shown[28].startswith("  holder    b owes the next update or the result by ")


def test_track_shows_the_open_question(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    nodrop("ask", ref, "Which version?", "--agent", "b")
    shown = nodrop("track", ref).out
    assert "question  b asks a: Which version?" in shown
    assert "holder    a owes an answer by" in shown


def test_track_shows_how_it_ended(nodrop: Run, send: Send) -> None:
    ref = send()
    nodrop("ack", ref, "--agent", "b")
    nodrop("done", ref, '{"ok": true}', "--agent", "b")
    assert 'outcome  completed by b: {"ok": true}' in nodrop("track", ref).out


def test_words_of_an_agent_cannot_command_the_terminal(nodrop: Run, send: Send) -> None:
    ref = send("--title", "\x1b[31mred\x1b]0;owned\x07")
    for command in (["track", ref], ["inbox", "--agent", "b"], ["log"]):
        assert "\x1b" not in nodrop(*command).out


def test_the_log_has_a_line_for_each_entry(nodrop: Run, send: Send) -> None:
    ref = send("--title", "Logged")
    nodrop("ack", ref, "--status", "on it", "--position", "1", "--agent", "b")
    rows = nodrop("log", "--handoff", ref).out.splitlines()
    assert [row.split()[2:4] for row in rows] == [
        ["offered", "a"],
        ["delivered", "b"],
        ["accepted", "b"],
    ]
    assert rows[0].endswith(f"{ref}  a → b: Logged")
    assert rows[2].endswith(f"{ref}  attempt 1, position 1: on it")


def test_the_log_tells_what_was_said_and_told_and_set(nodrop: Run, tmp_path: Path) -> None:
    rule = tmp_path / "rule.toml"
    rule.write_text('on = "mail"\n[offer]\nto = "b"\ntitle = "Mail"\n', encoding="utf-8")
    nodrop("say", "hello there", "--to", "listener", "--agent", "talker")
    nodrop("subscribe", "deploys", "--agent", "listener")
    nodrop("status", "stuck", "no device", "--topic", "deploys", "--agent", "talker")
    nodrop("triggers", "set", "mails", str(rule))
    nodrop("emit", "mail", '{"n": 1}', "--id", "m1", "--agent", "talker")
    nodrop("notify", "add", "https://one.example/", "--webhook", "--name", "hook")
    nodrop("notify", "remove", "hook")
    nodrop("triggers", "remove", "mails")
    lines = [" ".join(row.split()[2:]) for row in nodrop("log").out.splitlines()]
    for told in (
        "message said talker to listener: hello there",
        "topic subscribed listener deploys",
        "status told talker to listener (deploys): stuck: no device",
        "trigger set me mails",
        'event emitted talker mail m1, which fired mails: {"n": 1}',
        "outlet set me hook for me, webhook",
        "outlet removed me hook",
        "trigger removed me mails",
    ):
        assert told in lines


def test_the_log_of_a_chain_is_asked_for_by_any_of_its_handoffs(nodrop: Run) -> None:
    offer = {"to": "b", "title": "one", "correlation_id": "case 7", "idempotency_key": "seventh"}
    assert nodrop("send", "-", "--agent", "a", stdin=json.dumps(offer)).code == 0
    for chain in ("a/seventh", "case 7"):
        told = [
            json.loads(row) for row in nodrop("log", "--chain", chain, "--json").out.splitlines()
        ]
        assert [entry["type"] for entry in told] == ["handoff.offered.v1"]
    assert nodrop("log", "--chain", "nothing like it").out == ""


def test_the_log_is_one_json_document_per_line(nodrop: Run, send: Send) -> None:
    ref = send()
    [line] = nodrop("log", "--handoff", ref, "--json").out.splitlines()
    assert json.loads(line)["type"] == "handoff.offered.v1"


def test_the_log_is_read_to_its_end_page_by_page(nodrop: Run) -> None:
    for n in range(3):
        nodrop("note", f"note {n}")
    every = [json.loads(line)["seq"] for line in nodrop("log", "--json").out.splitlines()]
    assert every == list(range(1, len(every) + 1))
    assert len(nodrop("log", "--json", "--limit", "2").out.splitlines()) == 2
    notes = nodrop("log", "--json", "--type", "team.*", "--after", str(every[-4])).out
    assert [json.loads(line)["body"]["text"] for line in notes.splitlines()] == [
        "note 0",
        "note 1",
        "note 2",
    ]


def test_a_note_is_in_the_log(nodrop: Run, send: Send) -> None:
    ref = send()
    assert nodrop("note", "mind the gap", "--handoff", ref).code == 0
    assert nodrop("log", "--handoff", ref).out.splitlines()[-1].endswith(f"{ref}  mind the gap")
    assert "✓ noted in the log at " in nodrop("note", "hello").err


@contextmanager
def following(home: Path, *options: str) -> Generator[subprocess.Popen[str]]:
    environment = {"NODROP_HOME": str(home), "NO_COLOR": "1", "COLUMNS": "160"}
    with subprocess.Popen(
        [sys.executable, "-m", "nodrop.cli", "log", "--follow", *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait(SECONDS_MAX)


def test_the_log_can_be_followed(nodrop: Run, home: Path) -> None:
    nodrop("note", "before")
    with following(home, "--type", "team.noted.v1", "--json") as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        seen = next(entry for entry in map(json.loads, lines) if entry["body"]["text"] == "before")
        nodrop("note", "after")
        assert json.loads(next(lines))["body"]["text"] == "after"
        assert seen["type"] == "team.noted.v1"


def test_a_cursor_that_the_log_does_not_have_is_an_error_and_following_begins_again(
    nodrop: Run, home: Path
) -> None:
    nodrop("note", "something")
    ran = nodrop("log", "--after", "1000000", "--json")
    assert (ran.code, ran.json["code"]) == (4, "cursor_unknown")
    with following(home, "--after", "1000000", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["seq"] == 1
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
        assert process.stderr is not None
        assert "there is no entry 1000000" in process.stderr.read()


def test_following_ends_quietly_when_interrupted(nodrop: Run, home: Path) -> None:
    nodrop("note", "something")
    with following(home) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS_MAX) == 130
        assert process.stderr.read() == ""


def test_a_reader_that_leaves_is_no_reason_to_complain(nodrop: Run, home: Path) -> None:
    nodrop("note", "something")
    with following(home) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        nodrop("note", "something else")
        assert process.wait(SECONDS_MAX) == 141  # as the shell shows a program that SIGPIPE ended
        assert process.stderr.read() == ""


def test_agents_are_listed_with_what_waits_for_them(nodrop: Run, send: Send) -> None:
    send(to="b")
    listed = nodrop("agents")
    assert "me" in listed.out
    assert "The person this relay works for" in listed.out
    assert nodrop("agents", "--capability", "nothing_like_it", "--json").json == {"agents": []}
    assert "No agents yet" in nodrop("agents", "--capability", "nothing_like_it").out
