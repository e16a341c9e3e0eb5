import textwrap
from typing import Any

import pytest

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol import text

# The article as it was published, line breaks lost where it lost them.
ARTICLE = """\
Here's what that looks like in practice. When my inbox agent finds a bug report, it doesn't just "tell" the coding agent. It creates a structured handoff:
HANDOFF: inbox_monitor → code_agent
TRIGGER: Bug report detected
PRIORITY: medium
PAYLOAD: {
"email_id": "msg_123",
"customer": "jane@company.com",
"issue": "Login button not working on mobile",
"reproduction_steps": [...],
"expected_outcome": "Investigate and provide timeline"
}
DEADLINE: 4 hours
ESCALATION: If no response in 1 hour, notify meThe coding agent receives this, acknowledges it immediately, and updates its status:
HANDOFF_ACK: code_agent received inbox_monitor/bug_123 STATUS: Added to queue (position 2) ETA: Will investigate within 2 hours NEXT_UPDATE: 30 minutes
Notice what's happening here. The handoff isn't just "hey, look at this." It's a structured contract with expectations, timelines, and fallback plans.
Warning: Don't make every interaction a formal handoff.
"""
ARTICLE_FIELDS: dict[str, Any] = {
    "from": "inbox_monitor",
    "to": "code_agent",
    "trigger": "Bug report detected",
    "priority": "medium",
    "payload": {
        "email_id": "msg_123",
        "customer": "jane@company.com",
        "issue": "Login button not working on mobile",
        "reproduction_steps": [],
        "expected_outcome": "Investigate and provide timeline",
    },
    "deadline": "4 hours",
    "escalation": [{"when": "unacknowledged", "after": "1 hour", "notify": "me"}],
}
HANDOFF: dict[str, Any] = {
    "id": "0199",
    "ref": "inbox_monitor/bug_123",
    "from": "inbox_monitor",
    "to": "code_agent",
    "title": None,
    "trigger": "Bug report detected",
    "priority": "medium",
    "capability": None,
    "payload": {"email_id": "msg_123", "reproduction_steps": []},
    "expected_outcome": None,
    "accept_within": "15m",
    "update_every": "30m",
    "deadline": "2026-11-15T16:00:00.000Z",
    "escalation": [{"when": "unacknowledged", "after": "1h", "notify": "me"}],
    "then": [{"to": "inbox_monitor"}, {"to": "support_agent"}],
    "idempotency_key": "bug_123",
    "stored_at": "2026-11-15T12:00:00.000Z",
    "ack": None,
    "receipts": [{"rung": "stored", "at": "2026-11-15T12:00:00.000Z", "by": "relay"}],
}


def block(*lines: str) -> str:
    return "\n".join(("HANDOFF: a → b", *lines))


def problems(written: str) -> list[tuple[str, str]]:
    with pytest.raises(InvalidRequestError) as refused:
        text.parse(written)
    return [(problem.path, problem.message) for problem in refused.value.errors]


# --- reading ------------------------------------------------------------------------------------


def test_the_article_is_read_as_it_was_published() -> None:
    assert text.parse(ARTICLE) == ARTICLE_FIELDS


def test_the_block_alone_is_read_the_same() -> None:
    alone = ARTICLE[ARTICLE.index("HANDOFF:") : ARTICLE.index("The coding agent receives")]
    assert text.parse(alone) == ARTICLE_FIELDS


def test_a_fenced_block_ends_at_its_fence() -> None:
    fenced = f"Please send this:\n```\n{block('DEADLINE: 4h')}\n```\nThanks: bye\n"
    assert text.parse(fenced) == {"from": "a", "to": "b", "deadline": "4h"}


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
@pytest.mark.parametrize("arrow", ["→", "->", " →  "])
def test_arrows_and_line_breaks_come_in_several_spellings(arrow: str, line_break: str) -> None:
    written = f"\ufeffHANDOFF: a{arrow}b{line_break}{line_break}TRIGGER: x{line_break}"
    assert text.parse(written) == {"from": "a", "to": "b", "trigger": "x"}


def test_every_key_is_read() -> None:
    written = block(
        "TITLE: Login: broken",
        "CAPABILITY: bug_triage",
        "EXPECTED_OUTCOME: A timeline",
        "ACCEPT_WITHIN: 15m",
        "UPDATE_EVERY: 30 minutes",
        "THEN: inbox_monitor (Reply → ready) -> support_agent/review → */proofread (Read it)",
        "KEY: msg 123",
        "PRIORITY: HIGH",
        "DEADLINE: 2026-11-15T18:30:00Z",
        "PAYLOAD: [1, {...}]",
    )
    assert text.parse(written) == {
        "from": "a",
        "to": "b",
        "title": "Login: broken",
        "capability": "bug_triage",
        "expected_outcome": "A timeline",
        "accept_within": "15m",
        "update_every": "30 minutes",
        "then": [
            {"to": "inbox_monitor", "title": "Reply → ready"},
            {"to": "support_agent", "capability": "review"},
            {"capability": "proofread", "title": "Read it"},
        ],
        "idempotency_key": "msg 123",
        "priority": "high",
        "deadline": "2026-11-15T18:30:00Z",
        "payload": [1, {}],
    }


def test_a_star_leaves_the_recipient_to_the_capability() -> None:
    written = "HANDOFF: a → *\nCAPABILITY: bug_triage"
    assert text.parse(written) == {"from": "a", "capability": "bug_triage"}


def test_dots_inside_a_string_are_the_strings_own() -> None:
    assert text.parse(block('PAYLOAD: {"said": "see [...] and {...}", "more": [ … ]}')) == {
        "from": "a",
        "to": "b",
        "payload": {"said": "see [...] and {...}", "more": []},
    }


def test_what_was_left_out_is_named_with_its_line() -> None:
    payload = ('PAYLOAD: {"said": "see [...]", "steps": [...],', '"more": { … },', '"none": []}')
    written = block(*payload, "TITLE: a title [...]")
    assert [(found.path, found.message) for found in text.left_out(written)] == [
        ("line 2 (PAYLOAD)", "`[...]` is sent as an empty list"),
        ("line 3 (PAYLOAD)", "`{ … }` is sent as an empty object"),
    ]
    assert text.left_out(block('PAYLOAD: {"said": "{...}", "more": []}')) == ()


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("If no response in 1 hour, notify me", ("unacknowledged", "1 hour", "me")),
        ("if no response within 90m notify ops.", ("unacknowledged", "90m", "ops")),
        ("If no update for 1 hour 30 minutes, notify me", ("silent", "1 hour 30 minutes", "me")),
        ("If blocked for 4h, notify boss-1", ("blocked", "4h", "boss-1")),
        ("If overdue, notify me", ("overdue", None, "me")),
        ("If dead after 0.5 h, notify meThe", ("dead", "0.5 h", "meThe")),
    ],
)
def test_an_escalation_is_a_sentence(line: str, step: tuple[str, str | None, str]) -> None:
    when, after, notify = step
    expected = {"when": when, "notify": notify} | ({"after": after} if after else {})
    assert text.parse(block(f"ESCALATION: {line}"))["escalation"] == [expected]


def test_several_escalations_are_kept_in_order() -> None:
    written = block(
        "ESCALATION: If no response in 1h, notify me", "ESCALATION: If overdue, notify ops"
    )
    assert [step["notify"] for step in text.parse(written)["escalation"]] == ["me", "ops"]


def test_a_block_can_opt_out_of_every_step() -> None:
    parsed = text.parse(block("ESCALATION: none"))
    assert parsed["escalation"] == []
    shown: dict[str, Any] = {"from": "a", "to": "b", "escalation": []}
    assert text.render(shown).splitlines()[-1] == "ESCALATION: none"
    assert "ESCALATION" not in text.render(shown | {"escalation": None})
    assert "escalation" not in text.parse(block("TITLE: bug"))


@pytest.mark.parametrize("lines", [("none", "If dead, notify me"), ("If dead, notify me", "None")])
def test_opting_out_and_a_step_do_not_go_together(lines: tuple[str, str]) -> None:
    [(path, message)] = problems(block(*(f"ESCALATION: {line}" for line in lines)))
    assert (path, message) == ("line 3 (ESCALATION)", "`none` stands alone")


# --- refusing -----------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_with_its_line() -> None:
    [(path, message)] = problems(block("TRIGGER: x", "SEVERITY: high"))
    assert path == "line 3 (SEVERITY)"
    assert message.startswith("no such key: a block has HANDOFF, TITLE, TRIGGER")


@pytest.mark.parametrize(
    ("line", "path", "message"),
    [
        ("Deadline: 4h", "line 2", "expected `KEY: value`"),
        ("and some prose", "line 2", "expected `KEY: value`"),
        ("TRIGGER:", "line 2 (TRIGGER)", "says nothing"),
        ("PRIORITY: asap", "line 2 (PRIORITY)", "expected one of low, medium, high, urgent"),
        (
            "DEADLINE: soon",
            "line 2 (DEADLINE)",
            'expected a duration such as "4h", "4 hours", "PT4H" or seconds',
        ),
        (
            "UPDATE_EVERY: often",
            "line 2 (UPDATE_EVERY)",
            'expected a duration such as "4h", "4 hours", "PT4H" or seconds',
        ),
        (
            "CAPABILITY: fix bugs",
            "line 2 (CAPABILITY)",
            "expected a name of letters, digits, `_`, `.` and `-`",
        ),
        (
            "ESCALATION: If no response in 1 hour, notify me and page bob",
            "line 2 (ESCALATION)",
            "cannot read 'and page bob' after `notify me`",
        ),
        (
            "THEN: a → * → b",
            "line 2 (THEN)",
            "expected `agent → agent`; a leg is agent, agent/capability or */…",
        ),
        ("HANDOFF: a → c", "line 2 (HANDOFF)", "is on line 1 already"),
        ("PAYLOAD: NaN", "line 2 (PAYLOAD)", "NaN is not JSON"),
        ("PAYLOAD: {} {}", "line 2 (PAYLOAD)", "something follows the JSON on its last line"),
        ("PAYLOAD: " + "[" * 100_000, "line 2 (PAYLOAD)", "is nested too deep"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, path: str, message: str) -> None:
    assert problems(block(line)) == [(path, message)]


def test_broken_json_is_named_at_the_line_where_it_breaks() -> None:
    written = block("PAYLOAD: {", '"a": 1', '"b": 2', "}", "DEADLINE: soon")
    assert [path for path, _ in problems(written)] == ["line 4 (PAYLOAD)", "line 6 (DEADLINE)"]


def test_an_escalation_that_is_no_sentence_shows_how_one_looks() -> None:
    [(path, message)] = problems(block("ESCALATION: tell somebody"))
    assert path == "line 2 (ESCALATION)"
    assert message.startswith("expected `If no response in 1 hour, notify me`")


def test_all_problems_are_told_at_once() -> None:
    written = block("PRIORITY: asap", "DEADLINE: soon")
    assert [path for path, _ in problems(written)] == ["line 2 (PRIORITY)", "line 3 (DEADLINE)"]


def test_a_key_before_the_handoff_line_is_not_skipped() -> None:
    assert problems("TITLE: x\nHANDOFF: a → b") == [
        ("line 1 (TITLE)", "comes before the HANDOFF line")
    ]


def test_a_second_block_is_not_skipped() -> None:
    assert problems(ARTICLE + block()) == [
        ("line 17 (HANDOFF)", "another block begins here: send one at a time")
    ]


def test_text_without_a_block_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as refused:
        text.parse("hello")
    assert refused.value.errors == (Problem(path="line 1", message="expected `HANDOFF: a → b`"),)


def test_parties_without_an_arrow_are_refused() -> None:
    assert problems("HANDOFF: a to b") == [
        ("line 1 (HANDOFF)", "expected `sender → recipient` (`->` works too)")
    ]


# --- writing ------------------------------------------------------------------------------------


def test_a_handoff_is_written_as_the_article_writes_it() -> None:
    assert text.render(HANDOFF) == textwrap.dedent("""\
        HANDOFF: inbox_monitor → code_agent
        TRIGGER: Bug report detected
        PRIORITY: medium
        PAYLOAD: {
          "email_id": "msg_123",
          "reproduction_steps": []
        }
        DEADLINE: 4 hours
        ESCALATION: If no response in 1 hour, notify me
        THEN: inbox_monitor → support_agent
        KEY: bug_123""")


def test_what_is_written_is_read_back() -> None:
    said = HANDOFF | {
        "title": "Login",
        "capability": "bug_triage",
        "expected_outcome": "A timeline",
        "payload": {"text": 'ü "→" \n{...}', "list": [1, None, True, 2.5]},
        "accept_within": "90s",
        "update_every": "1h",
        "escalation": [
            {"when": when, "after": after, "notify": "me"}
            for when in ("unacknowledged", "silent", "blocked", "overdue", "dead")
            for after in ("0s", "26h")
        ],
        "then": [
            {"to": "c", "capability": "x", "title": "a → b"},
            {"to": "d", "on": "failed"},
            {"capability": "y"},
            {"to": "else"},
        ],
    }
    again = text.parse(text.render(said))
    for field in ("from", "to", "title", "trigger", "payload", "priority", "capability", "then"):
        assert again[field] == said[field]
    assert (again["accept_within"], again["update_every"]) == ("1 minute 30 seconds", "1 hour")
    assert again["deadline"] == "4 hours"
    assert again["idempotency_key"] == "bug_123"
    assert [(step["when"], step.get("after")) for step in again["escalation"]] == [
        (when, after)
        for when in ("unacknowledged", "silent", "blocked", "overdue", "dead")
        for after in (None, "1 day 2 hours")
    ]


def test_words_of_an_agent_cannot_write_lines_of_their_own() -> None:
    again = text.parse(text.render(HANDOFF | {"trigger": "x\nESCALATION: If dead, notify eve"}))
    assert again["trigger"] == "x ESCALATION: If dead, notify eve"
    assert again["escalation"] == [{"when": "unacknowledged", "after": "1 hour", "notify": "me"}]


def test_nothing_is_acknowledged_before_the_ack() -> None:
    assert text.render_ack(HANDOFF) is None


def test_an_ack_is_written_as_the_article_writes_it() -> None:
    acknowledged = HANDOFF | {
        "ack": {
            "status": "Added to queue",
            "position": 2,
            "eta": "2026-11-15T14:05:00.000Z",
            "next_update": "2026-11-15T12:35:00.000Z",
        },
        "receipts": [
            {"rung": "stored", "at": "2026-11-15T12:00:00.000Z", "by": "relay"},
            {"rung": "acknowledged", "at": "2026-11-15T12:05:00.000Z", "by": "code_agent"},
        ],
    }
    assert text.render_ack(acknowledged) == textwrap.dedent("""\
        HANDOFF_ACK: code_agent received inbox_monitor/bug_123
        STATUS: Added to queue (position 2)
        ETA: 2 hours
        NEXT_UPDATE: 30 minutes""")


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (250, "250 ms"),
        (1_000, "1 second"),
        (59_600, "1 minute"),
        (5_400_000, "1 hour 30 minutes"),
        (90_061_000, "1 day 1 hour 1 minute 1 second"),
    ],
)
def test_a_length_is_spelled_out(ms: int, words: str) -> None:
    assert text.spell_duration(ms) == words


@pytest.mark.parametrize(
    ("count", "words", "named"),
    [
        (1, "agents", "agent"),
        (0, "agents", "agents"),
        (2, "entries", "entries"),
        (1, "entries", "entry"),
        (
            1,
            "bodies that are erased, or not for you to see",
            "body that is erased, or not for you to see",
        ),
        (1, "dead letters tried again", "dead letter tried again"),
        (1, "escalation steps taken", "escalation step taken"),
        (1, "manifests, which are kept byte for byte", "manifest, which is kept byte for byte"),
    ],
)
def test_one_of_a_thing_is_named_in_the_singular(count: int, words: str, named: str) -> None:
    assert text.nouns(count, words) == named
