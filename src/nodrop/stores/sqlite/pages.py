"""The statements behind lists: which index leads, and what is checked on each row.

The planner has no statistics to go by, so each list names the way in that keeps it short.
"""

from typing import Any, Final

from nodrop.core.model import FINAL
from nodrop.store import LogPage, Page
from nodrop.stores.sqlite.records import Columns
from nodrop.wire.log import Entry

Statement = tuple[str, Columns]

AFTER_ALL: Final = "\U0010ffff"
"""Sorts behind every character, so that `prefix <= x < prefix + AFTER_ALL` are all with `prefix`."""

SCAN_ENTRIES_MAX: Final = 5_000
"""How much of the log one statement looks through for an actor or a type: these have no index, and
the writer waits meanwhile."""
SEQ_MAX: Final = 2**63 - 1


def handoffs_page(page: Page) -> Statement:
    """Return the statement that selects the `json` of a page of handoffs, newest first."""
    wanted = _Terms("h.team = ?", page.team)
    agent = page.party or page.sender or page.recipient
    unfinished = page.state is not None and page.state not in FINAL
    if unfinished and page.recipient is not None and agent == page.recipient:
        # What an agent has on its hands is little beside all it ever had.
        source, agent = "handoff h indexed by handoff_queue", None
    elif agent is not None:
        source = "party p cross join handoff h on h.team = p.team and h.id = p.handoff_id"
        wanted = _Terms("p.team = ?", page.team)
        wanted.add("p.agent = ?", agent)
    elif unfinished and page.correlation_id is None:
        source = "handoff h indexed by handoff_queue"
    else:
        source = "handoff h"
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
    newest_first = "p.handoff_id" if agent is not None else "h.id"
    if page.before is not None:
        wanted.add(f"{newest_first} < ?", page.before)
    return wanted.select("h.json", source, order=f"{newest_first} desc", limit=page.limit)


def entries_page(page: LogPage) -> tuple[Statement, int | None]:
    """Return the statement that selects a page of the log, and the `seq` it looks up to.

    None: it looks at everything that there is after `page.after`.
    """
    wanted = _Terms("e.team = ? and e.seq > ?", page.team, page.after)
    if page.correlation_id is not None:
        wanted.add("e.correlation_id = ?", page.correlation_id)
    if page.actor is not None:
        wanted.add("e.actor = ?", page.actor)
    if page.type is not None and page.type.endswith("*"):
        prefix = page.type[:-1]
        wanted.add("e.type >= ? and e.type < ?", prefix, prefix + AFTER_ALL)
    elif page.type is not None:
        wanted.add("e.type = ?", page.type)
    if page.handoff_id is not None:
        wanted.add("e.handoff_id = ?", page.handoff_id)
        return wanted.select(_ENTRY, _BY_HANDOFF, order="seq", limit=page.limit), None
    if page.correlation_id is not None:
        return _correlated(wanted, page.team, page.correlation_id, limit=page.limit), None
    if page.actor is None and page.type is None:
        return wanted.select(_ENTRY, "entry e", order="seq", limit=page.limit), None
    # A caller may name any integer: from far below the first entry it would never arrive, and
    # beyond the last there can be it does not fit into the database.
    scanned_to = min(max(page.after, 0) + SCAN_ENTRIES_MAX, SEQ_MAX)
    wanted.add("e.seq <= ?", scanned_to)
    return wanted.select(_ENTRY, "entry e", order="seq", limit=page.limit), scanned_to


def _correlated(wanted: "_Terms", team: str, correlation_id: str, *, limit: int) -> Statement:
    of_handoffs, of_none = wanted.copy(), wanted.copy()
    of_handoffs.add(
        "e.handoff_id in (select id from handoff where team = ? and correlation_id = ?)",
        team,
        correlation_id,
    )
    of_none.add("e.handoff_id is null")
    first, bound = of_handoffs.select(_ENTRY, _BY_HANDOFF)
    second, bound_too = of_none.select(_ENTRY, "entry e indexed by entry_correlation")
    both = f"{first} union all {second} order by seq limit ?"
    return both, (*bound, *bound_too, limit)


_CONCERNS: Final = """
    h.sender = ? or h.origin = ? or h.recipient = ?
    or exists (select 1 from json_each(cast(h.json as text), '$.watchers') where value = ?)
"""
_ENTRY: Final = "e." + ", e.".join(Entry.__struct_fields__)
_BY_HANDOFF: Final = "entry e indexed by entry_handoff"


class _Terms:
    """The terms of a `where`, and what is bound in them."""

    def __init__(self, term: str, *bound: Any) -> None:
        self._terms, self._bound = (term,), bound

    def copy(self) -> "_Terms":
        return _Terms(" and ".join(self._terms), *self._bound)

    def add(self, term: str, *bound: Any) -> None:
        self._terms, self._bound = (*self._terms, term), (*self._bound, *bound)

    def select(
        self, what: str, source: str, *, order: str | None = None, limit: int | None = None
    ) -> Statement:
        # Only constants of this module are put together here; what a caller said is bound.
        sql = f"select {what} from {source} where {' and '.join(self._terms)}"  # noqa: S608  # see above
        if order is None:
            return sql, self._bound
        return f"{sql} order by {order} limit ?", (*self._bound, limit)
