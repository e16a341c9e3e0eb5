"""A node's place among the others: its name, and what it has heard of them."""

from collections.abc import Mapping
from typing import Final

GONE_AFTER_MS: Final = 5_000
"""A node that was not heard of for so long is gone; one that comes back joins again."""
NOW: Final = "(extract(epoch from clock_timestamp()) * 1000)::bigint"
"""The database's time in a statement, so that all nodes mean the same."""


class Place:
    """What a store must know of it with every unit of work. Alone, nothing."""

    def __init__(self) -> None:
        self.node = ""
        """Who writes."""
        self.channel: str | None = None
        """Where others are told that something was written; None: there are no others."""
        self.heard: Mapping[str, int] | None = None
        """The last entry of each team that changed what decisions rest on, of those taken in; None:
        nobody else changes it. Replaced, never changed: a unit of work has it as it began, because
        what is taken in after it has decided is nothing it has decided by."""

    def take(self, name: str) -> None:
        """Have a name from now on."""
        self.node = name
        self.heard = {}

    def hear(self, known: Mapping[str, int]) -> None:
        """Know that these entries of teams have been taken in."""
        assert self.heard is not None, "who has joined has heard something"
        later = {team: seq for team, seq in known.items() if seq > self.heard.get(team, -1)}
        if later:
            self.heard = {**self.heard, **later}

    def unhear(self, team: str) -> None:
        """Know nothing of a team that can be relied on: its log is not the one that was known."""
        if self.heard is not None:
            self.heard = {name: seq for name, seq in self.heard.items() if name != team}
