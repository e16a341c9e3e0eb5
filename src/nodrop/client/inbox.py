"""What waits in an inbox, and what its reader can say to it."""

from typing import Any

from nodrop.client.cursor import Cursor
from nodrop.client.handoff import Handoff
from nodrop.client.transports.calls import Calls
from nodrop.client.values import given, plain
from nodrop.model.errors import NotFoundError


class ItemShown:
    """One inbox item as the relay shows it. Reading never consumes it."""

    def __init__(self, view: dict[str, Any]) -> None:
        self._view = view

    @property
    def view(self) -> dict[str, Any]:
        """The item as it came."""
        return self._view

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.seq} {self.kind} {self.summary!r}>"

    @property
    def kind(self) -> str:
        """handoff, outcome, question, counter, notice or message."""
        return self.view["kind"]

    @property
    def seq(self) -> int:
        """Its place in the log; what an answer names."""
        return self.view["seq"]

    @property
    def at(self) -> str:
        """When it came."""
        return self.view["at"]

    @property
    def sender(self) -> str:
        """Whose doing it is: the protocol's `from`."""
        return self.view["from"]

    @property
    def summary(self) -> str:
        """What it is about, for people."""
        return self.view["summary"]

    @property
    def handoff_id(self) -> str | None:
        """The handoff it is about."""
        return self.view.get("handoff_id")

    @property
    def ref(self) -> str | None:
        """The human reference of that handoff."""
        return self.view.get("ref")

    @property
    def state(self) -> str | None:
        """The state of that handoff."""
        return self.view.get("state")

    @property
    def notice(self) -> dict[str, Any] | None:
        """For a notice: what happened, why, since when, the commands, and every handoff it is about."""
        return self.view.get("notice")

    @property
    def open(self) -> bool:
        """Whether it still waits for the reader."""
        return self.view.get("open", True)


class Item(ItemShown):
    """One inbox item, and what can be said to it."""

    def __init__(self, view: dict[str, Any], calls: Calls) -> None:
        super().__init__(view)
        self._calls = calls

    async def handoff(self) -> Handoff:
        """Look up the handoff it is about."""
        return Handoff(await self._calls.about(self._id(), "get_handoff"), self._calls)

    async def answer(self, value: Any) -> Handoff:
        """Answer the question it asks."""
        return await self._say("answer", answer=plain(value, "answer"))

    async def agree(self) -> Handoff:
        """Take the terms it counters with."""
        return await self._say("agree")

    async def decline(self, reason: str | None = None) -> Handoff:
        """Do not take the terms it counters with."""
        return await self._say("decline", **given(reason=reason))

    async def dismiss(self) -> list[Handoff]:
        """Take it from the inbox, for every handoff that it is about. A later notice is shown again."""
        noticed = self.notice["handoffs"] if self.notice else [{"id": self._id()}]
        return [
            Handoff(await self._calls.about(each["id"], "dismiss"), self._calls) for each in noticed
        ]

    async def _say(self, operation: str, **fields: Any) -> Handoff:
        view = await self._calls.about(self._id(), operation, seq=self.seq, **fields)
        return Handoff(view, self._calls)

    def _id(self) -> str:
        if self.handoff_id is None:
            raise NotFoundError("this item is about no handoff")
        return self.handoff_id


class Inbox(list[Item]):
    """A page of an inbox; `after` is the cursor for the next."""

    def __init__(self, items: list[Item], *, after: Cursor) -> None:
        super().__init__(items)
        self.after = after
