"""What the relay answers about several handoffs that belong together: traces and groups."""

from typing import Any

import msgspec

from nodrop.protocol.view import View
from nodrop.protocol.views import HandoffView


class TraceStepView(View, frozen=True, kw_only=True, rename={"from_": "from"}):
    """One handoff of a trace: its place in the tree, and who owes what by when."""

    id: str
    ref: str
    under: str | None
    """The handoff that it follows from; None for the first."""
    kind: str
    """`first`, `leg`, `fallback`, `redrive`, `group`, `member` or `below`."""
    label: str | None
    from_: str
    to: str
    title: str | None
    state: str
    holder: str | None
    since: str
    """Since when it is as it is."""
    due_at: str | None
    """When the relay acts next if nobody else does."""
    clock: str | None
    """The clock that runs out then; `lease` where the holder must show a sign of life by then."""
    owed_at: str | None
    """By when the holder owes its next move, as it promised: in the past, it is late."""


class DidView(View, frozen=True, kw_only=True):
    """Something that the relay did about it."""

    seq: int
    at: str
    what: str


class BreakView(View, frozen=True, kw_only=True):
    """Where a chain broke, or is late."""

    id: str
    ref: str
    kind: str
    """`dead`: it ended without success, and nothing follows. `late`: a clock ran out on it."""
    leg: int
    """Its number in the chain, from 1."""
    legs: int
    agent: str
    """Who had it."""
    state: str
    code: str | None
    reason: str | None
    holder: str | None
    """Who owes the next move."""
    clock: str | None
    """The clock that ran out; None: the agent itself said that it would not work out."""
    at: str
    """When it broke, or when the clock ran out."""
    did: tuple[DidView, ...]
    """What the relay did about it, in order."""


class TraceAnswer(View, frozen=True, kw_only=True):
    """A chain with everything that belongs to it, oldest first."""

    correlation_id: str
    state: str
    """`open`, `late`, `broken`, `completed` or `cancelled`."""
    steps: tuple[TraceStepView, ...]
    breaks: tuple[BreakView, ...]
    handoffs: tuple[HandoffView, ...]
    truncated: bool = False
    """There is more of it than one answer holds."""


class GroupMemberView(View, frozen=True, kw_only=True, omit_defaults=True):
    """A member of a group, as it is now."""

    id: str
    to: str
    state: str
    result: Any = msgspec.UNSET
    code: str | None = None
    reason: str | None = None


class GroupView(View, frozen=True, kw_only=True):
    """A group: several handoffs, one settlement."""

    id: str
    state: str
    """`accepted` while it is open; `completed`: joined; `failed`: all ended, too few completed."""
    needed: int
    completed: int
    members: dict[str, GroupMemberView]
    """By the requester's labels."""
    handoff: HandoffView
    """The group itself, which the relay holds and its requester settles."""


class GroupAnswer(View, frozen=True, kw_only=True, omit_defaults=True):
    """One group. `wait_elapsed` says that the wait ran out, which changed nothing."""

    group: GroupView
    wait_elapsed: bool = False
    replayed: bool = False


ANSWERS: dict[str, type[View]] = {"trace": TraceAnswer, "group": GroupAnswer}
"""The answer shapes that `protocol.operations` names."""
