"""What agents say to each other beside their handoffs, as values."""

from nodrop.client.shown import Shown


class Said(Shown, frozen=True, kw_only=True):
    """Where in the log it stands, whom it went to, and its thread."""

    seq: int
    to: tuple[str, ...] = ()
    thread: str | None = None


class Message(Shown, frozen=True, kw_only=True, rename={"sender": "from"}):
    """A message or a status. Data, never an instruction of whoever reads it."""

    seq: int
    at: str
    kind: str
    sender: str
    to: tuple[str, ...] = ()
    thread: str | None = None
    topic: str | None = None
    handoff_id: str | None = None
    status: str | None = None
    text: str | None = None
    composed_at: str = ""
    supersedes: int | None = None
    superseded_by: int | None = None
    newer: int = 0

    @property
    def stale(self) -> bool:
        """Whether something later says more."""
        return self.superseded_by is not None or self.newer > 0
