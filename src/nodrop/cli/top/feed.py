"""The feed: keeps the board as the relay's log says, from a cursor, over the public interface.

Reads lists only. Looking at one handoff would tell the relay that its requester has the outcome.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from nodrop.cli.top.board import OPEN, Board, Handoff
from nodrop.client.cursor import Cursor, fields_of
from nodrop.model.errors import CursorUnknownError

Call = Callable[..., Awaitable[dict[str, Any]]]

WAIT_SECONDS: Final = 20
"""How long one request waits for the next entry."""
_PAGE: Final = 500
_CHAINS_MAX: Final = 16
"""Chains that are read one by one; if more have changed, everything is read again."""


class Feed:
    """Reads the board once, and then what has changed."""

    def __init__(self, call: Call, board: Board) -> None:
        self._call = call
        self._board = board
        self._after: Cursor | None = None
        """The last entry that the board knows of; None: it knows nothing."""

    async def follow(self) -> None:
        """Return once the board knows something new, or after a while."""
        if self._after is None:
            # The cursor first: what is committed while the lists are read is read again.
            point = await self._call("checkpoints")
            await self._read_all()
            self._after = Cursor(point["size"], point["head"])
            return
        asked = {**fields_of(self._after), "wait": WAIT_SECONDS, "limit": _PAGE}
        try:
            page = await self._call("log", asked)
        except CursorUnknownError:  # the board was of another log: an older copy was restored
            self._after = None
            return
        chains = {e["correlation_id"] for e in page["entries"] if e["handoff_id"] is not None}
        if len(chains) > _CHAINS_MAX:
            await self._read_all()
        else:
            for chain in sorted(chains):
                for handoff in await self._all("list_handoffs", correlation_id=chain):
                    self._board.put(handoff)
        self._after = Cursor.of(page)

    async def _read_all(self) -> None:
        found: list[Handoff] = []
        for state in OPEN:
            found += await self._all("list_handoffs", state=state)
        found += await self._all("dead_letters")
        self._board.replace(found)

    async def _all(self, operation: str, **fields: str) -> list[Handoff]:
        """Return every page of a list."""
        found: list[Handoff] = []
        before: dict[str, str] = {}
        while True:
            page = await self._call(operation, {**fields, **before, "limit": _PAGE})
            found += page["handoffs"]
            if not page["handoffs"]:
                return found
            before = {"before": page["before"]}
