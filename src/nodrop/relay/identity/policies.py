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
        self._policies: dict[str, Policy] = {}

    def put(self, record: Record) -> None:
        """Know a team's policy as it is now."""
        self._policies[record.team] = msgspec.json.decode(record.json, type=Policy)

    def get(self, team: str) -> Policy:
        """Return the rules of a team."""
        return self._policies.get(team, DEFAULT_POLICY)

    def signed_only(self, team: str) -> bool:
        """Whether offers and outcomes of a team must be signed."""
        return self.get(team).signatures is Signatures.REQUIRED


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
