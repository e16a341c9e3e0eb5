"""A group in the hands of its requester: several handoffs, one wait, one settlement."""

from typing import Any, Final

import msgspec

from nodrop.client.durations import Duration, Wait
from nodrop.client.endings import WaitElapsed
from nodrop.client.handoff import Handoff
from nodrop.client.shown import Shown
from nodrop.client.transports.calls import Calls

_OPEN: Final = frozenset({"offered", "delivered", "accepted", "blocked"})


class GroupMember(Shown, frozen=True, kw_only=True):
    """A member of a group, as it ended or is."""

    id: str
    to: str
    state: str
    result: Any = None
    code: str | None = None
    reason: str | None = None


class Answers(dict[str, Any]):
    """The results of those members that completed, by label."""

    def __init__(self, members: dict[str, GroupMember], *, joined: bool) -> None:
        super().__init__({k: m.result for k, m in members.items() if m.state == "completed"})
        self.joined = joined
        """Whether as many completed as were needed."""
        self.members = members
        """Every member by its label, whatever became of it."""

    @property
    def missing(self) -> dict[str, GroupMember]:
        """The members that did not complete."""
        return {label: m for label, m in self.members.items() if m.state != "completed"}


class Group:
    """A group as the relay last showed it."""

    def __init__(self, view: dict[str, Any], calls: Calls) -> None:
        self.view = view
        """The whole answer, as it came."""
        self._calls = calls

    def __repr__(self) -> str:
        return f"<Group {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """Its id, which is that of a handoff too."""
        return self.view["id"]

    @property
    def state(self) -> str:
        """Accepted while it is open; completed, failed or cancelled."""
        return self.view["state"]

    @property
    def members(self) -> dict[str, GroupMember]:
        """Its members by the requester's labels."""
        return msgspec.convert(self.view["members"], dict[str, GroupMember])

    @property
    def handoff(self) -> Handoff:
        """The group itself, which the relay holds."""
        return Handoff(self.view["handoff"], self._calls)

    async def answers(self, wait: Duration | None = None) -> Answers:
        """Wait until it has closed, say that the requester has it, and return what came of it.

        Raises:
            WaitElapsed: it goes on.
        """
        left = Wait(wait)
        while True:
            answer = await self._calls.call("get_group", {"wait": left.piece()}, name=self.id)
            self.view = answer["group"]
            if self.state not in _OPEN:
                await self.handoff.settle()
                return Answers(self.members, joined=self.state == "completed")
            if left.over:
                raise WaitElapsed(self.handoff)

    async def cancel(self, reason: str | None = None) -> "Group":
        """Withdraw it, with every member that is unfinished."""
        await self.handoff.cancel(reason)
        answer = await self._calls.call("get_group", name=self.id)
        self.view = answer["group"]
        return self
