"""The statements behind lists: which index leads, and what is checked on each row.

The planner has no statistics to go by, so each list names the way in that keeps it short.
"""

from typing import Any, Final

from nodrop.log.port import Page
from nodrop.log.records import Columns
from nodrop.model.handoff import FINAL

Statement = tuple[str, Columns]

AFTER_ALL: Final = "\U0010ffff"
"""Sorts behind every character, so that `prefix <= x < prefix + AFTER_ALL` are all with `prefix`."""


def handoffs_page(page: Page) -> Statement:
    """Return the statement that selects the `json` of a page of handoffs, newest first."""
    wanted = _Terms("h.team = ?", page.team)
    agent = page.party or page.sender or page.recipient
    listed = page.marks if agent is None else (*page.marks, agent)
    newest_first = "h.id"
    unfinished = page.state is not None and page.state not in FINAL
    if unfinished and page.recipient is not None and agent == page.recipient:
        # What an agent has on its hands is little beside all it ever had.
        source, listed = "handoff h indexed by handoff_unfinished", page.marks
    elif listed:
        source = "party p cross join handoff h on h.team = p.team and h.id = p.handoff_id"
        wanted = _Terms("p.team = ?", page.team)
        wanted.add("p.agent = ?", listed[0])
        listed, newest_first = listed[1:], "p.handoff_id"
    elif unfinished and page.correlation_id is None:
        source = "handoff h indexed by handoff_unfinished"
    else:
        source = "handoff h"
    for name in listed:
        wanted.add(f"exists ({_LISTED} and handoff_id = {newest_first})", page.team, name)
    if page.party is not None:
        wanted.add(f"({_CONCERNS})", *(page.party,) * 4)
    if page.sender is not None:
        wanted.add("h.sender = ?", page.sender)
    if page.recipient is not None:
        wanted.add("h.recipient = ?", page.recipient)
    if page.correlation_id is not None:
        wanted.add("h.correlation_id = ?", page.correlation_id)
    if page.state is not None:
        # Implied by the state; said because it is what the indexes are made by.
        wanted.add("h.ended_at is not null" if page.state in FINAL else "h.ended_at is null")
        wanted.add("h.state = ?", page.state)
    if page.dead is not None:
        wanted.add("h.dead" if page.dead else "not h.dead")
    if page.before is not None:
        wanted.add(f"{newest_first} < ?", page.before)
    return wanted.select("h.json", source, order=f"{newest_first} desc", limit=page.limit)


_LISTED: Final = "select 1 from party where team = ? and agent = ?"
_CONCERNS: Final = """
    h.sender = ? or h.origin = ? or h.recipient = ?
    or exists (select 1 from json_each(cast(h.json as text), '$.watchers') where value = ?)
"""


class _Terms:
    """The terms of a `where`, and what is bound in them."""

    def __init__(self, term: str, *bound: Any) -> None:
        self._terms, self._bound = (term,), bound

    def add(self, term: str, *bound: Any) -> None:
        self._terms, self._bound = (*self._terms, term), (*self._bound, *bound)

    def select(self, what: str, source: str, *, order: str, limit: int) -> Statement:
        # Only constants of this module are put together here; what a caller said is bound.
        where = " and ".join(self._terms)
        sql = f"select {what} from {source} where {where} order by {order} limit ?"  # noqa: S608  # see above
        return sql, (*self._bound, limit)
