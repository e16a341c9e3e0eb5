"""Where an agent's tools work: its way to the relay, and the deliveries it was given.

Turn-based: an agent names handoffs and never attempts. Which attempt it means is remembered from
when it was given, so that it cannot act on work that somebody else has by now. A command that ends
something has an id made of what it says: said twice, because the answer got lost, it is done once.
"""

from collections.abc import Mapping
from typing import Any, Final

from nodrop.model import events
from nodrop.model.errors import (
    AlreadyFinishedError,
    AttemptRequiredError,
    NotFoundError,
    StaleAttemptError,
)
from nodrop.model.handoff import FINAL
from nodrop.protocol import canonical
from nodrop.protocol import events as wire_events
from nodrop.servers.mcp.way import Memory, Way

View = dict[str, Any]

_FINAL: Final = frozenset(state.value for state in FINAL)
_HELD: Final = frozenset({"delivered", "accepted", "blocked"})
_ID_CHARS: Final = 40
_CHECKPOINTED: Final = wire_events.NAMES[events.Checkpointed]


class Desk:
    """One agent's desk."""

    def __init__(self, way: Way, memory: Memory) -> None:
        self._way = way
        self._memory = memory

    @property
    def agent(self) -> str | None:
        """Who works here."""
        return self._way.agent

    async def call(
        self, operation: str, fields: Mapping[str, Any] | None = None, *, name: str | None = None
    ) -> View:
        """Ask the relay for something that is about no handoff."""
        return await self._way.call(operation, fields or {}, name=name)

    async def handoff(self, ref: str, **fields: Any) -> View:
        """Return the handoff that `ref` names, as it is now."""
        return (await self._way.call("get_handoff", fields, handoff=ref))["handoff"]

    async def command(self, operation: str, handoff: View, fields: Mapping[str, Any]) -> View:
        """Carry out a command that is about no delivery; return the handoff after it."""
        sent = said_once(operation, handoff["id"], fields)
        return (await self._way.call(operation, sent, handoff=handoff["id"]))["handoff"]

    async def dismiss(self, handoff: View) -> View:
        """Dismiss the agent's notices about a handoff; each time is a command of its own."""
        return (await self._way.call("dismiss", {}, handoff=handoff["id"]))["handoff"]

    async def act(
        self,
        operation: str,
        handoff: View,
        fields: Mapping[str, Any],
        *,
        direct: bool = False,
        ends: bool = False,
    ) -> View:
        """Carry out a recipient's command for the delivery it has; return the handoff after it.

        Args:
            operation: ack, update, complete and so on.
            handoff: as it is now.
            fields: what the command says.
            direct: whether something merely offered may be acted on, which takes it.
            ends: whether the delivery is over after it, so that saying it again is a repeat.
        """
        handoff_id = handoff["id"]
        sent = dict(fields)
        if not (direct and handoff["state"] == "offered"):
            attempt = self._memory.of(handoff_id) or await self._attempt(handoff)
            sent |= {} if attempt is None else {"attempt": attempt}
        sent = said_once(operation, handoff_id, sent) if ends else sent
        try:
            done = (await self._way.call(operation, sent, handoff=handoff_id))["handoff"]
        except (StaleAttemptError, AlreadyFinishedError):
            self._memory.forget(handoff_id)
            raise
        if ends or done["to"] != self.agent:
            self._memory.forget(handoff_id)
        else:
            self._memory.remember(done)
        return done

    async def queue(self, handoff: View, fields: Mapping[str, Any]) -> View:
        """Acknowledge what waits until there is time for it; return the handoff after it."""
        sent = {**fields, "queued": True}
        return (await self._way.call("ack", sent, handoff=handoff["id"]))["handoff"]

    async def checkpoint(self, handoff: View) -> Any:
        """Return what an earlier attempt left for whoever goes on."""
        if handoff["attempt"] <= 1:
            return None
        kept = await self.call("log", {"handoff_id": handoff["id"], "type": _CHECKPOINTED})
        bodies = [entry["body"] for entry in kept["entries"] if entry["body"]]
        return bodies[-1].get("checkpoint") if bodies else None

    async def _attempt(self, handoff: View) -> int | None:
        """Return the attempt that an agent which remembers none must mean."""
        state, attempt = handoff["state"], handoff["attempt"]
        if handoff["to"] != self.agent:
            return None  # the relay says why not
        if state == "offered":
            raise AttemptRequiredError(
                f"handoff {handoff['id']} is in your inbox, and nobody has it",
                next_step=f'Take it first: ack(handoff="{handoff["id"]}").',
            )
        if state in _HELD and await self._somebody_else_works():
            raise AttemptRequiredError(
                f"a process of {self.agent} is connected and may hold attempt {attempt}",
                next_step="Leave it to that process, or join under a name of your own.",
            )
        return attempt or None

    async def _somebody_else_works(self) -> bool:
        try:
            return (await self.call("get_agent", name=self.agent))["agent"]["connected"]
        except NotFoundError:
            return False


def ended(handoff: Mapping[str, Any]) -> bool:
    """Whether there is an outcome."""
    return handoff["state"] in _FINAL


def said_once(operation: str, handoff_id: str, fields: Mapping[str, Any]) -> View:
    """Return `fields` with a command id that the same words always have."""
    said = canonical.dumps([operation, handoff_id, dict(fields)])
    return {**fields, "command_id": f"mcp-{canonical.sha256(said)[:_ID_CHARS]}"}


def given(**fields: Any) -> View:
    """Return the fields that were given, so that the relay fills in the rest."""
    return {name: value for name, value in fields.items() if value is not None}
