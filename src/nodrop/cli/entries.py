"""Entries of the log on the screen: one line each, in the order they were committed."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.text import Text

from nodrop.cli import picture, screen
from nodrop.cli.screen import line

Entry = Mapping[str, Any]

_ID_CHARS: Final = 18
"""Of an id: its time and twelve bits more, which is what a reference needs in practice."""

_STYLES: Final[Mapping[str, str]] = {
    "offered": "bold yellow",
    "delivered": "cyan",
    "accepted": "blue",
    "queued": "blue",
    "queue_lapsed": "bold yellow",
    "updated": "blue",
    "blocked": "magenta",
    "parked": "magenta",
    "answered": "magenta",
    "agreed": "magenta",
    "returned": "bold yellow",
    "reassigned": "bold yellow",
    "step_recorded": "cyan",
    "checkpointed": "cyan",
    "completed": "bold green",
    "settled": "green",
    "outcome_delivered": "green",
    "failed": "bold red",
    "rejected": "bold red",
    "expired": "bold red",
    "nudged": "red",
    "escalated": "bold red",
}


class Lines:
    """Turns entries into lines. Learns references from the offers that pass by."""

    def __init__(self) -> None:
        self._refs: dict[str, str] = {}

    def of(self, entry: Entry) -> Text:
        """Return the line of an entry."""
        kind, _, rest = str(entry["type"]).partition(".")
        name = rest.removesuffix(".v1")
        self._learn(entry, name)
        made = line(
            (f"{entry['seq']:>5} ", "bright_black"),
            (f"{screen.clock(entry['at'])}  ", "bright_black"),
            (f"{name if kind == 'handoff' else f'{kind} {name}':<17} ", _STYLES.get(name, "")),
            (f"{entry['actor']:<14} ", "bold"),
        )
        about: str | None = entry["handoff_id"]
        if about is not None:
            made.append_text(line((self._refs.get(about, about[:_ID_CHARS]), "cyan"), "  "))
        say = _SAY.get(name) if kind in _BY_NAME else _SAY_OF_TEAM.get(f"{kind} {name}")
        said = say(entry["data"] or {}, entry.get("body") or {}) if say else ""
        made.append_text(line(" ".join(said.split())))
        return made

    def _learn(self, entry: Entry, name: str) -> None:
        data: Entry = entry["data"] or {}
        if name == "offered" and data.get("key"):
            self._refs[entry["handoff_id"]] = f"{data['sender']}/{data['key']}"


def _quoted(words: Entry, field: str) -> str:
    return f": {picture.brief(words[field])}" if words.get(field) is not None else ""


def _attempt(data: Entry) -> str:
    return f"attempt {data['attempt']}"


def _offered(data: Entry, words: Entry) -> str:
    legs = [leg.get("to") or leg.get("capability") or "" for leg in data.get("legs") or ()]
    path = " → ".join([data["sender"], data["recipient"], *legs])
    again = " (redriven)" if data.get("redrive_of") else ""
    return f"{path}{again}{_quoted(words, 'title') or _quoted(words, 'trigger')}"


def _acknowledged(data: Entry, words: Entry) -> str:
    position = f", position {data['position']}" if data.get("position") else ""
    return f"{_attempt(data)}{position}{_quoted(words, 'status')}"


def _escalated(data: Entry) -> str:
    told = f"{data['notify']} is told" if data.get("notify") else ""
    raised = f"raised to {data['priority']}" if data.get("priority") else ""
    return f"{data['when']}: {', '.join(filter(None, (told, raised))) or 'given away'}"


def _returned(data: Entry, words: Entry) -> str:
    tried = ", one try used" if data.get("tried") else ""
    return f"{str(data['reason']).replace('_', ' ')}, {_attempt(data)} ended{tried}{_quoted(words, 'reason')}"


def _offers(data: Entry) -> str:
    capabilities = ", ".join(data.get("capabilities") or ())
    return f"{data['agent']}: {capabilities}" if capabilities else data["agent"]


_SAY: Final[Mapping[str, Callable[[Entry, Entry], str]]] = {
    "offered": _offered,
    "delivered": lambda data, _: _attempt(data),
    "queued": lambda data, words: f"position {data['position']}{_quoted(words, 'status')}",
    "queue_lapsed": lambda data, _: str(data["reason"]).replace("_", " "),
    "accepted": _acknowledged,
    "updated": _acknowledged,
    "blocked": lambda data, words: (
        f"asks {data['asked']}{_quoted(words, 'question') or _quoted(words, 'reason')}"
    ),
    "parked": lambda data, _: f"{_attempt(data)} ended, the question stays",
    "answered": lambda data, words: f"{data['by']}{_quoted(words, 'answer')}",
    "returned": _returned,
    "reclaimed": lambda data, _: _attempt(data),
    "revived": lambda data, _: f"{_attempt(data)} goes on",
    "resumed": lambda data, _: f"{_attempt(data)} goes on",
    "reassigned": lambda data, words: (
        f"to {data['recipient']}, {data['reason']}{_quoted(words, 'reason')}"
    ),
    "step_recorded": lambda data, words: f"{data['name']}{_quoted(words, 'value')}",
    "checkpointed": lambda data, _: _attempt(data),
    "completed": lambda data, words: f"{_attempt(data)}{_quoted(words, 'result')}",
    "failed": lambda data, words: f"{data['code']}{_quoted(words, 'reason')}",
    "rejected": lambda data, words: f"{data['code']}{_quoted(words, 'reason')}",
    "cancelled": lambda _, words: _quoted(words, "reason").removeprefix(": "),
    "redriven": lambda data, _: f"as {data['successor'][:_ID_CHARS]}",
    "accepted_late": lambda data, _: f"as {data['successor'][:_ID_CHARS]}",
    "settled": lambda data, _: (
        f"next leg {data['next_leg'][:_ID_CHARS]}" if data.get("next_leg") else ""
    ),
    "nudged": lambda data, _: f"{data['to']}: the {data['clock']} clock ran out",
    "escalated": lambda data, _: _escalated(data),
    "member_moved": lambda data, _: f"{data['member']['label']} is {data['member']['state']}",
    "rearmed": lambda data, _: f"the {data['clock']} clock counts anew",
    "registered": lambda data, _: _offers(data),
    "removed": lambda data, _: str(data.get("agent") or ""),
    "created": lambda data, _: f"for {data['agent'] or 'anybody'}, {data['role']}",
    "added": lambda data, _: f"of {data['agent']}, {data['role']}: {data['key_id']}",
    "revoked": lambda data, _: (
        f"of {data['agent']}" if data.get("agent") else str(data.get("invitation_id"))
    ),
    "dismissed": lambda data, _: f"the notices to {data['reader']}",
    "noted": lambda _, words: _quoted(words, "text").removeprefix(": "),
}
_BY_NAME: Final = frozenset({"handoff", "agent", "token", "key", "invitation", "team"})


def _emitted(data: Entry, words: Entry) -> str:
    fired = f", which fired {', '.join(data['fired'])}" if data.get("fired") else ""
    return f"{data['type']} {data['id']}{fired}{_quoted(words, 'data')}"


def _spoken(data: Entry, words: Entry) -> str:
    to = ", ".join(data.get("to") or ())
    status = f" {words['status']}" if words.get("status") is not None else ""
    topic = f" ({data['topic']})" if data.get("topic") else ""
    return f"{f'to {to}' if to else 'to nobody'}{topic}{status and f': {status.strip()}'}{_quoted(words, 'text')}"


_SAY_OF_TEAM: Final[Mapping[str, Callable[[Entry, Entry], str]]] = {
    "policy set": lambda data, _: f"signatures {data.get('signatures', 'optional')}",
    "event emitted": _emitted,
    "message said": _spoken,
    "status told": _spoken,
    "trigger set": lambda data, _: str(data.get("name") or ""),
    "trigger removed": lambda data, _: str(data.get("name") or ""),
    "topic subscribed": lambda data, _: str(data.get("topic") or ""),
    "topic unsubscribed": lambda data, _: str(data.get("topic") or ""),
    "outlet set": lambda data, _: f"{data['name']} for {data['agent']}, {data['kind']}",
    "outlet removed": lambda data, _: str(data["name"]),
    "outlet tested": lambda data, _: str(data["name"]),
    "outlet gave_up": lambda data, _: f"{data['name']} on what {data['seq']} told",
}
