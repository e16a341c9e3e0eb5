"""Durations as callers of the SDK write them, and waits that are spent piece by piece.

How durations and times are spelled on the wire is `protocol.times`; `timedelta` and `datetime` are the
spellings that only Python has.
"""

import functools
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.model.limits import SECOND
from nodrop.protocol.times import parse_duration

Duration = str | int | float | timedelta
Due = Duration | datetime
"""A point in time, or how far from now it is."""

_parsed: Final = functools.lru_cache(maxsize=256, typed=True)(parse_duration)
"""A program spells few durations, and each of them often."""
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
    if not isinstance(duration, str):
        duration = spelled(duration)
        if not isinstance(duration, str | int | float):  # pyright: ignore[reportUnnecessaryIsInstance]  # not everybody has types checked
            raise ValueError(f"a {type(duration).__name__} is no duration")  # noqa: TRY004  # as for any other
    return _parsed(duration) / SECOND


def asked_seconds(duration: Duration, path: str) -> float:
    """Return a duration that belongs to a request, in seconds; `path` is what it is called.

    Raises:
        InvalidRequestError: it is not a duration.
    """
    try:
        return seconds(duration)
    except ValueError as error:
        problem = Problem(path=path, message=str(error))
        raise InvalidRequestError(f"{path}: {error}", errors=(problem,)) from None


class Wait:
    """A wait that may be longer than one request: None waits until cancelled."""

    def __init__(
        self,
        duration: Duration | None,
        *,
        path: str = "wait",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to wait; `path` is what a duration that is none is called.

        Raises:
            InvalidRequestError: it is none.
        """
        self._now = now
        self._until = None if duration is None else now() + asked_seconds(duration, path)

    def piece(self) -> float:
        """Return how many seconds the next request may wait."""
        if self._until is None:
            return PIECE_SECONDS_MAX
        return round(min(max(self._until - self._now(), 0.0), PIECE_SECONDS_MAX), 3)

    @property
    def seconds(self) -> float | None:
        """How many seconds are left of it; None: as many as it takes."""
        return None if self._until is None else max(self._until - self._now(), 0.0)

    @property
    def over(self) -> bool:
        """Whether nothing is left of it."""
        return self._until is not None and self._now() >= self._until
