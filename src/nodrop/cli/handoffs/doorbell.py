"""`nodrop inbox --brief`: a doorbell for the hooks of a coding agent.

What a hook prints goes into the agent's context as if its user had said it, so the bell tells how
much waits and where to look, and nothing that another agent wrote. Silent when nothing waits or
nobody answers in time; it never fails, because its host would.
"""

import asyncio
from typing import Any, Final

from nodrop.cli import screen
from nodrop.cli.session import Session
from nodrop.model.errors import NodropError

OPEN_SECONDS_MAX: Final = 2.0
RING_SECONDS_MAX: Final = 0.4
"""For the relay's answer: a hook holds up every turn of its host."""
_LOOKED_THROUGH_MAX: Final = 500
_PAGES_MAX: Final = 10


async def ring(session: Session) -> None:
    """Print one line if something waits for the agent."""
    try:
        async with asyncio.timeout(OPEN_SECONDS_MAX):
            await session.open()  # which also loads what speaks HTTP: that is not the relay's time
        async with asyncio.timeout(RING_SECONDS_MAX):
            items = await _waiting(session)
    except (NodropError, OSError, TimeoutError, ValueError):
        items = []
    said = _line(session.identity, items) if items else None
    if session.as_json:
        # The second is what Cursor puts into the context of a session.
        told = {} if said is None else {"additional_context": said}
        screen.document({"waiting": _counts(items), **told})
    elif said is not None:
        print(said)


def _line(agent: str | None, items: list[dict[str, Any]]) -> str:
    kinds = [f"{n} {kind if n == 1 else kind + 's'}" for kind, n in _counts(items).items()]
    return (
        f"nodrop: {len(items)} waiting for {agent}: {', '.join(kinds)}."
        " Look with the nodrop tool `inbox` (or `nodrop inbox`)."
    )


async def _waiting(session: Session) -> list[dict[str, Any]]:
    after = 0
    for _ in range(_PAGES_MAX):
        page = await session.call("inbox", {"after": after, "limit": _LOOKED_THROUGH_MAX})
        if page["items"] or page["after"] <= after:
            return page["items"]
        after = page["after"]
    return []


def _counts(items: list[dict[str, Any]]) -> dict[str, int]:
    kinds = [str(item["kind"]) for item in items]
    return {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
