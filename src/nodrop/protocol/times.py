"""Durations and times, as people and machines write them.

A duration is `"4h"`, `"4 hours"`, `"1h 30m"`, ISO 8601 (`"PT4H"`) or a number of seconds. A point
in time is ISO 8601 with an offset. Inside the relay both are milliseconds.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from nodrop.model.limits import DAY, HOUR, MINUTE, SECOND

Duration = str | int | float

_UNITS: Final[dict[str, int]] = {
    "ms": 1,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
    "d": DAY,
    "w": 7 * DAY,
}
_WORDS: Final[dict[str, str]] = {
    **dict.fromkeys(("millisecond", "milliseconds", "msec", "ms"), "ms"),
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), "s"),
    **dict.fromkeys(("minute", "minutes", "min", "mins", "m"), "m"),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), "h"),
    **dict.fromkeys(("day", "days", "d"), "d"),
    **dict.fromkeys(("week", "weeks", "w"), "w"),
}
_NUMBER: Final = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_PART: Final = re.compile(r"\s*(?:and\s+)?(\d{1,15}(?:\.\d{1,9})?)\s*([a-z]+)\s*,?", re.ASCII)
_ISO: Final = re.compile(
    r"P(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?",
    re.ASCII,
)
_TEXT_CHARS_MAX: Final = 64


def parse_duration(value: Duration) -> int:
    """Return `value` in milliseconds.

    Raises:
        ValueError: it is not a duration, or a negative one.
    """
    if isinstance(value, bool):
        raise ValueError(_EXPECTED)  # noqa: TRY004  # a value of a field, not a wrong call
    if isinstance(value, int | float):
        if not 0 <= value < 1e12:  # noqa: PLR2004  # also turns away NaN
            raise ValueError(_EXPECTED)
        return _milliseconds(value * SECOND)
    if len(value) > _TEXT_CHARS_MAX:
        raise ValueError(_EXPECTED)
    return _parse_text(value)


@lru_cache(maxsize=1_024)  # callers write the same few durations over and over
def _parse_text(value: str) -> int:
    text = value.strip()
    if not text:
        raise ValueError(_EXPECTED)
    if _NUMBER.fullmatch(text):
        return parse_duration(float(text))
    if text[0] == "P":
        return _parse_iso(text)
    return _parse_words(text.lower())


def _parse_iso(text: str) -> int:
    match = _ISO.fullmatch(text)
    if match is None or not any(match.groups()) or text.endswith("T"):
        raise ValueError(_EXPECTED)
    weeks, days, hours, minutes, seconds = (float(g or 0) for g in match.groups())
    whole = weeks * 7 * DAY + days * DAY + hours * HOUR + minutes * MINUTE
    return _milliseconds(whole + seconds * SECOND)


def _parse_words(text: str) -> int:
    total, position = 0.0, 0
    while position < len(text):
        match = _PART.match(text, position)
        unit = _WORDS.get(match[2]) if match else None
        if match is None or unit is None:
            raise ValueError(_EXPECTED)
        total += float(match[1]) * _UNITS[unit]
        position = match.end()
    return _milliseconds(total)


def _milliseconds(exact: float) -> int:
    """Return whole milliseconds; what is more than nothing stays so, however short."""
    return max(1, round(exact)) if exact > 0 else 0


@lru_cache(maxsize=1024)  # a relay writes the same few durations over and over
def format_duration(ms: int) -> str:
    """Return the shortest exact spelling: `"4h"`, `"90s"`, `"1500ms"`."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % _UNITS[unit] == 0:
            return f"{ms // _UNITS[unit]}{unit}"
    return f"{ms}ms" if ms else "0s"


def parse_time(value: str) -> int:
    """Return a point in time as milliseconds since the epoch.

    Raises:
        ValueError: it is not ISO 8601 with an offset.
    """
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError("a point in time needs an offset, such as Z")
    return round(moment.timestamp() * SECOND)


def parse_due(value: Duration, *, now: int) -> int:
    """Return the point in time that `value`, a duration from now or a time, names."""
    if isinstance(value, str) and len(value) > 9 and value[4:5] == "-":  # noqa: PLR2004  # 2026-…
        return parse_time(value)
    return now + parse_duration(value)


@lru_cache(maxsize=16_384)  # what happens in one commit is told many times
def format_time(ms: int) -> str:
    """Return a point in time as ISO 8601 in UTC with milliseconds."""
    return f"{_to_the_second(ms // SECOND)}.{ms % SECOND:03d}Z"


@lru_cache(maxsize=4_096)
def _to_the_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]  # strftime would not pad the year


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EXPECTED: Final = 'expected a duration such as "4h", "4 hours", "PT4H" or seconds'
EXPECTED_MOMENT: Final = (
    'expected a duration such as "6h" or "2 days", or a time with its offset such as '
    "2026-01-31T09:00:00Z"
)
"""For what is either so long ago, or a point in time."""
