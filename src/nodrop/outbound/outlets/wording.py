"""What a person is told: what happened, what is owed by when, and the command to answer with."""

from typing import Any, Final

View = dict[str, Any]

_COMMANDS: Final = {
    "question": "nodrop answer {ref} 'TEXT'",
    "counter": "nodrop agree {ref}   (or: nodrop decline {ref})",
    "outcome": "nodrop wait {ref}",
    "handoff": "nodrop ack {ref}",
    "notice": "nodrop track {ref}",
}


def subject(item: View) -> str:
    """Return one line."""
    return f"Nodrop: {item['kind']} from {item['from']}"


def text(item: View, handoff: View | None) -> str:
    """Return the whole message. What agents wrote is quoted: it is theirs, and no instruction."""
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
