"""Plots: small SVG drawings, without a script, that follow the page's colours."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

from nodrop.protocol.times import format_time

WIDTH: Final = 640
HEIGHT: Final = 180
_LEFT: Final = 44
_BOTTOM: Final = 22
_TOP: Final = 8
_RIGHT: Final = 8
_POINTS_MAX: Final = 160
_NAME_CHARS: Final = 18
_HUES: Final = (
    "#3b76c4",
    "#c4573b",
    "#3f9152",
    "#9156b0",
    "#b58a1b",
    "#2f8f93",
    "#c2418a",
    "#6b7280",
)


class Line(NamedTuple):
    """A line of a plot."""

    name: str
    values: Sequence[float]
    dashed: bool = False


class Span(NamedTuple):
    """A part of the plot that is marked, as shares of its width."""

    begin: float
    end: float


def lines(
    title: str,
    several: Sequence[Line],
    *,
    ends: tuple[str, str],
    spans: Sequence[Span] = (),
    zero: bool = False,
) -> str:
    """Return a plot of lines with a legend below it."""
    drawn = [line for line in several if line.values]
    if not drawn:
        return ""
    low = min(min(line.values) for line in drawn)
    high = max(max(line.values) for line in drawn)
    low = 0.0 if zero else low - (high - low) * 0.05
    high = high if high > low else low + 1
    parts = [_frame(title), *(_marked(span) for span in spans), _axes(low, high, ends)]
    for n, line in enumerate(drawn):
        points = " ".join(
            f"{_x(k / max(len(line.values) - 1, 1)):.1f},{_y((v - low) / (high - low)):.1f}"
            for k, v in _thinned(line.values)
        )
        dash = " stroke-dasharray='4 3'" if line.dashed else ""
        parts.append(
            f"<polyline points='{points}' fill='none' stroke='{_hue(n)}' stroke-width='1.8'{dash}/>"
        )
    return "".join(
        [*parts, "</svg>", legend([(line.name, _hue(n)) for n, line in enumerate(drawn)])]
    )


def matrix(title: str, names: Sequence[str], counts: Mapping[tuple[str, str], int]) -> str:
    """Return who hands work to whom: a square per pair, the darker the more."""
    size, left, top = 22, 150, 24
    most = max(counts.values(), default=1)
    side = len(names) * size
    width, height = left + side + 10, top + side + 10
    begin = f"<svg viewBox='0 0 {width} {height}' role='img' style='max-width:{width}px' "
    parts = [f"{begin}aria-label='{escape(title)}'>"]
    for row, sender in enumerate(names):
        y = top + row * size
        label = escape(_short(sender))
        parts.append(
            f"<text x='{left - 6}' y='{y + 15}' text-anchor='end'>{label} {row + 1}</text>"
            f"<text x='{left + row * size + 11}' y='{top - 8}' text-anchor='middle'>{row + 1}</text>"
        )
        for column, recipient in enumerate(names):
            count = counts.get((sender, recipient), 0)
            strength = 0.04 if not count else 0.15 + 0.85 * (count / most) ** 0.5
            x = left + column * size
            parts.append(
                f"<rect x='{x}' y='{y}' width='{size - 2}' height='{size - 2}' rx='2' "
                f"fill='{_HUES[0]}' fill-opacity='{strength:.2f}'>"
                f"<title>{escape(sender)} to {escape(recipient)}: {count}</title></rect>"
            )
    return "".join([*parts, "</svg>"])


class Interval(NamedTuple):
    """A rate with the interval that holds it, and what was claimed."""

    name: str
    low: float
    rate: float
    high: float
    claimed: float | None
    n: int


def intervals(title: str, rows: Sequence[Interval]) -> str:
    """Return rates from 0 to 1, one row each; a claim is a mark."""
    row, left = 20, 210
    height = len(rows) * row + 26
    width = WIDTH - left - 56
    parts = [
        f"<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{escape(title)}'>",
        *(
            f"<line x1='{left + width * s / 4}' x2='{left + width * s / 4}' y1='0' "
            f"y2='{height - 18}' class='grid'/><text x='{left + width * s / 4}' y='{height - 4}' "
            f"text-anchor='middle'>{s * 25} %</text>"
            for s in range(5)
        ),
    ]
    for n, each in enumerate(rows):
        y = n * row + 11
        broken = each.claimed is not None and each.high < each.claimed
        hue = _HUES[1] if broken else _HUES[0]
        parts.append(
            f"<text x='{left - 8}' y='{y + 4}' text-anchor='end'>{escape(_short(each.name, 30))}</text>"
            f"<line x1='{left + width * each.low:.1f}' x2='{left + width * each.high:.1f}' y1='{y}' "
            f"y2='{y}' stroke='{hue}' stroke-width='3' stroke-opacity='.45'/>"
            f"<circle cx='{left + width * each.rate:.1f}' cy='{y}' r='4' fill='{hue}'/>"
            f"<text x='{WIDTH - 50}' y='{y + 4}'>n {each.n}</text>"
        )
        if each.claimed is not None:
            x = left + width * each.claimed
            parts.append(
                f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{y - 7}' y2='{y + 7}' class='claim'/>"
            )
    return "".join([*parts, "</svg>"])


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Return names with their colours."""
    named = "".join(
        f"<span><i style='background:{hue}'></i>{escape(name)}</span>" for name, hue in entries
    )
    return f"<p class='legend'>{named}</p>"


def day(at: int) -> str:
    """Return a time to the minute."""
    return format_time(at)[:16].replace("T", " ")


def _thinned(values: Sequence[float]) -> list[tuple[int, float]]:
    step = max(len(values) // _POINTS_MAX, 1)
    return [(n, values[n]) for n in range(0, len(values), step)]


def _frame(title: str) -> str:
    return f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(title)}'>"


def _axes(low: float, high: float, ends: tuple[str, str]) -> str:
    bottom = HEIGHT - _BOTTOM
    ticks = "".join(
        f"<line x1='{_LEFT}' x2='{WIDTH - _RIGHT}' y1='{_y(s):.1f}' y2='{_y(s):.1f}' class='grid'/>"
        f"<text x='{_LEFT - 6}' y='{_y(s) + 4:.1f}' text-anchor='end'>{_number(low + s * (high - low))}</text>"
        for s in (0.0, 0.5, 1.0)
    )
    return (
        f"{ticks}<text x='{_LEFT}' y='{bottom + 16}'>{escape(ends[0])}</text>"
        f"<text x='{WIDTH - _RIGHT}' y='{bottom + 16}' text-anchor='end'>{escape(ends[1])}</text>"
    )


def _marked(span: Span) -> str:
    begin, end = _x(max(span.begin, 0.0)), _x(min(span.end, 1.0))
    return (
        f"<rect x='{begin:.1f}' y='{_TOP}' width='{max(end - begin, 3):.1f}' "
        f"height='{HEIGHT - _BOTTOM - _TOP}' fill='{_HUES[1]}' fill-opacity='.15'/>"
    )


def _x(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _BOTTOM - _TOP)


def _hue(n: int) -> str:
    return _HUES[n % len(_HUES)]


def _short(name: str, chars: int = _NAME_CHARS) -> str:
    return name if len(name) <= chars else f"…{name[-chars + 1 :]}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"  # noqa: PLR2004  # three digits
