"""What a team allows: who may hand what to whom, and whether it must be signed.

One value per team, set by its operators. A team that says nothing allows everything among its own
agents and checks signatures where there are any.
"""

from enum import StrEnum
from typing import Final

from nodrop.model.handoff import Escalation, Value, When
from nodrop.model.limits import HOUR

ANY: Final = "*"
PERSON: Final = "me"
STEPS: Final = (
    Escalation(when=When.UNACKNOWLEDGED, after_ms=HOUR, notify=PERSON),
    Escalation(when=When.BLOCKED, after_ms=HOUR, notify=PERSON),
    Escalation(when=When.DEAD, after_ms=0, notify=PERSON),
)
"""The escalation steps of a team that sets none: what nobody acts on reaches a person."""


class Signatures(StrEnum):
    """Whether offers and outcomes must be signed by whoever makes them."""

    OPTIONAL = "optional"
    REQUIRED = "required"


class Allow(Value, frozen=True, kw_only=True, rename={"from_": "from"}):
    """That one agent may hand something to another. `*` is anybody, or anything."""

    from_: str = ANY
    to: str = ANY
    capability: str = ANY

    def covers(self, sender: str, recipient: str, capability: str | None) -> bool:
        """Whether this rule is about such a handoff. Without a capability only `*` covers it."""
        asked = (sender, recipient, capability)
        named = (self.from_, self.to, self.capability)
        return all(name in {ANY, said} for name, said in zip(named, asked, strict=True))


class Policy(Value, frozen=True, kw_only=True):
    """The rules of one team."""

    signatures: Signatures = Signatures.OPTIONAL
    allow: tuple[Allow, ...] = ()
    """Nobody may do more than one of these covers; none at all: everybody may do everything."""

    escalation: tuple[Escalation, ...] = STEPS
    """The team's steps. Each applies to offers that have no step of its kind. They only notify: a
    step that gave work away would do so again for the successor, without end."""

    def allows(self, sender: str, recipient: str, capability: str | None) -> bool:
        """Whether `sender` may hand `capability` to `recipient`."""
        return not self.allow or any(
            rule.covers(sender, recipient, capability) for rule in self.allow
        )


def added(
    own: tuple[Escalation, ...] | None, team: tuple[Escalation, ...]
) -> tuple[Escalation, ...]:
    """Return the team's steps that an offer with the steps `own` gets; empty steps opt out."""
    if own is None:
        return team
    kinds = {step.when for step in own}
    return tuple(step for step in team if step.when not in kinds) if own else ()


DEFAULT_POLICY: Final = Policy()
