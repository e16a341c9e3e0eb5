"""Where a visit to the database is made: on the event loop while visits are quick, else on a thread.

A visit of a tenth of a millisecond is not worth two changes of thread; one that waits for a slow
disk must not hold up the loop. Which of the two this disk gives is measured as we go.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any, Final, TypeVar

T = TypeVar("T")

QUICK_SECONDS_MAX: Final = 0.003
"""Visits that take longer than this on average are made on the thread."""
_WEIGHT: Final = 0.1


class Pace:
    """A moving average of how long visits take."""

    __slots__ = ("_average_seconds", "_quick_seconds_max", "quick")

    def __init__(self, quick_seconds_max: float = QUICK_SECONDS_MAX) -> None:
        self._quick_seconds_max = quick_seconds_max
        self._average_seconds = 0.0
        self.quick = True
        """Whether visits are quick enough for the event loop."""

    def measured(self, call: Callable[..., T], *args: Any) -> T:
        """Make a visit and take its measure."""
        began = perf_counter()
        try:
            return call(*args)
        finally:
            took = perf_counter() - began
            self._average_seconds += _WEIGHT * (took - self._average_seconds)
            self.quick = self._average_seconds <= self._quick_seconds_max
