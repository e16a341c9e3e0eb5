"""Binding: the contract of a recipient that registered after the offer, at the first delivery.

An offer to an agent that is known is checked against its manifest at once. An offer that waits for
its agent is checked when the agent first gets it; what does not fit is rejected then.
"""

from typing import Any

from nodrop.model.commands import Binding
from nodrop.model.contract import Agent
from nodrop.model.errors import ForbiddenError, NoMatchError, PayloadInvalidError
from nodrop.model.handoff import Handoff
from nodrop.protocol import bodies, canonical
from nodrop.relay.batch import Batch
from nodrop.relay.bodies import Bodies
from nodrop.relay.directory.register import Register, candidate_of


class Binder:
    """Finds the contract that a first delivery binds."""

    def __init__(self, *, register: Register, bodies: Bodies) -> None:
        self._register = register
        self._bodies = bodies

    async def fetch(self, batch: Batch, handoff: Handoff) -> Binding | None:
        """Return the contract of a delivery, or why it cannot hold; None: there is none to bind."""
        recipient = self._recipient(handoff)
        if recipient is None:
            return None
        key = (handoff.team, handoff.id, 1)
        found = batch.bodies if key in batch.bodies else await self._bodies.fetch([key])
        return self._binding(handoff, recipient, found[key])

    def cached(self, batch: Batch, handoff: Handoff) -> Binding | None:
        """Return the same without waiting.

        Raises:
            MissingBodyError: what was offered must be fetched first.
        """
        recipient = self._recipient(handoff)
        if recipient is None:
            return None
        key = (handoff.team, handoff.id, 1)
        found = batch.bodies[key] if key in batch.bodies else self._bodies.cached(key)
        return self._binding(handoff, recipient, found)

    def _recipient(self, handoff: Handoff) -> Agent | None:
        """Return the recipient if its manifest says what this handoff is held to."""
        known = self._register.get(handoff.team, handoff.recipient) if handoff.unbound else None
        if known is None:
            return None
        declared = known[0].manifest.capabilities
        several = handoff.capability is None and len(declared) > 1
        return known[0] if declared and not several else None

    def _binding(self, handoff: Handoff, agent: Agent, content: bytes | None) -> Binding:
        declared = agent.manifest.capabilities
        name = handoff.capability or declared[0].name
        found = agent.manifest.capability(name)
        if found is None:
            offered = ", ".join(c.name for c in declared)
            why = f"capability: {agent.id} does not offer {name!r}; it offers {offered}"
            return _refused(agent, name, NoMatchError.code, why)
        if handoff.capability is None:  # it was allowed without one
            try:
                self._register.rules.require(handoff.team, handoff.sender, agent.id, name)
            except ForbiddenError as error:
                return _refused(agent, name, error.code, f"capability: {error.detail}")
        to = candidate_of(agent, found)
        payload = _payload(content)
        if problems := self._register.problems(handoff.team, to, name, "input", payload):
            why = f"{problems[0].path}: {problems[0].message}"
            return _refused(agent, name, PayloadInvalidError.code, why)
        return Binding(to=to, capability=name)


def _payload(content: bytes | None) -> Any:
    return canonical.loads(bytes(bodies.decode_content(content).payload))


def _refused(agent: Agent, capability: str, code: str, why: str) -> Binding:
    return Binding(
        to=candidate_of(agent),
        capability=capability,
        refused=code,
        refusal=bodies.words(reason=why),
    )
