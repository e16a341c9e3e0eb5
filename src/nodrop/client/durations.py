"""Durations as callers of the SDK write them, and waits that are spent piece by piece.

How durations and times are spelled on the wire is `wire.times`; `timedelta` and `datetime` are the
spellings that only Python has.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from nodrop.core.limits import SECOND
from nodrop.wire.times import parse_duration

Duration = str | int | float | timedelta
Due = Duration | datetime
"""A point in time, or how far from now it is."""

PIECE_SECONDS_MAX: Final = 20.0
"""One request waits at most this; a longer wait is asked for again. Below the relay's own bound,
and short enough that a dead connection is noticed."""


def spelled(when: Due) -> str | int | float:
    """Return `when` as it goes over the wire."""
    if isinstance(when, timedelta):
        return when.total_seconds()
    return when.isoformat() if isinstance(when, datetime) else when


def spelled_if(when: Due | None) -> str | int | float | None:
    """Return `when` as it goes over the wire, if it was said."""
    return None if when is None else spelled(when)


def seconds(duration: Duration) -> float:
    """Return `duration` in seconds.

    Raises:
        ValueError: it is not a duration.
    """
    return parse_duration(spelled(duration)) / SECOND


class Wait:
    """A wait that may be longer than one request: None waits until cancelled."""

    def __init__(
        self, duration: Duration | None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._now = now
        self._until = None if duration is None else now() + seconds(duration)

    def piece(self) -> float:
        """Return how many seconds the next request may wait."""
        if self._until is None:
            return PIECE_SECONDS_MAX
        return round(min(max(self._until - self._now(), 0.0), PIECE_SECONDS_MAX), 3)

    @property
    def over(self) -> bool:
        """Whether nothing is left of it."""
        return self._until is not None and self._now() >= self._until
