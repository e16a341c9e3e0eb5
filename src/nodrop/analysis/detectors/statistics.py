"""Exact tails, intervals and the correction for many tests."""

from collections.abc import Sequence
from math import exp, lgamma, log, sqrt
from typing import Final

Z_999: Final = 3.2905
"""Two-sided 99.9 %."""
_NEGLIGIBLE: Final = 1e-17


def binomial_tail(k: int, n: int, p: float) -> float:
    """Return the probability of `k` or more successes in `n` tries."""
    if k <= 0:
        return 1.0
    if k > n or p <= 0:
        return 0.0
    if p >= 1:
        return 1.0
    term = exp(_log_choose(n, k) + k * log(p) + (n - k) * log(1 - p))
    total, odds = 0.0, p / (1 - p)
    for i in range(k, n + 1):
        total += term
        term *= (n - i) / (i + 1) * odds
        if term < total * _NEGLIGIBLE:
            break
    return min(total, 1.0)


def poisson_tail(k: int, mean: float) -> float:
    """Return the probability of `k` or more where `mean` are expected."""
    if k <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    term = exp(k * log(mean) - mean - lgamma(k + 1))
    total, i = 0.0, k
    while True:
        total += term
        i += 1
        term *= mean / i
        if i > mean and term < max(total, 1e-300) * _NEGLIGIBLE:
            return min(total, 1.0)


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


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
