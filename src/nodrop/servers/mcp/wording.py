"""How answers are told to a model: a few lines of the relay's own, then what others wrote, framed.

Short and bounded, whatever the handoff holds; what was left out is counted, with the call that
reads on. Outside the frame stand only ids, agent names, states, numbers and times.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from nodrop.model.errors import InvalidRequestError, NodropError, NotFoundError
from nodrop.servers.mcp.quoting import Part, part, quoted, shortened

View = Mapping[str, Any]

LISTED_MAX: Final = 20
"""Items, handoffs or agents in one answer."""
_LINE_CHARS_MAX: Final = 300
_TEXT_CHARS_MAX: Final = 2_000
_PROBLEMS_MAX: Final = 10
_SMALL_CHARS_MAX: Final = 1_000
_NEXT: Final = {
    InvalidRequestError.next: "Correct what is named above, then call the tool again.",
    NotFoundError.next: "Check the id: inbox and track list what you can see.",
}
"""Next steps that speak of HTTP and the command line, for somebody who has neither."""
_ARGUMENTS: Final = {
    "handoff_id": "handoff",
    "idempotency_key": "key",
    "parent_id": "parent",
}
"""What a tool calls a field of the relay's."""
_CONTRACT: Final = ("title", "trigger", "capability", "expected_outcome", "priority", "ref")


def lines(*said: str | None) -> str:
    """Return what is to be said, without what is not."""
    return "\n".join(line for line in said if line)


def standing(handoff: View) -> str:
    """Return where a handoff stands, in one line."""
    by = handoff.get("owed_at") or handoff["due_at"]
    due = f", due {by}" if by else ""
    holder = f", {handoff['holder']} owes the next move" if handoff["holder"] else ", settled"
    return (
        f"handoff {handoff['id']}: {handoff['state']}"
        f" ({handoff['from']} to {handoff['to']}{holder}{due})"
    )


def contract(handoff: View, *, checkpoint: Any = None) -> str:
    """Return what the recipient is asked to do, and its place in the chain."""
    said = {name: shortened(handoff[name], _TEXT_CHARS_MAX) for name in _CONTRACT if handoff[name]}
    chain = handoff["chain"]
    written: list[Any] = [said | {"deadline": handoff["deadline"]}]
    cut: list[str] = []
    for name, value in (
        ("payload", handoff["payload"]),
        ("answers", handoff["answers"]),
        ("checkpoint", checkpoint),
    ):
        if value:
            piece = part({name: value})
            written.append(piece)
            cut += _reads_on(handoff, name, piece)
    place = f"step {chain['here'] + 1} of {chain['here'] + 1 + len(chain['next'])}"
    onwards = f"; then {', '.join(chain['next'])}" if chain["next"] else ""
    return lines(
        quoted(written, by=[handoff["from"], chain["origin"]]),
        *cut,
        f"chain of {chain['origin']}: {place}{onwards}" if chain["done"] or onwards else None,
    )


def outcome(handoff: View) -> str:
    """Return how a handoff ended, and what came of it."""
    ended = handoff["outcome"]
    said: dict[str, Any] = {
        name: shortened(ended[name], _TEXT_CHARS_MAX)
        for name in ("code", "reason")
        if name in ended
    }
    written: list[Any] = [said] if said else []
    cut: list[str] = []
    if "result" in ended:
        piece = part({"result": ended["result"]})
        written.append(piece)
        cut = _reads_on(handoff, "result", piece)
    told = quoted(written, by=[ended["by"]]) if written else None
    return lines(f"ended {ended['state']} by {ended['by']} at {ended['at']}", told, *cut)


def question(handoff: View) -> str:
    """Return what a blocked handoff waits for."""
    asked = handoff["question"]
    said = {name: asked[name] for name in ("question", "terms", "reason") if name in asked}
    piece = part({"question": said})
    terms = asked["kind"] == "terms"
    what = "other terms are proposed to" if terms else "a question is open to"
    return lines(
        f"{what} {asked['asked']} since {asked['asked_at']}",
        quoted([piece], by=[handoff["to"]]),
        *_reads_on(handoff, "question", piece),
    )


def last_word(handoff: View) -> str | None:
    """Return what the recipient said last."""
    ack = handoff["ack"]
    if ack is None:
        return None
    promised = {name: ack[name] for name in ("eta", "next_update", "position") if ack[name]}
    status = shortened(ack["status"], _TEXT_CHARS_MAX)
    return quoted([_said({"status": status, **promised})], by=[handoff["to"]])


def listed(handoffs: Iterable[View]) -> list[View]:
    """Return handoffs as one line each."""
    return [
        _said(
            {
                "handoff": h["id"],
                "from": h["from"],
                "to": h["to"],
                "state": h["state"],
                "due": h["due_at"],
                "title": shortened(h["title"], _LINE_CHARS_MAX),
            }
        )
        for h in handoffs
    ]


def items(found: Iterable[View]) -> list[dict[str, Any]]:
    """Return inbox items as one line each."""
    return [
        {
            "seq": item["seq"],
            "kind": item["kind"],
            "handoff": item["handoff_id"],
            "from": item["from"],
            "summary": shortened(item["summary"], _LINE_CHARS_MAX),
            **_gathered(item.get("notice")),
        }
        for item in found
    ]


def _gathered(notice: View | None) -> View:
    """Return the handoffs of a notice that is about several."""
    if notice is None or notice["count"] == 1:
        return {}
    return {"handoffs": [handoff["id"] for handoff in notice["handoffs"][:LISTED_MAX]]}


def agents(found: Iterable[View]) -> list[View]:
    """Return agents as one line each."""
    return [
        _said(
            {
                "agent": agent["agent_id"],
                "connected": agent["connected"],
                "queued": agent["queued"],
                "capabilities": [
                    _capability(capability)
                    for capability in (agent["manifest"].get("capabilities") or ())[:LISTED_MAX]
                ],
                "description": shortened(agent["manifest"].get("description"), _LINE_CHARS_MAX),
            }
        )
        for agent in found
    ]


def _capability(capability: View) -> View:
    takes = capability.get("input_schema")
    return _said(
        {
            "name": shortened(capability["name"], _LINE_CHARS_MAX),
            "description": shortened(capability.get("description"), _LINE_CHARS_MAX),
            "takes": "left out: too long" if part(takes).chars > _SMALL_CHARS_MAX else takes,
        }
    )


def _said(fields: dict[str, Any]) -> View:
    return {name: value for name, value in fields.items() if value is not None}


def entries(found: Sequence[View]) -> list[Part]:
    """Return log entries as one line each."""
    return [
        part(
            _said(
                {
                    "seq": entry["seq"],
                    "at": entry["at"],
                    "type": entry["type"],
                    "by": entry["actor"],
                    "handoff": entry["handoff_id"],
                    "body": entry["body"],
                }
            ),
            chars_max=_SMALL_CHARS_MAX,
        )
        for entry in found
    ]


def refusal(error: NodropError) -> str:
    """Return why something was refused and what to do about it."""
    wrong = [
        {"path": _ARGUMENTS.get(p.path, p.path), "message": p.message}
        for p in error.errors[:_PROBLEMS_MAX]
    ]
    more = len(error.errors) - len(wrong)
    return lines(
        f"{error.code}: {error.title}.",
        quoted([shortened(error.detail, _TEXT_CHARS_MAX), *wrong], by=None)
        if wrong or error.detail != error.title
        else None,
        f"and {more} more problems" if more > 0 else None,
        f"Next: {_NEXT.get(error.next_step, error.next_step)}",
    )


def _reads_on(handoff: View, name: str, piece: Part) -> list[str]:
    if not piece.more:
        return []
    left = f"{piece.chars - piece.end} of {piece.chars} characters of {name} are left out"
    return [f'{left}: track(handoff="{handoff["id"]}", part="{name}", offset={piece.end})']
