"""The queries that a store whose log is its database makes of its tables."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeAlias

from nodrop.log.port import Body, Key, KeyUse, LogPage, Mail, Page, Place, Process
from nodrop.log.state import Kept
from nodrop.model.handoff import Handoff
from nodrop.protocol.entries import Entry

Name: TypeAlias = tuple[str, str, str]
"""(team, actor, command id) or (team, sender, key)."""


class Tables(Protocol):
    """The queries that a journaled store makes of its database."""

    async def kept(self, keys: Sequence[Key]) -> Sequence[Kept]:
        """Return the handoffs there are of `keys`, as their rows have them."""
        ...

    async def keys(self, wanted: Collection[Name]) -> Sequence[KeyUse]:
        """Return what idempotency keys were used for."""
        ...

    async def commands(self, wanted: Collection[Name]) -> Mapping[Name, Sequence[Place]]:
        """Return what commands wrote, in log order."""
        ...

    async def entry_places(
        self, wanted: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Place]:
        """Return the entries there are of (team, seq)."""
        ...

    async def processes_of(self, keys: Collection[Key]) -> Sequence[Process]:
        """Return the known processes of `keys`."""
        ...

    async def resolve(self, team: str, reference: str) -> Sequence[str]:
        """Return at most two ids: of `sender/key`, or of those an id prefix fits."""
        ...

    async def list_handoffs(self, page: Page) -> Sequence[Handoff]:
        """Return a page of handoffs, newest first."""
        ...

    async def inbox(
        self, team: str, agent: str, after: int, before: int, limit: int
    ) -> Sequence[Mail]:
        """Return the items for `agent` between `after` and `before`, oldest first."""
        ...

    async def log(
        self, page: LogPage, fits: Callable[[Entry], bool]
    ) -> tuple[list[Entry], int | None]:
        """Return a page of the log, and up to where it looked if that was not everything."""
        ...

    async def entries_at(self, team: str, seqs: Sequence[int]) -> list[Entry]:
        """Return the entries there are at `seqs`."""
        ...

    async def bodies_at(self, team: str, seqs: Sequence[int]) -> Mapping[int, Body]:
        """Return the bodies there are of the entries at `seqs`."""
        ...

    async def sizes_at(self, team: str, seqs: Sequence[int]) -> Mapping[int, int]:
        """Return how many bytes the large bodies of the entries at `seqs` have."""
        ...

    async def kept_bodies(
        self, team: str, wanted: Sequence[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Body]:
        """Return the bodies of (handoff id, version) whose entries were pruned."""
        ...

    async def trail(self, team: str, handoff_id: str) -> list[int]:
        """Return the places of a handoff's events, as the tables have them."""
        ...

    async def mentions(self, team: str, about: Sequence[str]) -> list[int]:
        """Return the places of entries about these, which are no events of a handoff."""
        ...

    async def chain(self, team: str, correlation_id: str) -> list[str]:
        """Return the handoffs of a chain."""
        ...
