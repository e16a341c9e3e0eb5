"""Allow rules: whom a sender may hand what to, as its team's policy says.

Asked wherever somebody new is about to be asked to do something. A refusal names what no rule
covers, and nobody's rules.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from nodrop.model.errors import ForbiddenError
from nodrop.model.handoff import Escalation, Leg
from nodrop.model.policy import ANY, DEFAULT_POLICY, Policy

T = TypeVar("T")
SUSPECT: Final = "rule"
"""What the security log calls it."""


class Rules:
    """The allow rules of every team."""

    def __init__(self, policies: Mapping[str, Policy] | None = None) -> None:
        """Go by the `policies` of teams, as they are when asked; a team without one says nothing."""
        self.policies: Mapping[str, Policy] = {} if policies is None else policies
        """Of each team that has one."""

    def admitted(
        self, team: str, sender: str, offered: Mapping[str, T], capability: str
    ) -> Mapping[str, T]:
        """Return those of who offers a capability whom `sender` may hand it to."""
        policy = self.policies.get(team, DEFAULT_POLICY)
        if not policy.allow:
            return offered
        return {a: o for a, o in offered.items() if policy.allows(sender, a, capability)}

    def team_steps(self, team: str) -> tuple[Escalation, ...]:
        """Return the team's escalation steps, for offers that have none of the same kind."""
        return self.policies.get(team, DEFAULT_POLICY).escalation

    def require(self, team: str, sender: str, recipient: str, capability: str | None) -> None:
        """Refuse a handoff that no rule covers."""
        policy = self.policies.get(team, DEFAULT_POLICY)
        if policy.allow and not policy.allows(sender, recipient, capability):
            raise _uncovered(sender, recipient, capability)

    def require_legs(
        self, team: str, first: str, legs: Sequence[Leg], only: Callable[[str], str | None]
    ) -> None:
        """Refuse a chain with a leg that no rule covers, whoever else is asked on the way.

        A leg after one that names nobody is looked at when it opens.

        Args:
            team: whose rules.
            first: who is asked first, and hands on to the first leg.
            legs: what comes then.
            only: the one capability of an agent, where a leg leaves it out.
        """
        policy = self.policies.get(team, DEFAULT_POLICY)
        if not policy.allow:
            return
        sender: str | None = first
        for leg in legs:
            capability = leg.capability or (only(leg.to) if leg.to else None)
            if sender is not None and not _possible(policy, sender, leg.to, capability):
                raise _uncovered(sender, leg.to, capability)
            sender = leg.to


def _possible(policy: Policy, sender: str, recipient: str | None, capability: str | None) -> bool:
    if recipient is not None:
        return policy.allows(sender, recipient, capability)
    return any(
        rule.from_ in {ANY, sender} and rule.capability in {ANY, capability}
        for rule in policy.allow
    )


def _uncovered(sender: str, recipient: str | None, capability: str | None) -> ForbiddenError:
    what = f"{capability!r}" if capability else "work without a capability"
    whom = recipient or "anybody"
    error = ForbiddenError(
        f"no rule of this team lets {sender} hand {what} to {whom}",
        next_step="Ask an operator of the team to allow it.",
    )
    error.suspect = SUSPECT
    return error
