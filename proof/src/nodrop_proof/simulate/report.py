"""What came of a simulation."""

from collections.abc import Mapping

import msgspec


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures, and the first promise that was not kept, if any."""

    seed: int
    hours: float
    agents: int
    steps: int
    """Moments at which something happened; every promise was checked after each."""
    entries: int
    head: str
    """The hash of the log: the same plan gives the same one."""
    stored: int
    lost: int
    duplicated: int
    violation: str | None
    figures: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return self.violation is None

    @property
    def again(self) -> str:
        """The command that runs it again."""
        return f"nodrop prove simulate --seed {self.seed} --hours {self.hours:g} --agents {self.agents}"
