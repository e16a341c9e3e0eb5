"""The retry budget: how long a retry waits so that retries stay a small part of the work.

A requester earns a tenth of a retry with every first attempt; whose own is used up draws on an
allowance that its team has in common. A retry that nobody can pay for waits its turn and is never
dropped. In memory: a relay that starts anew is generous once.
"""

from nodrop.log.port import Key
from nodrop.model import budget
from nodrop.model.budget import Bucket
from nodrop.model.handoff import Handoff
from nodrop.model.limits import Limits


class Retries:
    """What every requester has earned, and what each team has in common."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._own: dict[Key, int] = {}
        """In hundredths of a retry; who is not here has all that may be saved."""
        self._common: dict[str, Bucket] = {}

    def earn(self, team: str, origin: str) -> None:
        """Count a first attempt."""
        key = (team, origin)
        limits = self._limits
        if key in self._own:
            self._own[key] = budget.earned(
                self._own[key], percent=limits.retry_percent, most=limits.retries_saved_max
            )

    def wait_ms(self, team: str, origin: str, *, now: int) -> int:
        """Return how long a retry for `origin` must wait."""
        own, common = self._purses(team, origin, now)
        return budget.retry_wait_ms(own, common, per_second=self._limits.retries_per_second)

    def pay(self, team: str, origin: str, *, now: int) -> None:
        """Count a retry."""
        own, common = self._purses(team, origin, now)
        self._own[team, origin], self._common[team] = budget.retry_paid(own, common)

    def note(self, before: Handoff, after: Handoff, *, now: int) -> None:
        """Count a retry if there will be one: a try was used up, and it was not the last."""
        if after.tries > before.tries and not after.final:
            self.pay(after.team, after.origin, now=now)

    def _purses(self, team: str, origin: str, now: int) -> tuple[int, Bucket]:
        limits = self._limits
        common = self._common.get(team) or Bucket(level=limits.retries_burst_max, at=now)
        common = budget.refilled(
            common, now=now, per_second=limits.retries_per_second, most=limits.retries_burst_max
        )
        saved = limits.retries_saved_max * budget.RETRY_PERCENT
        return self._own.get((team, origin), saved), common
