"""The debrief as text for a terminal, and as one HTML page that needs nothing else."""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from nodrop.audit.debrief import Debrief
from nodrop.protocol import visible
from nodrop.protocol.text import nouns

_DOINGS_MAX: Final = 20
_NOTHING: Final = "nothing"
_STYLE: Final = (
    ":root{color-scheme:light dark;--line:#8884;--quiet:#888}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:64rem;margin:2.5rem auto;padding:0 1.5rem;"
    "font-variant-numeric:tabular-nums}"
    "h1{margin:0}h2{font-size:1.1rem;margin:2.2rem 0 .4rem}p{color:var(--quiet);margin:.2rem 0}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;padding:.3rem 1.2rem .3rem 0;vertical-align:top;"
    "border-bottom:1px solid var(--line)}"
    "th{font-weight:normal;color:var(--quiet);white-space:nowrap}td:first-child{font-weight:600}"
    "@media print{body{margin:0}}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'"
)
"""The page loads and runs nothing: its one style is known by its hash."""


class Section(NamedTuple):
    """A part of the report."""

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def sections(report: Debrief) -> Iterator[Section]:
    """Yield the parts of a report."""
    events, said = _many(report.events, "events"), _many(report.said, "things")
    besides = f"{report.chains_completed} settled, {events}, {said} said"
    yield Section(
        "What happened",
        ("who", "what"),
        [
            ("all together", _counted(report.happened)),
            *((agent, _counted(counted)) for agent, counted in report.by_agent.items()),
            ("besides", besides),
        ],
    )
    yield Section(
        f"What is owed ({report.owed_count})",
        ("who", "by", "state", "handoff", "title"),
        [
            (o.holder, _moment(o.due_at) if o.due_at else "no time", o.state, o.ref, o.title or "")
            for o in report.owed
        ],
    )
    yield Section(
        f"What broke ({report.broken_count})",
        ("who", "how", "handoff", "title", "to try it again"),
        [
            (
                b.agent,
                ": ".join(dict.fromkeys(filter(None, (b.state, b.code, b.reason)))),
                b.ref,
                b.title or "",
                b.decide,
            )
            for b in report.broken
        ],
    )
    yield Section(
        f"What to look at ({len(report.findings)})",
        ("when", "what", "finding"),
        [(_moment(f.at), f.detector, f.says) for f in report.findings],
    )
    yield Section(
        "What was done about it",
        ("when", "what", "handoff"),
        [
            *(("", f"{count} {nouns(count, what)}", "") for what, count in report.done.items()),
            *((_moment(d.at), d.what, d.handoff_id or "") for d in report.doings[-_DOINGS_MAX:]),
        ],
    )
    yield Section(
        "What it cost, as far as agents said",
        ("who", "what"),
        [
            (agent, ", ".join(f"{name} {spent:g}" for name, spent in each.items()))
            for agent, each in report.usage.items()
        ],
    )


def text(report: Debrief) -> str:
    """Return the report for a terminal."""
    lines = [_title(report)]
    for section in sections(report):
        lines += ["", section.heading, *(_aligned(section.rows) or [f"  {_NOTHING}"])]
    if report.left_out:
        lines += ["", _left_out(report)]
    return "\n".join(lines)


def html(report: Debrief) -> str:
    """Return the report as a page. Everybody's words are data: escaped, and nothing hidden in them."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">',
        "<title>Nodrop debrief</title>",
        "<meta name=viewport content='width=device-width'>",
        f"<style>{_STYLE}</style><h1>Debrief</h1><p>{_words(_title(report))}</p>",
    ]
    for section in sections(report):
        parts.append(f"<h2>{_words(section.heading)}</h2>")
        if not section.rows:
            parts.append(f"<p>{_NOTHING}</p>")
            continue
        parts += ["<table>", _row("th", section.columns)]
        parts += [_row("td", row) for row in section.rows]
        parts.append("</table>")
    if report.left_out:
        parts.append(f"<p>{_left_out(report)}</p>")
    return "".join([*parts, "</html>\n"])


def _title(report: Debrief) -> str:
    span = f"{_moment(report.since)} to {_moment(report.until)}"
    return f"{span}: {report.entries} {nouns(report.entries, 'entries')} of the log"


def _left_out(report: Debrief) -> str:
    return f"{report.left_out} more are counted and not listed"


def _many(count: int, words: str) -> str:
    return f"{count} {nouns(count, words)}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or _NOTHING


def _moment(time: str) -> str:
    """Return a time to the second: nobody who was away counts in milliseconds."""
    return f"{time[:10]} {time[11:19]}Z"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width)
        for row in rows
    )
    return [f"  {line.rstrip()}" for line in lines]


def _words(text: str) -> str:
    return escape(visible.named(text))


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_words(cell)}</{tag}>" for cell in cells) + "</tr>"
