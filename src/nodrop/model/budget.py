"""Arithmetic of what may be done how often: buckets that fill with time, and the price of a retry.

Values in, values out: who counts, and for whom, is the engine's business.
"""

import math
from typing import Final

from nodrop.model.handoff import Value
from nodrop.model.limits import SECOND

RETRY_PERCENT: Final = 100
"""What one retry costs: requesters earn hundredths of one, counted whole."""


class Bucket(Value, frozen=True, kw_only=True):
    """What is left of an allowance. Below nothing: owed, and paid back as time passes."""

    level: float
    at: int
    """When it was so."""


def refilled(bucket: Bucket, *, now: int, per_second: float, most: float) -> Bucket:
    """Return `bucket` as it is now. A clock that was set back fills nothing and takes nothing."""
    passed = max(now - bucket.at, 0)
    return Bucket(level=min(bucket.level + passed * per_second / SECOND, most), at=now)


def taken(bucket: Bucket, cost: float) -> Bucket:
    """Return `bucket` with `cost` less in it."""
    return Bucket(level=bucket.level - cost, at=bucket.at)


def wait_seconds(bucket: Bucket, *, cost: float, per_second: float) -> float:
    """Return how long it takes until `cost` is in `bucket`."""
    return max(cost - bucket.level, 0.0) / per_second


def earned(own: int, *, percent: int, most: int) -> int:
    """Return what a requester has after one more first attempt, in hundredths of a retry."""
    return min(own + percent, most * RETRY_PERCENT)


def retry_wait_ms(own: int, common: Bucket, *, per_second: float) -> int:
    """Return how long a retry must wait: not at all if the requester or its team can pay for it."""
    if own >= RETRY_PERCENT:
        return 0
    return math.ceil(wait_seconds(common, cost=1, per_second=per_second) * SECOND)


def retry_paid(own: int, common: Bucket) -> tuple[int, Bucket]:
    """Return what both have left after a retry. The team's may be overdrawn: none is dropped."""
    if own >= RETRY_PERCENT:
        return own - RETRY_PERCENT, common
    return own, taken(common, 1)
