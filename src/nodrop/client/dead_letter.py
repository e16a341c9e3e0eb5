"""A handoff that ended without success and waits for a decision. Each gets one."""

from nodrop.client.durations import Due, spelled_if
from nodrop.client.handoff import Handoff
from nodrop.client.values import given


class DeadLetter(Handoff):
    """A dead letter: try again, take what came too late, or let it be."""

    async def redrive(
        self,
        to: str | None = None,
        *,
        capability: str | None = None,
        deadline: Due | None = None,
        reason: str | None = None,
    ) -> Handoff:
        """Try again, optionally with somebody else, and return the successor."""
        due = spelled_if(deadline)
        fields = given(to=to, capability=capability, deadline=due, reason=reason)
        return await self._succeeded_by("redrive", **fields)

    async def accept(self) -> Handoff:
        """Take the result that came too late, and return the successor that holds it."""
        return await self._succeeded_by("accept")

    async def discard(self, reason: str | None = None) -> Handoff:
        """Decide that nothing more shall be done about it."""
        self._show(await self._calls.about(self.id, "discard", **given(reason=reason)))
        return self

    async def _succeeded_by(self, operation: str, **fields: object) -> Handoff:
        view = await self._calls.about(self.id, operation, **fields)
        if view["id"] == self.id:
            self._show(view)
            view = await self._calls.about(view["successor"], "get_handoff")
        return Handoff(view, self._calls)
