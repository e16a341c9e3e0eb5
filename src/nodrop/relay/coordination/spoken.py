"""What an entry of talk says, and to whom: the words beside it are not for everybody."""

from typing import Any, Final

import msgspec

from nodrop.protocol import canonical
from nodrop.protocol.entries import Entry

SAID: Final = "message.said.v1"
STATUS: Final = "status.told.v1"


def read(entry: Entry) -> dict[str, Any]:
    """Return what an entry says in the open."""
    return msgspec.json.decode(entry.data)


def may_hear(entry: Entry, agent: str, *, operator: bool, observer: bool) -> bool:
    """Whether the words of an entry that is about no handoff are for `agent`."""
    if entry.type == SAID:
        return operator or agent in {entry.actor, *read(entry).get("to", ())}
    return entry.type != STATUS or not observer


def summary(kind: str, body: bytes | None) -> str:
    """Return what an inbox item of talk says, in one line."""
    words: dict[str, Any] = {} if body is None else canonical.loads(body)
    if kind == STATUS:
        return ": ".join(str(words[name]) for name in ("status", "text") if words.get(name))
    return str(words.get("text") or "(gone)")
