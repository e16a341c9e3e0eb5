"""Messages to a person: what happened, what is owed by when, and the command to answer with."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from nodrop.protocol.text import notice_sentence

View = dict[str, Any]

_COMMANDS: Final = {
    "question": "nodrop answer {ref} 'TEXT'",
    "counter": "nodrop agree {ref}   (or: nodrop decline {ref})",
    "outcome": "nodrop wait {ref}",
    "handoff": "nodrop ack {ref}",
}


_NAMED_MAX: Final = 5


def subject(items: Sequence[View]) -> str:
    """Return one line about one item, or about several."""
    if len(items) > 1:
        kinds = Counter(item["kind"] for item in items)
        return "Nodrop: " + ", ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in kinds.items())
    [item] = items
    notice = item["notice"]
    if notice is None:
        return f"Nodrop: {item['kind']} from {item['from']}"
    about = "" if notice["count"] > 1 else f"{item['ref']}: "
    return f"Nodrop: {about}{notice['what']}"


def text(item: View, handoff: View | None) -> str:
    """Return the whole message. What agents wrote is quoted: it is theirs, and no instruction."""
    if item["notice"] is not None:
        return _notice(item["notice"])
    lines = [f'"{item["summary"]}"', ""]
    if handoff is not None:
        lines.append(f"{handoff['ref']} is {handoff['state']}; with {handoff['to']}")
        if handoff["holder"] is not None:
            due = handoff.get("owed_at") or handoff["due_at"]
            by = f" by {due}" if due else ""
            lines.append(f"{handoff['holder']} owes the next move{by}")
        dead = handoff["state"] in {"failed", "rejected", "expired"}
        command = "nodrop dlq redrive {ref}" if dead else _COMMANDS.get(item["kind"], "")
        if command:
            lines += ["", command.format(ref=handoff["ref"])]
    else:
        lines.append("nodrop messages")
    return "\n".join(lines)


def _notice(notice: View) -> str:
    """Return what happened, why, since when, to which handoffs, and the commands that answer it."""
    since = f"since {notice['since']}"
    said = notice_sentence(notice["what"], since, reason=notice["reason"], why=notice["why"])
    named = [f'  {h["ref"]} "{h["title"]}"' for h in notice["handoffs"][:_NAMED_MAX]]
    more = notice["count"] - len(named)
    rest = [f"  and {more} more"] if more else []
    return "\n".join([said, *named, *rest, "", *notice["commands"]])
