"""The statements behind lists: which index leads, and what is checked on each row."""

from typing import Any, Final

from nodrop.core.model import FINAL
from nodrop.store import LogPage, Page
from nodrop.stores.postgres.records import Columns
from nodrop.wire.log import Entry

Statement = tuple[str, Columns]

AFTER_ALL: Final = "\U0010ffff"
"""Sorts behind every character, so that `prefix <= x < prefix + AFTER_ALL` are all with `prefix`."""

SCAN_ENTRIES_MAX: Final = 50_000
"""How much of the log one statement looks through for an actor or a type: these have no index."""
SEQ_MAX: Final = 2**63 - 1


def handoffs_page(page: Page) -> Statement:
    """Return the statement that selects the `json` of a page of handoffs, newest first."""
    wanted = _Terms()
    agent = page.party or page.sender or page.recipient
    unfinished = page.state is not None and page.state not in FINAL
    if unfinished and page.recipient is not None and agent == page.recipient:
        agent = None  # what an agent has on its hands is little beside all it ever had
    source = "handoff h"
    if agent is not None:
        source = "party p join handoff h on h.team = p.team and h.id = p.handoff_id"
        wanted.add("p.team = {}", page.team)
        wanted.add("p.agent = {}", agent)
    else:
        wanted.add("h.team = {}", page.team)
    if page.party is not None:
        wanted.add("(h.sender = {0} or h.origin = {0} or h.recipient = {0} or p.watches)", agent)
    if page.sender is not None:
        wanted.add("h.sender = {}", page.sender)
    if page.recipient is not None:
        wanted.add("h.recipient = {}", page.recipient)
    if page.correlation_id is not None:
        wanted.add("h.correlation_id = {}", page.correlation_id)
    if page.state is not None:
        # Implied by the state; said because it is what the indexes are made by.
        wanted.add("h.ended_at is not null" if page.state in FINAL else "h.ended_at is null")
        wanted.add("h.state = {}", page.state)
    if page.dead is not None:
        wanted.add("h.dead" if page.dead else "not h.dead")
    newest_first = "p.handoff_id" if agent is not None else "h.id"
    if page.before is not None:
        wanted.add(f"{newest_first} < {{}}", page.before)
    return wanted.select("h.json", source, order=f"{newest_first} desc", limit=page.limit)


def entries_page(page: LogPage) -> tuple[Statement, int | None]:
    """Return the statement that selects a page of the log, and the `seq` it looks up to.

    None: it looks at everything that there is after `page.after`.
    """
    wanted = _Terms()
    wanted.add("e.team = {}", page.team)
    # What a horizon stands for may not all be deleted yet.
    wanted.add(
        "e.seq > greatest({}, (select max(seq) from horizon where team = {}))",
        page.after,
        page.team,
    )
    if page.correlation_id is not None:
        wanted.add("e.correlation_id = {}", page.correlation_id)
    if page.actor is not None:
        wanted.add("e.actor = {}", page.actor)
    if page.type is not None and page.type.endswith("*"):
        prefix = page.type[:-1]
        wanted.add("e.type >= {} and e.type < {}", prefix, prefix + AFTER_ALL)
    elif page.type is not None:
        wanted.add("e.type = {}", page.type)
    looked_to = None
    if page.handoff_id is not None:
        wanted.add("e.handoff_id = {}", page.handoff_id)
    elif page.correlation_id is not None:
        wanted.add(
            "(e.handoff_id is null or e.handoff_id in"
            " (select id from handoff where team = {} and correlation_id = {}))",
            page.team,
            page.correlation_id,
        )
    elif page.actor is not None or page.type is not None:
        # A caller may name any integer: from far below the first entry it would never arrive, and
        # beyond the last there can be it does not fit into the database.
        looked_to = min(max(page.after, 0) + SCAN_ENTRIES_MAX, SEQ_MAX)
        wanted.add("e.seq <= {}", looked_to)
    return wanted.select(_ENTRY, "entry e", order="e.seq", limit=page.limit), looked_to


_ENTRY: Final = "e." + ", e.".join(Entry.__struct_fields__)


class _Terms:
    """The terms of a `where`, and what is bound in them."""

    def __init__(self) -> None:
        self._terms: list[str] = []
        self._bound: list[Any] = []

    def add(self, term: str, *bound: Any) -> None:
        """Add a term; each `{}` in it is the place of one of `bound`."""
        first = len(self._bound) + 1
        self._terms.append(term.format(*(f"${first + n}" for n in range(len(bound)))))
        self._bound.extend(bound)

    def select(self, what: str, source: str, *, order: str, limit: int) -> Statement:
        # Only constants of this module are put together here; what a caller said is bound.
        terms, last = " and ".join(self._terms), len(self._bound) + 1
        sql = f"select {what} from {source} where {terms} order by {order} limit ${last}"  # noqa: S608  # see above
        return sql, (*self._bound, limit)
