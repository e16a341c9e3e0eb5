import json

import pytest

from nodrop.cli import screen
from nodrop.model.errors import PayloadInvalidError, Problem
from nodrop.protocol.times import parse_time

ERROR = PayloadInvalidError(
    "it does not fit web_research",
    errors=(Problem(path="payload.depth", message="expected an integer"),),
)


def test_words_of_an_agent_cannot_command_the_terminal() -> None:
    said = "\x1b[2J\x1b]0;owned\x07 fine \u202eevil\nnext\ttab [bold]not markup[/]"
    assert screen.clean(said) == "�[2J�]0;owned� fine �evil\nnext\ttab [bold]not markup[/]"


UNSEEN = "\x00\x1b\x7f\x9b\xad\u061c\u200b\u2028\u202e\u2066\ufeff\U000e0041"


def test_what_nobody_sees_is_replaced_on_a_terminal_and_escaped_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert screen.clean(f"a{UNSEEN}b") == "a" + "�" * len(UNSEEN) + "b"
    kept = "é 日本 👩\u200d🔬 می\u200cخواهم\ttab"
    assert screen.clean(kept) == kept
    for show in (screen.document, screen.value):
        show({"text": f"{kept}{UNSEEN}", UNSEEN: 1})
        printed = capsys.readouterr().out
        assert not set(printed) & set(UNSEEN)
        assert json.loads(printed) == {"text": f"{kept}{UNSEEN}", UNSEEN: 1}, "the same document"
        assert "日本 👩\u200d🔬" in printed, "and no other character is spelled out"


def test_words_of_an_agent_stay_on_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    screen.success("noted ", ("a\nb [red]c[/red]", "bold"))
    assert capsys.readouterr().err == "✓ noted a b [red]c[/red]\n"


def test_a_problem_is_told_in_words_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    screen.problem(ERROR, as_json=False)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "✗ The payload does not fit the capability's input schema  payload_invalid",
        "  it does not fit web_research",
        "  payload.depth: expected an integer",
        "→ Correct the payload and send it again.",
    ]


def test_a_problem_is_one_json_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    screen.problem(ERROR, as_json=True)
    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out) == {
        "type": "about:blank",
        "title": "The payload does not fit the capability's input schema",
        "status": 422,
        "code": "payload_invalid",
        "detail": "it does not fit web_research",
        "retryable": False,
        "fault": "caller",
        "next": "Correct the payload and send it again.",
        "errors": [{"path": "payload.depth", "message": "expected an integer"}],
    }


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("2026-11-15T12:00:00.400Z", "now"),
        ("2026-11-15T14:00:00.000Z", "in 2 hours"),
        ("2026-11-15T11:57:00.000Z", "3 minutes ago"),
        ("2026-11-17T13:02:03.000Z", "in 2 days 1 hour"),
    ],
)
def test_times_are_told_as_distances(at: str, words: str) -> None:
    assert screen.ago(at, parse_time("2026-11-15T12:00:00Z")) == words


def test_a_result_is_printed_for_a_shell_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    screen.value("plain text")
    screen.value({"a": ["ü"]})
    assert capsys.readouterr().out == 'plain text\n{\n  "a": [\n    "ü"\n  ]\n}\n'
