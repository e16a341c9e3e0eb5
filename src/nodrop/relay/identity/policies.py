"""Policies: the rules that each team's operators have set, at hand for every command."""

from typing import Final

import msgspec

from nodrop.log.port import Record
from nodrop.model.policy import DEFAULT_POLICY, Policy, Signatures
from nodrop.protocol.identity.key_views import PolicyAnswer
from nodrop.protocol.showing import step_view

KIND: Final = "policy"


class Policies:
    """The policy of every team."""

    def __init__(self) -> None:
        self.by_team: dict[str, Policy] = {}
        """Of the teams that have set one."""
        self.signed_only: set[str] = set()
        """Teams whose offers and outcomes must be signed."""

    def put(self, record: Record) -> None:
        """Know a team's policy as it is now."""
        team = record.team
        self.by_team[team] = policy = msgspec.json.decode(record.json, type=Policy)
        if policy.signatures is Signatures.REQUIRED:
            self.signed_only.add(team)
        else:
            self.signed_only.discard(team)

    def get(self, team: str) -> Policy:
        """Return the rules of a team."""
        return self.by_team.get(team, DEFAULT_POLICY)


def record(team: str, policy: Policy) -> Record:
    """Return a policy as a store keeps it."""
    return Record(team=team, kind=KIND, id=KIND, json=msgspec.json.encode(policy))


def view(policy: Policy) -> PolicyAnswer:
    """Return a policy as its team sees it."""
    return PolicyAnswer(
        signatures=policy.signatures.value,
        allow=tuple(
            {"from": rule.from_, "to": rule.to, "capability": rule.capability}
            for rule in policy.allow
        ),
        escalation=tuple(step_view(step) for step in policy.escalation),
    )
