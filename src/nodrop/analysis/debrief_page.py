"""The debrief as text for a terminal, and as one HTML page that needs nothing else."""

from collections.abc import Iterator
from html import escape

from nodrop.analysis.debrief import Debrief

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .6rem;"
    "border-bottom:1px solid #ddd;vertical-align:top}h2{margin-top:2rem}.bad{color:#b00020}"
    "code{background:#f4f4f4;padding:0 .3rem}"
)

Section = tuple[str, list[tuple[str, ...]]]


def sections(report: Debrief) -> Iterator[Section]:
    """Yield the parts of a report: a heading, and rows."""
    counts = ", ".join(f"{count} {name}" for name, count in report.happened.items()) or "nothing"
    yield (
        "What happened",
        [
            (counts,),
            (
                f"{report.chains_completed} settled, {report.events} events, {report.said} words said",
            ),
            *(
                (f"{agent}: " + ", ".join(f"{n} {name}" for name, n in counted.items()),)
                for agent, counted in report.by_agent.items()
            ),
        ],
    )
    yield (
        f"What is owed ({len(report.owed)})",
        [
            (o.holder, f"by {o.due_at or 'no time'}", o.state, o.ref, o.title or "")
            for o in report.owed
        ],
    )
    yield (
        f"What broke ({len(report.broken)})",
        [
            (
                b.agent,
                b.state,
                ": ".join(filter(None, (b.code, b.reason))),
                b.ref,
                b.title or "",
                b.decide,
            )
            for b in report.broken
        ],
    )
    yield (
        "What was done about it",
        [
            *((f"{count} {what}",) for what, count in report.done.items()),
            *((d.at, d.what, d.handoff_id or "") for d in report.doings[-20:]),
        ],
    )
    yield (
        "What it cost, as far as agents said",
        [
            (agent, ", ".join(f"{name} {spent:g}" for name, spent in each.items()))
            for agent, each in report.usage.items()
        ],
    )


def text(report: Debrief) -> str:
    """Return the report for a terminal."""
    lines = [f"Debrief, {report.since} to {report.until}: {report.entries} entries"]
    for heading, rows in sections(report):
        lines += ["", heading]
        lines += ["  " + "  ".join(filter(None, row)) for row in rows] or ["  nothing"]
    if report.left_out:
        lines += ["", f"{report.left_out} more are counted and not listed"]
    return "\n".join(lines)


def html(report: Debrief) -> str:
    """Return the report as a page. Everybody's words are escaped: they are data."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Nodrop debrief</title>",
        f"<style>{_STYLE}</style><h1>Debrief</h1>",
        f"<p>{escape(report.since)} to {escape(report.until)}, {report.entries} entries</p>",
    ]
    for heading, rows in sections(report):
        parts.append(f"<h2>{escape(heading)}</h2><table>")
        parts += [
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
        ] or ["<tr><td>nothing</td></tr>"]
        parts.append("</table>")
    return "".join([*parts, "</html>\n"])
