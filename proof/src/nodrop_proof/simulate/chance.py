"""Chance that can be repeated."""

from collections.abc import Mapping
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Chance(Random):
    """A stream of chance that one part of the simulation draws from, and nobody else."""

    def __init__(self, seed: int, name: str) -> None:
        super().__init__(f"{seed}/{name}")

    def strikes(self, probability: float) -> bool:
        """Return true this often."""
        return self.random() < probability

    def pick(self, weights: Mapping[T, float]) -> T:
        """Return one of the keys, the heavier the likelier."""
        [picked] = self.choices(list(weights), weights=list(weights.values()))
        return picked

    def about(self, mean: float) -> float:
        """Return a time to wait of this length on average, often much less and at times far more."""
        return self.expovariate(1 / mean)
