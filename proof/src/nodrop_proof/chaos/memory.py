"""What the callers of one database were told, by all its relays, to be held against what is there."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

import msgspec

from nodrop.protocol import views

ENTRIES: Final[Mapping[str, tuple[str, ...]]] = {
    "offer": ("handoff.offered.v1",),
    "take": ("handoff.delivered.v1", "handoff.reclaimed.v1"),
    "ack": ("handoff.accepted.v1",),
    "update": ("handoff.updated.v1",),
    "step": ("handoff.step_recorded.v1",),
    "checkpoint": ("handoff.checkpointed.v1",),
    "complete": ("handoff.completed.v1",),
    "fail": ("handoff.failed.v1", "handoff.returned.v1"),
    "release": ("handoff.returned.v1", "handoff.failed.v1"),
    "cancel": ("handoff.cancelled.v1",),
    "settle": ("handoff.settled.v1",),
    "note_team": ("team.noted.v1",),
}
"""What a command leaves in the log: one of these."""


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """A command was answered: an entry of its kind, under its id, is in the log."""

    actor: str
    operation: str
    command_id: str
    handoff_id: str | None = None


class Memory:
    """What was told, as it was told."""

    def __init__(self) -> None:
        self.answers = 0
        """How often somebody was answered."""
        self.promises: list[Promise] = []
        self.stored: set[str] = set()
        """Handoffs that were answered as stored."""
        self.receipts: set[tuple[str, str, str]] = set()
        """(handoff id, rung, time): every rung that anybody was shown."""
        self.steps: defaultdict[str, set[str]] = defaultdict(set)
        """Names of steps that were answered as recorded, by handoff."""
        self.steps_rerun = 0
        """Such steps that a later delivery did not know of, so that they ran again."""
        self.tokens: set[str] = set()
        self.ended: list[str] = []
        """Handoffs that are over, and nobody asks about any more."""
        self.erasing: set[str] = set()
        """Handoffs whose bodies may be gone."""
        self.erased: set[str] = set()
        """Handoffs whose bodies are gone for good."""
        self.refusals: Counter[str] = Counter()

    def shown(self, handoff: views.HandoffView) -> None:
        """Remember the rungs of a handoff that somebody was shown."""
        self.receipts.update((handoff.id, r.rung, r.at) for r in handoff.receipts)
