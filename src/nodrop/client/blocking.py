"""The blocking twins of the client and what it hands out, for programs without an event loop."""

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, Concatenate, ParamSpec, TypeVar

from nodrop.client.client import Client
from nodrop.client.dead_letter import DeadLetter
from nodrop.client.endings import HandoffFailed, WaitElapsed
from nodrop.client.group import Group, GroupMember
from nodrop.client.handoff import Handoff
from nodrop.client.inbox import Inbox, Item, ItemShown
from nodrop.client.portal import Portal, Twin, blocking, blocking_as
from nodrop.client.shown import Entry, HandoffShown
from nodrop.client.trace import Trace
from nodrop.client.transports.calls import Calls

P = ParamSpec("P")
R = TypeVar("R")


def _waiting(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return the blocking twin of a wait; what it raises carries a twin too."""

    @functools.wraps(method)
    def twin(self: Twin, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return self.portal.call(method(self.inner, *args, **kwargs))
        except (HandoffFailed, WaitElapsed) as error:
            if isinstance(error.handoff, Handoff):
                error.handoff = BlockingHandoff(error.handoff, self.portal)
            raise

    return twin


def _handoff(inner: Handoff, portal: Portal) -> "BlockingHandoff":
    return BlockingHandoff(inner, portal)


def _handoffs(inner: list[Handoff], portal: Portal) -> "list[BlockingHandoff]":
    return [BlockingHandoff(handoff, portal) for handoff in inner]


class BlockingHandoff(Twin, HandoffShown):
    """The blocking twin of `Handoff`."""

    def __init__(self, inner: Handoff, portal: Portal) -> None:
        Twin.__init__(self, inner, portal)

    @property
    def view(self) -> dict[str, Any]:
        """The whole answer, as it came."""
        return self.inner.view

    acknowledged = _waiting(Handoff.acknowledged)
    result = _waiting(Handoff.result)
    outcome = _waiting(Handoff.outcome)
    refresh = blocking_as(Handoff.refresh, _handoff)
    verify = blocking(Handoff.verify)
    settle = blocking(Handoff.settle)
    cancel = blocking_as(Handoff.cancel, _handoff)
    erase = blocking_as(Handoff.erase, _handoff)
    reassign = blocking_as(Handoff.reassign, _handoff)
    dismiss = blocking_as(Handoff.dismiss, _handoff)
    note = blocking_as(Handoff.note, _handoff)


class BlockingDeadLetter(BlockingHandoff):
    """The blocking twin of `DeadLetter`."""

    redrive = blocking_as(DeadLetter.redrive, _handoff)
    accept = blocking_as(DeadLetter.accept, _handoff)
    discard = blocking_as(DeadLetter.discard, _handoff)


class BlockingItem(Twin, ItemShown):
    """The blocking twin of `Item`."""

    def __init__(self, inner: Item, portal: Portal) -> None:
        Twin.__init__(self, inner, portal)

    @property
    def view(self) -> dict[str, Any]:
        """The item as it came."""
        return self.inner.view

    handoff = blocking_as(Item.handoff, _handoff)
    answer = blocking_as(Item.answer, _handoff)
    agree = blocking_as(Item.agree, _handoff)
    decline = blocking_as(Item.decline, _handoff)
    dismiss = blocking_as(Item.dismiss, _handoffs)


class BlockingInbox(list[BlockingItem]):
    """The blocking twin of `Inbox`."""

    def __init__(self, inner: Inbox, portal: Portal) -> None:
        super().__init__(BlockingItem(item, portal) for item in inner)
        self.after = inner.after


def _dead_letters(inner: list[DeadLetter], portal: Portal) -> list[BlockingDeadLetter]:
    return [BlockingDeadLetter(letter, portal) for letter in inner]


def _group(inner: Group, portal: Portal) -> "BlockingGroup":
    return BlockingGroup(inner, portal)


class BlockingTrace(list[BlockingHandoff]):
    """The blocking twin of `Trace`."""

    def __init__(self, inner: Trace, portal: Portal) -> None:
        super().__init__(_handoffs(inner, portal))
        self.view = inner.view
        self.state = inner.state
        self.breaks = inner.breaks


class BlockingGroup(Twin):
    """The blocking twin of `Group`."""

    def __init__(self, inner: Group, portal: Portal) -> None:
        super().__init__(inner, portal)

    @property
    def view(self) -> dict[str, Any]:
        """The whole answer, as it came."""
        return self.inner.view

    @property
    def id(self) -> str:
        """Its id."""
        return self.inner.id

    @property
    def state(self) -> str:
        """Accepted while it is open; completed, failed or cancelled."""
        return self.inner.state

    @property
    def members(self) -> dict[str, GroupMember]:
        """Its members by the requester's labels."""
        return self.inner.members

    @property
    def handoff(self) -> BlockingHandoff:
        """The group itself, which the relay holds."""
        return BlockingHandoff(self.inner.handoff, self.portal)

    answers = blocking(Group.answers)
    cancel = blocking_as(Group.cancel, _group)


class BlockingClient(Twin):
    """The blocking twin of `Client`. `nodrop.connect_sync` makes it."""

    def __init__(self, inner: Client, portal: Portal) -> None:
        super().__init__(inner, portal)

    @property
    def agent(self) -> str | None:
        """Who is asking; None where only the relay knows whose token it is."""
        return self.inner.agent

    hand_off = blocking_as(Client.hand_off, _handoff)
    handoff = blocking_as(Client.handoff, _handoff)
    handoffs = blocking_as(Client.handoffs, _handoffs)
    inbox = blocking_as(Client.inbox, BlockingInbox)
    dead_letters = blocking_as(Client.dead_letters, _dead_letters)
    trace = blocking_as(Client.trace, BlockingTrace)
    fan_out = blocking(Client.fan_out)
    offer_group = blocking_as(Client.offer_group, BlockingGroup)
    group = blocking_as(Client.group, BlockingGroup)
    say = blocking(Client.say)
    status = blocking(Client.status)
    messages = blocking(Client.messages)
    emit = blocking(Client.emit)
    subscribe = blocking(Client.subscribe)
    unsubscribe = blocking(Client.unsubscribe)
    log = blocking(Client.log)
    note = blocking(Client.note)
    agents = blocking(Client.agents)
    find = blocking(Client.find)
    contract = blocking(Client.contract)
    register = blocking(Client.register)
    invite = blocking(Client.invite)
    keys = blocking(Client.keys)
    revoke_key = blocking(Client.revoke_key)
    policy = blocking(Client.policy)
    set_policy = blocking(Client.set_policy)
    call = blocking(Calls.call)
    flush = blocking(Calls.flush)
    close = blocking(Client.close)

    def follow_log(
        self,
        after: int = 0,
        *,
        handoff_id: str | None = None,
        correlation_id: str | None = None,
        actor: str | None = None,
        type: str | None = None,  # noqa: A002  # the field's name in the log
    ) -> Generator[Entry]:
        """Yield the entries after the cursor, and then each new one, as `Client.follow_log` does."""
        entries = self.inner.follow_log(
            after, handoff_id=handoff_id, correlation_id=correlation_id, actor=actor, type=type
        )
        while True:
            entry = self.portal.call(_next(entries))  # what interrupts this ends `entries` as well
            try:
                yield entry
            except GeneratorExit:
                if self.portal.is_open:
                    self.portal.call(entries.aclose())
                raise


async def _next(entries: AsyncGenerator[Entry]) -> Entry:
    return await anext(entries)
