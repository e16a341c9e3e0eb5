"""The report: text for a terminal, and one HTML page that needs nothing else, not even a script."""

import textwrap
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

import numpy as np

from nodrop.analysis import plots
from nodrop.analysis.analyze import Analysis
from nodrop.analysis.detectors import language
from nodrop.analysis.detectors.lexicon import lexicon
from nodrop.analysis.detectors.load import window_ms
from nodrop.analysis.findings import RANK, Finding, Severity
from nodrop.analysis.plots import Interval, Line, Span
from nodrop.analysis.record import Numbers, Record
from nodrop.protocol.text import nouns

_METRICS: Final = {
    "unknown": "share of unknown words",
    "function": "share of function words",
    "repeated": "share of repeated word pairs",
    "symbols": "share of signs",
    "opaque": "share of encoded text",
}
SHOWN_MAX: Final = 12
"""Findings of one detector that the page shows; the others are in findings.json."""
PLOTS_MAX: Final = 4
ROWS_MAX: Final = 15
_COLUMNS: Final = 80
_TOLD_MAX: Final = 8
_EVIDENCE: Final = 8
_AGENTS: Final = 16
TITLES: Final = {
    "ping-pong": "Ping-pong",
    "loop": "Loops",
    "livelock": "Livelock",
    "orphan": "Orphaned chains",
    "retry-storm": "Retry storms",
    "escalation-storm": "Escalation storms",
    "hot-spot": "Hot spots",
    "bottleneck": "Bottlenecks",
    "duplicated-effort": "Duplicated effort",
    "clique": "Cliques",
    "handed-off-again": "Handed off again",
    "closed-again": "Closed again",
    "reliability": "Claimed against observed reliability",
    "conformance": "Not as declared",
    "handoff-quality": "Handoffs that give trouble",
    "coordination": "Coordinated numbers",
    "language": "Private language",
}
_STYLE: Final = (
    ":root{color-scheme:light dark;--line:#8883;--quiet:#777;--card:#8881}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1.2rem}"
    "h1{margin:.2rem 0;font-size:1.5rem}h2{font-size:1.15rem;margin:2rem 0 .5rem}"
    "p{margin:.3rem 0}.quiet,summary small{color:var(--quiet)}"
    "nav{display:flex;flex-wrap:wrap;gap:.4rem;margin:1rem 0}"
    "nav a{border:1px solid var(--line);border-radius:1rem;padding:.1rem .7rem;color:inherit;"
    "text-decoration:none}"
    "details{border:1px solid var(--line);border-radius:.5rem;margin:.4rem 0;padding:.5rem .8rem}"
    "summary{cursor:pointer}summary b{margin-right:.5rem}"
    ".high,.medium,.low,.info{font-size:.75rem;border-radius:.3rem;padding:.05rem .4rem;color:#fff}"
    ".high{background:#b3261e}.medium{background:#a15c00}.low{background:#4b6584}.info{background:#777}"
    "dl{display:grid;grid-template-columns:8rem 1fr;gap:.2rem .8rem;margin:.6rem 0 .2rem}"
    "dt{color:var(--quiet)}dd{margin:0;overflow-wrap:anywhere}"
    "code{font-size:.9em;background:var(--card);border-radius:.2rem;padding:0 .2rem}"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "td,th{text-align:left;padding:.2rem 1rem .2rem 0;border-bottom:1px solid var(--line);"
    "white-space:nowrap}th{font-weight:normal;color:var(--quiet)}td.n,th.n{text-align:right}"
    "svg{width:100%;height:auto;display:block;margin:.4rem 0}svg text{font-size:11px;fill:var(--quiet)}"
    ".grid{stroke:var(--line)}.claim{stroke:currentColor;stroke-width:2}"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;color:var(--quiet)}"
    ".legend i{display:inline-block;width:.8rem;height:.2rem;margin-right:.35rem;vertical-align:middle}"
    "@media(max-width:36rem){body{padding:.8rem}dl{grid-template-columns:1fr}dt{margin-top:.3rem}"
    "svg text{font-size:16px}}"
)


# --- text ---------------------------------------------------------------------------------------


def text(analysis: Analysis, *, verified: str) -> str:
    """Return a short summary, at most 80 columns wide."""
    lines = [
        _size(analysis),
        _when(analysis),
        *textwrap.wrap(verified, _COLUMNS),
        "",
    ]
    counts = Counter(f.detector for f in analysis.findings)
    if not counts:
        lines.append("Nothing was found.")
    for detector, count in _by_weight(analysis):
        worst = max((f for f in analysis.findings if f.detector == detector), key=_rank).severity
        lines.append(f"{count:6,}  {TITLES[detector]} ({worst})")
    told = [f for f in analysis.findings if f.severity in {Severity.HIGH, Severity.MEDIUM}]
    if told:
        lines += ["", "Look at these first:"]
    for finding in _one_of_each(told)[:_TOLD_MAX]:
        lines += textwrap.wrap(
            finding.says,
            _COLUMNS,
            initial_indent=f"  {finding.severity:6}  ",
            subsequent_indent=" " * 10,
        )
        if finding.evidence:
            seqs = ", ".join(str(seq) for seq in finding.evidence[:_EVIDENCE])
            lines += textwrap.wrap(
                f"entries {seqs}",
                _COLUMNS,
                initial_indent=" " * 10,
                subsequent_indent=" " * 10,
            )
    little = Counter(each.detector for each in analysis.too_little)
    if little:
        named = ", ".join(f"{name} ({count})" for name, count in sorted(little.items()))
        lines += ["", *textwrap.wrap(f"Not enough data to tell: {named}", _COLUMNS)]
    return "\n".join(lines)


def _size(analysis: Analysis) -> str:
    c = analysis.coverage
    return (
        f"{c.events:,} {nouns(c.events, 'events')}, {c.handoffs:,} {nouns(c.handoffs, 'handoffs')} "
        f"in {c.chains:,} {nouns(c.chains, 'chains')}, {c.agents:,} {nouns(c.agents, 'agents')}"
    )


def _when(analysis: Analysis) -> str:
    c = analysis.coverage
    return f"{plots.day(c.since)} to {plots.day(c.until)} UTC"


def _rank(finding: Finding) -> int:
    return RANK[finding.severity]


def _by_weight(analysis: Analysis) -> list[tuple[str, int]]:
    worst: dict[str, int] = {}
    counts: Counter[str] = Counter()
    for finding in analysis.findings:
        counts[finding.detector] += 1
        worst[finding.detector] = max(worst.get(finding.detector, 0), _rank(finding))
    return sorted(counts.items(), key=lambda item: (-worst[item[0]], -item[1]))


def _one_of_each(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings so that each detector's worst comes before another's second."""
    turns: defaultdict[str, int] = defaultdict(int)
    ranked: list[tuple[int, int, Finding]] = []
    for finding in findings:
        ranked.append((turns[finding.detector], -_rank(finding), finding))
        turns[finding.detector] += 1
    return [finding for _, _, finding in sorted(ranked, key=lambda item: item[:2])]


# --- page ---------------------------------------------------------------------------------------


def html(analysis: Analysis, record: Record, *, verified: str, source: str) -> str:
    """Return the page. Everybody's words are escaped: they are data."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><title>Nodrop analysis</title>",
        "<meta name=viewport content='width=device-width,initial-scale=1'>",
        f"<style>{_STYLE}</style><h1>What the log shows</h1>",
        f"<p>{escape(source)}: {_size(analysis)}, {_when(analysis)}</p>",
        f"<p class=quiet>{escape(verified)}</p>",
        _headlines(analysis),
        "<h2>Activity</h2>",
        _activity(record, analysis.findings),
        *_findings(analysis, record),
        *_network(analysis),
        *_reliability(analysis),
        *_quality(analysis),
        *_conformance(analysis),
        *_limits(analysis),
    ]
    return "".join([*parts, "</html>\n"])


def _headlines(analysis: Analysis) -> str:
    links = "".join(
        f"<a href='#{detector}'>{escape(TITLES[detector])} {count:,}</a>"
        for detector, count in _by_weight(analysis)
    )
    if not links:
        return "<p><b>Nothing was found.</b></p>"
    return (
        f"<nav>{links}</nav><p class=quiet>A finding is a reason to look, and no verdict. To open "
        "entry N: <code>nodrop log --after N-1 --limit 1</code></p>"
    )


def _findings(analysis: Analysis, record: Record) -> Iterator[str]:
    for detector, count in _by_weight(analysis):
        several = [f for f in analysis.findings if f.detector == detector]
        yield f"<h2 id='{detector}'>{escape(TITLES[detector])} ({count:,})</h2>"
        if detector == "coordination":
            yield from (_prices(record, f) for f in several[:PLOTS_MAX])
        if detector == "language":
            yield from (_drift(record, f) for f in several[:PLOTS_MAX])
        yield from (_finding(f, opened=n == 0) for n, f in enumerate(several[:SHOWN_MAX]))
        if count > SHOWN_MAX:
            yield f"<p class=quiet>{count - SHOWN_MAX:,} more are in findings.json.</p>"


def _finding(finding: Finding, *, opened: bool) -> str:
    effect = ", ".join(
        f"{name.replace('_', ' ')} {value:g}" for name, value in finding.effect.items()
    )
    seqs = ", ".join(str(seq) for seq in finding.evidence)
    more = (
        "" if len(finding.evidence) >= finding.entries else f" and more, {finding.entries:,} in all"
    )
    rows = [
        ("about", escape(finding.subject)),
        ("agents", escape(", ".join(finding.agents))),
        ("when", f"{plots.day(finding.since)} to {plots.day(finding.until)}"),
        ("size", escape(effect)),
        ("entries", f"{seqs}{more}"),
        ("tested", escape(finding.tested)),
        ("may also be", escape("; ".join(finding.benign))),
    ]
    if finding.action:
        rows.append(("begin with", f"<code>{escape(finding.action)}</code>"))
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    return (
        f"<details{' open' if opened else ''}><summary><b class={finding.severity}>"
        f"{finding.severity}</b>{escape(finding.says)}</summary><dl>{listed}</dl></details>"
    )


# --- plots of the page --------------------------------------------------------------------------


def _activity(record: Record, findings: Sequence[Finding]) -> str:
    width = window_ms(record)
    begin = record.first_at or 0
    count = (record.last_at - begin) // width + 1
    attempts = record.deliveries.numbers("attempt")
    retried = record.deliveries.numbers("at")[attempts > 1]
    drawn = [
        Line("handoffs offered", _histogram(record.hops.numbers("at"), begin, width, count)),
        Line("retries", _histogram(retried, begin, width, count)),
        Line("escalations", _histogram(record.escalations.numbers("at"), begin, width, count)),
    ]
    whole = max(record.last_at - begin, 1)
    spans = [
        Span((f.since - begin) / whole, (f.until - begin) / whole)
        for f in findings
        if f.detector.endswith("-storm")
    ]
    kept = [line for line in drawn if any(line.values)]
    shaded = " Shaded: storms." if spans else ""
    per = f"Counts per {width // 60_000} minutes."
    return (
        plots.lines(
            "activity",
            kept,
            ends=(plots.day(begin), plots.day(record.last_at)),
            spans=spans,
            zero=True,
        )
        + f"<p class=quiet>{per}{shaded}</p>"
    )


def _histogram(at: Numbers, begin: int, width: int, count: int) -> list[float]:
    places = ((at - begin) // width).astype(np.int64)
    return [float(n) for n in np.bincount(places[places >= 0], minlength=count)]


def _prices(record: Record, finding: Finding) -> str:
    for market, quotes in record.quotes.items():
        if not finding.subject.startswith(f"{market.parameter} in "):
            continue
        series: defaultdict[str, list[float]] = defaultdict(list)
        costs: list[float] = []
        for quote in quotes:
            name = record.agents[quote.agent]
            if name in finding.agents:
                series[name].append(quote.value)
                if name == finding.agents[0] and quote.cost is not None:
                    costs.append(quote.cost)
        if len(series) < len(finding.agents):
            continue  # another market with the same parameter
        drawn = [Line(name, values) for name, values in series.items()]
        if costs:
            drawn.append(Line("cost", costs, dashed=True))
        ends = (plots.day(quotes[0].at), plots.day(quotes[-1].at))
        return plots.lines(finding.subject, drawn, ends=ends)
    return ""


def _drift(record: Record, finding: Finding) -> str:
    said = record.said[finding.subject]
    metrics = language.windows(said, lexicon(), frozenset(), record.baseline_until)
    kept = [rule for rule in language.RULES if rule.name in finding.effect]
    drawn = [
        Line(_METRICS[rule.metric], [float(getattr(m, rule.metric)) for m in metrics])
        for rule in kept
    ]
    ends = (plots.day(said[0].at), plots.day(said[-1].at))
    calm = language.CALIBRATED / language.WINDOWS
    return f"<p>{escape(finding.subject)}</p>" + plots.lines(
        finding.subject, drawn, ends=ends, spans=[Span(calm, 1.0)], zero=True
    )


def _network(analysis: Analysis) -> Iterator[str]:
    if not analysis.handovers:
        return
    sent: Counter[str] = Counter()
    received: Counter[str] = Counter()
    for each in analysis.handovers:
        sent[each.sender] += each.times
        received[each.recipient] += each.times
    every = sorted(sent | received)
    # Agents that hand work on come first: those at an end have nothing to show in the matrix.
    every.sort(key=lambda name: (-min(sent[name], received[name]), -sent[name] - received[name]))
    names = sorted(every[:_AGENTS])
    yield f"<h2>Who hands work to whom</h2><p class=quiet>The {len(names)} agents that hand on the most; rows hand to columns.</p>"
    counts = {(e.sender, e.recipient): e.times for e in analysis.handovers}
    yield f"<div class=scroll>{plots.matrix('handovers', names, counts)}</div>"
    yield _table(
        ("from", "to", "times"),
        [(e.sender, e.recipient, f"{e.times:,}") for e in analysis.handovers[:8]],
    )
    if analysis.central:
        between = ", ".join(f"{agent} ({share:.0%})" for agent, share in analysis.central[:5])
        yield f"<p>Most paths between others go through {escape(between)}.</p>"


def _reliability(analysis: Analysis) -> Iterator[str]:
    claimed = [each for each in analysis.reliability if each.claimed is not None]
    if not claimed:
        return
    worst = sorted(claimed, key=lambda each: each.highest - (each.claimed or 0))[:ROWS_MAX]
    yield (
        "<h2>Claimed and observed reliability</h2><p class=quiet>Dot: observed; bar: 99.9 % interval; "
        f"mark: claimed. The {len(worst)} of {len(claimed)} that are furthest below it, or nearest.</p>"
    )
    yield plots.intervals(
        "reliability",
        [
            Interval(f"{e.agent} · {e.capability}", e.lowest, e.rate, e.highest, e.claimed, e.n)
            for e in worst
        ],
    )


def _quality(analysis: Analysis) -> Iterator[str]:
    rows = [q for q in analysis.quality if q.troubled]
    if not rows:
        return
    rows.sort(key=lambda q: -q.troubled / (q.offers + 5))
    yield (
        "<h2>Handoff quality</h2><p class=quiet>What receivers had to ask again, counter, reject, "
        "fail or send back, by sender and capability.</p>"
    )
    yield _table(
        *(
            (
                "sender",
                "capability",
                "offers",
                "asked",
                "countered",
                "rejected",
                "failed",
                "returned",
            ),
        ),
        [
            (
                *(q.sender, q.capability or "-"),
                *(
                    f"{n:,}"
                    for n in (q.offers, q.asked, q.countered, q.rejected, q.failed, q.returned)
                ),
            )
            for q in rows[:ROWS_MAX]
        ],
    )


def _conformance(analysis: Analysis) -> Iterator[str]:
    if not analysis.conformance:
        return
    rows = sorted(analysis.conformance, key=lambda each: -each.chains)[:ROWS_MAX]
    yield "<h2>Chains against their declaration</h2>"
    yield _table(
        ("declared", "chains", "as declared", "stopped", "skipped", "added"),
        [
            (
                e.declared,
                *(f"{n:,}" for n in (e.chains, e.as_declared, e.stopped, e.skipped, e.added)),
            )
            for e in rows
        ],
    )


def _limits(analysis: Analysis) -> Iterator[str]:
    yield "<h2>What was looked at, and what could not be told</h2>"
    yield _table(
        ("detector", "subjects tested", "seconds"),
        [
            (name, f"{count:,}", f"{analysis.seconds.get(name, 0):g}")
            for name, count in analysis.coverage.tested.items()
        ],
    )
    little = Counter(
        (each.detector, each.why if each.subject == "log" else "") for each in analysis.too_little
    )
    for (detector, why), count in sorted(little.items()):
        said = why or f"{count:,} subjects with too little data"
        yield f"<p>Not enough data, {escape(detector)}: {escape(said)}.</p>"
    yield (
        "<p class=quiet>Words that are fluent and mean something else (steganography) cannot be seen "
        "here. A pattern is not an intention.</p>"
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def cell(tag: str, value: str) -> str:
        number = value.replace(",", "").replace(".", "").isdigit()
        return f"<{tag}{' class=n' if number else ''}>{escape(value)}</{tag}>"

    head = "".join(cell("th", name) for name in columns)
    body = "".join("<tr>" + "".join(cell("td", v) for v in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><tr>{head}</tr>{body}</table></div>"
