"""Exact tails: how likely so many, or more, would be by chance alone."""

from math import exp, lgamma, log
from typing import Final

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


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)
