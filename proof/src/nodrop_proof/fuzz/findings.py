"""What came of giving bytes to the decoders."""

import msgspec


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """How many inputs there were, and what was not taken well."""

    runs: int
    seed: int
    targets: dict[str, int]
    """How many of the inputs each got."""
    told: dict[str, str]
    """By target: the first input that was neither read nor refused, and what it did."""

    @property
    def ok(self) -> bool:
        """Whether there is nothing to complain of, and something was given."""
        return not self.told and self.runs > 0
