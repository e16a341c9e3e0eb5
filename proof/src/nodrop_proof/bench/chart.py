"""The chart of a run: cycles per second of every system, as bars with their range, in plain SVG."""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from nodrop_proof.bench.report import Line, Report
from nodrop_proof.bench.system import MANY, ONE, Load

_WIDTH: Final = 960
_LEFT: Final = 300
_RIGHT: Final = 130
_BAR: Final = 16
_STEP: Final = 26
_HEAD: Final = 58
_GAP: Final = 34
_OURS: Final = "#0b7a75"
_THEIRS: Final = "#9aa5b1"
_INK: Final = "#1f2933"
_GRID: Final = "#e4e7eb"


def made(report: Report) -> str:
    """Return the chart as an SVG document. The scale is logarithmic: bars differ by decades."""
    panels = [(load, lines) for load in (MANY, ONE) if (lines := _lines(report, load))]
    rates = [line.rate for _, lines in panels for line in lines if line.rate is not None]
    if not rates:
        return _document(_HEAD, [])
    scale = _Scale(min(r.low for r in rates), max(r.high for r in rates))
    drawn: list[str] = []
    top = 0
    for load, lines in panels:
        drawn += _panel(report, load, lines, scale, top)
        top += _HEAD + len(lines) * _STEP + _GAP
    return _document(top, drawn)


class _Scale:
    """Cycles per second to pixels, by decades."""

    def __init__(self, low: float, high: float) -> None:
        self.first, self.last = floor(log10(low)), ceil(log10(high))

    def x(self, rate: float) -> float:
        span = max(self.last - self.first, 1)
        return _LEFT + (log10(rate) - self.first) / span * (_WIDTH - _LEFT - _RIGHT)

    @property
    def decades(self) -> range:
        return range(self.first, self.last + 1)


def _lines(report: Report, load: Load) -> list[Line]:
    return [line for line in report.lines() if line.load == load and line.rate is not None]


def _panel(report: Report, load: Load, lines: Sequence[Line], scale: _Scale, top: int) -> list[str]:
    bottom = top + _HEAD + len(lines) * _STEP
    callers = "one caller" if load.callers == 1 else f"{load.callers} callers"
    drawn = [_text(12, top + 26, f"Durable cycles per second, {callers}", size=15, bold=True)]
    for decade in scale.decades:
        x = scale.x(10**decade)
        drawn += [
            (
                f'<line x1="{x:.1f}" y1="{top + _HEAD - 8}" x2="{x:.1f}" y2="{bottom}" '
                f'stroke="{_GRID}"/>'
            ),
            _text(x, top + _HEAD - 12, f"{10**decade:,}", anchor="middle", size=11),
        ]
    for number, line in enumerate(lines):
        assert line.rate is not None, "left out above"
        about = report.about[line.system]
        y = top + _HEAD + number * _STEP
        middle = y + _BAR / 2
        colour = _OURS if about.ours else _THEIRS
        end, low, high = map(scale.x, (line.rate.median, line.rate.low, line.rate.high))
        drawn += [
            _text(_LEFT - 8, middle + 4, about.title, anchor="end", bold=about.ours),
            (
                f'<rect x="{_LEFT}" y="{y}" width="{end - _LEFT:.1f}" height="{_BAR}" '
                f'fill="{colour}"/>'
            ),
            (
                f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" '
                f'stroke="{_INK}" stroke-width="1.5"/>'
            ),
            _text(high + 8, middle + 4, f"{line.rate.median:,.0f}"),
        ]
    return drawn


def _text(
    x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, bold: bool = False
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{weight}>'
        f"{escape(words)}</text>"
    )


def _document(height: int, drawn: Sequence[str]) -> str:
    return "\n".join(
        [
            (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
                f'width="{_WIDTH}" height="{height}" font-family="sans-serif" fill="{_INK}">'
            ),
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            *drawn,
            "</svg>\n",
        ]
    )
