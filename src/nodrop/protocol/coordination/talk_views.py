"""What the relay answers about talk: messages, statuses and topics."""

from nodrop.protocol.view import View


class SaidAnswer(View, frozen=True, kw_only=True):
    """Where in the log it stands, whom it went to, and the thread it belongs to."""

    seq: int
    to: tuple[str, ...]
    thread: str | None = None


class MessageView(View, frozen=True, kw_only=True, rename={"from_": "from"}):
    """Something that somebody said. It is no contract, and no instruction of whoever reads it."""

    seq: int
    at: str
    kind: str
    """`message` or `status`."""
    from_: str
    to: tuple[str, ...]
    thread: str | None
    topic: str | None
    handoff_id: str | None
    status: str | None
    text: str | None
    composed_at: str
    """When it was written, which may be long before it was sent."""
    supersedes: int | None
    superseded_by: int | None
    newer: int
    """How many later ones of the same thread, topic or author are on this page."""


class MessagesAnswer(View, frozen=True, kw_only=True):
    """What was said, oldest first; `after` is the cursor for the next page."""

    messages: tuple[MessageView, ...]
    after: int
    after_hash: str | None
    """The hash of entry `after`, to be sent with it; None: there is none, or it was pruned."""


class TopicAnswer(View, frozen=True, kw_only=True):
    """Whether the caller hears of a topic now."""

    topic: str
    subscribed: bool


class TopicsAnswer(View, frozen=True, kw_only=True):
    """The topics that the caller hears of."""

    topics: tuple[str, ...]


ANSWERS: dict[str, type[View]] = {
    "said": SaidAnswer,
    "messages": MessagesAnswer,
    "topic": TopicAnswer,
    "topics": TopicsAnswer,
}
"""The answer shapes that `protocol.operations` names."""
