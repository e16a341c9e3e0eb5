import base64
import hashlib
import re

from msgspec.structs import replace

from nodrop.audit import debrief_page
from nodrop.audit.debrief import Broken, Debrief, Owed

REPORT = Debrief(
    since="2026-11-16T01:00:00.000Z",
    until="2026-11-16T07:00:00.123Z",
    entries=12,
    happened={"offered": 3},
    by_agent={},
    chains_completed=0,
    owed=(
        Owed(
            ref="me/1",
            title="Draft",
            state="offered",
            holder="writer",
            due_at="2026-11-16T07:38:48.740Z",
        ),
        Owed(ref="me/22", title="<b>Fix</b>", state="accepted", holder="code_agent", due_at=None),
    ),
    owed_count=6,
    broken=(
        Broken(
            ref="me/3",
            title=None,
            state="failed",
            agent="tester",
            code="failed",
            reason="no access",
            at="2026-11-16T06:00:00.000Z",
            decide="nodrop dlq redrive me/3",
        ),
    ),
    broken_count=1,
    done={},
    doings=(),
    said=0,
    events=0,
    usage={},
    left_out=4,
)


def test_rows_stand_in_columns_and_empty_ones_take_no_room() -> None:
    lines = debrief_page.text(REPORT).splitlines()
    assert lines[0] == "2026-11-16 01:00:00Z to 2026-11-16 07:00:00Z: 12 entries of the log"
    assert "  writer      2026-11-16 07:38:48Z  offered   me/1   Draft" in lines
    assert "  code_agent  no time               accepted  me/22  <b>Fix</b>" in lines
    assert "  tester  failed: no access  me/3  nodrop dlq redrive me/3" in lines
    assert "What is owed (6)" in lines, "however many are listed"
    assert "What broke (1)" in lines
    assert lines[-1] == "4 more are counted and not listed"


def test_the_page_says_the_same_and_escapes_what_agents_wrote() -> None:
    page = debrief_page.html(REPORT)
    assert "<td>code_agent</td><td>no time</td><td>accepted</td><td>me/22</td>" in page
    assert "&lt;b&gt;Fix&lt;/b&gt;" in page
    assert "<h2>What was done about it</h2><p>nothing</p>" in page
    assert "4 more are counted and not listed" in page


def test_a_page_hides_nothing_and_may_load_nothing() -> None:
    hidden = "a\x00\x1b\x9b\u202e\u2066\u200bb"
    owed = replace(REPORT.owed[0], title=hidden)
    page = debrief_page.html(replace(REPORT, owed=(owed,)))
    assert not set(page) & set(hidden[1:-1])
    assert "a[U+0000][U+001B][U+009B][U+202E][U+2066][U+200B]b" in page
    [policy] = re.findall('http-equiv=Content-Security-Policy content="([^"]+)"', page)
    [style] = re.findall("<style>(.*?)</style>", page)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert page.index("Content-Security-Policy") < page.index("<style>")
    assert not re.search(r"<script|\sstyle=|\son\w+=", page)
