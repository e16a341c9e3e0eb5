"""The arithmetic of a benchmark: ranks, medians with their range, ratios within a round."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Self

import msgspec


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A median and the range it was taken from."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Self | None:
        """Return the spread of at least one sample; None of none."""
        if not samples:
            return None
        return cls(median=statistics.median(samples), low=min(samples), high=max(samples))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest of the ordered samples that at least `share` of all do not exceed."""
    rank = -(-len(ordered) * share // 1)  # rounded up: the nearest rank
    return ordered[max(int(rank), 1) - 1]


def ratios(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Spread | None:
    """Return ours/theirs of each round in which both were measured."""
    both = sorted(ours.keys() & theirs.keys())
    return Spread.of([ours[number] / theirs[number] for number in both])
