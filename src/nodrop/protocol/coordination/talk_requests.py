"""What callers may send about talk: messages, statuses, topics."""

from nodrop.protocol.requests import Command, Request


class Say(Command, frozen=True, kw_only=True):
    """Say something, informally: to an agent, in a thread, or to whom a handoff concerns."""

    text: str
    to: str | None = None
    thread: str | None = None
    about: str | None = None
    """The handoff that it is about."""
    supersedes: int | None = None
    """The `seq` of what this takes the place of."""
    composed_at: str | None = None
    """When it was written, if that was earlier."""


class TellStatus(Command, frozen=True, kw_only=True):
    """Tell everybody who needs to know: `working`, `stuck`, `need_help`, `done`, or free words."""

    status: str
    text: str | None = None
    about: str | None = None
    """The handoff that it is about: its requester, chain and watchers hear of it."""
    topic: str | None = None
    """Its subscribers hear of it, and those of the caller's name."""
    supersedes: int | None = None
    composed_at: str | None = None


class SubscribeTopic(Command, frozen=True, kw_only=True):
    """Hear of a topic, or of everything that the agent of that name tells."""


class UnsubscribeTopic(Command, frozen=True, kw_only=True):
    """Hear no more of a topic."""


class ListMessages(Request, frozen=True, kw_only=True, rename={"from_": "from"}):
    """What was said to or by the caller, and every status, oldest first."""

    after: int = 0
    after_hash: str | None = None
    """The hash of entry `after`, or its beginning: refused where the log has another entry there."""
    limit: int | None = None
    thread: str | None = None
    topic: str | None = None
    from_: str | None = None


class ListTopics(Request, frozen=True, kw_only=True):
    """The topics that the caller hears of."""
