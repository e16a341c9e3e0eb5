"""Plans that fit: a table that has outgrown what the planner knows of it is looked at again.

A connection keeps the plans of its first statements. Made while a table was empty, one may go by the
wrong index, and read the whole of a team's log for each command id until somebody analyzes the
table. The server does that by itself, after a minute; a database that is filled for the first time
is worth more than that. Large tables are left to the server.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

TABLES: Final = ("entry", "body", "inbox", "handoff", "party", "idempotency_key")
"""Those that grow with every handoff."""
GREW: Final = 4
"""So many times as large as when it was last looked at."""
PAGES_MIN: Final = 16
BYTES_MAX: Final = 256 * 1024 * 1024


async def refresh(ask: Callable[..., Awaitable[Sequence[Sequence[Any]]]]) -> None:
    """Analyze the tables that have grown much. Of several nodes that want to, one does."""
    grown = (list(TABLES), GREW, PAGES_MIN, BYTES_MAX)
    outgrown = [name for (name,) in await ask(_OUTGROWN, *grown)]
    if outgrown:
        await ask(f"analyze (skip_locked) {', '.join(outgrown)}")


_OUTGROWN: Final = """
    select c.relname::text from unnest($1::text[]) t(name)
    join pg_class c on c.oid = to_regclass(t.name)
    where pg_relation_size(c.oid) between
        current_setting('block_size')::bigint * $2::bigint * greatest(c.relpages, $3::bigint)
        and $4::bigint
    order by 1
"""
