"""Intervals, and the correction for many tests."""

from collections.abc import Sequence
from math import sqrt
from typing import Final

Z_999: Final = 3.2905
"""Two-sided 99.9 %."""


def wilson(k: int, n: int, z: float = Z_999) -> tuple[float, float]:
    """Return the interval that holds the true rate of `k` successes in `n` tries."""
    if n == 0:
        return 0.0, 1.0
    rate, square = k / n, z * z
    middle = (rate + square / (2 * n)) / (1 + square / n)
    half = z * sqrt(rate * (1 - rate) / n + square / (4 * n * n)) / (1 + square / n)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def discoveries(p_values: Sequence[float], q: float) -> list[bool]:
    """Return which tests stand when a share `q` of those may be false (Benjamini-Hochberg)."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    stands = 0
    for rank, i in enumerate(order, 1):
        if p_values[i] <= q * rank / len(order):
            stands = rank
    kept = set(order[:stands])
    return [i in kept for i in range(len(p_values))]
