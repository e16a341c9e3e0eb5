"""What the relay answers about triggers and events."""

from typing import Any

import msgspec

from nodrop.protocol.view import View


class TriggerView(View, frozen=True, kw_only=True):
    """A rule: when such an event meets the condition, this is handed off."""

    name: str
    on: str
    when: str
    offer: dict[str, Any]
    from_file: bool
    """It stands in `nodrop.toml`, which says what it is."""
    set_at: str


class TriggerAnswer(View, frozen=True, kw_only=True):
    """One rule."""

    trigger: TriggerView


class TriggersAnswer(View, frozen=True, kw_only=True):
    """The rules of a team."""

    triggers: tuple[TriggerView, ...]


class FiredView(View, frozen=True, kw_only=True, omit_defaults=True):
    """What one rule made of an event."""

    rule: str
    handoff_id: str | None = None
    before: bool = False
    """It had fired for this event already."""
    unmet: str | None = None
    """Why the condition could not be evaluated."""


class EmittedAnswer(View, frozen=True, kw_only=True):
    """An event in the log, and what came of it. The same event again brings nothing new about."""

    seq: int
    event_id: str
    fired: tuple[FiredView, ...]


class TrialView(View, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule would have made of a past event."""

    seq: int
    event_id: str
    met: bool
    unmet: str | None = None
    offer: Any = msgspec.UNSET
    """What would have been handed off."""
    refused: str | None = None
    """Why that would have been refused."""


class TrialsAnswer(View, frozen=True, kw_only=True):
    """A dry run: nothing was handed off."""

    trials: tuple[TrialView, ...]
    after: int


ANSWERS: dict[str, type[View]] = {
    "trigger": TriggerAnswer,
    "triggers": TriggersAnswer,
    "emitted": EmittedAnswer,
    "trials": TrialsAnswer,
}
"""The answer shapes that `protocol.operations` names."""
