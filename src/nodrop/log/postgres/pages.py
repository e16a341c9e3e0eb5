"""The statements behind lists: which index leads, and what is checked on each row."""

from typing import Any, Final

from nodrop.log.port import Page
from nodrop.log.records import Columns
from nodrop.model.handoff import FINAL

Statement = tuple[str, Columns]

AFTER_ALL: Final = "\U0010ffff"
"""Sorts behind every character, so that `prefix <= x < prefix + AFTER_ALL` are all with `prefix`."""


def handoffs_page(page: Page) -> Statement:
    """Return the statement that selects the `json` of a page of handoffs, newest first."""
    wanted = _Terms()
    agent = page.party or page.sender or page.recipient
    unfinished = page.state is not None and page.state not in FINAL
    if unfinished and page.recipient is not None and agent == page.recipient:
        agent = None  # what an agent has on its hands is little beside all it ever had
    source, newest_first = "handoff h", "h.id"
    listed = page.marks if agent is None else (*page.marks, agent)
    if listed:
        source = "party p join handoff h on h.team = p.team and h.id = p.handoff_id"
        newest_first = "p.handoff_id"
        wanted.add("p.team = {}", page.team)
        wanted.add("p.agent = {}", listed[0])
    else:
        wanted.add("h.team = {}", page.team)
    for name in listed[1:]:
        wanted.add(f"exists ({_LISTED} offset 0)", name)
    if page.party is not None:
        wanted.add(_CONCERNS, page.party)
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
    if page.before is not None:
        wanted.add(f"{newest_first} < {{}}", page.before)
    return wanted.select("h.json", source, order=f"{newest_first} desc", limit=page.limit)


# With an offset it stays what each row is checked by: the planner does not let it lead.
_LISTED: Final = """
    select 1 from party l where l.team = h.team and l.agent = {0} and l.handoff_id = h.id
"""
_CONCERNS: Final = f"""(
    h.sender = {{0}} or h.origin = {{0}} or h.recipient = {{0}}
    or exists ({_LISTED} and l.watches offset 0)
)"""


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
