"""The text block: a handoff as a person writes it down.

    HANDOFF: inbox_monitor → code_agent
    TRIGGER: Bug report detected
    PRIORITY: medium
    PAYLOAD: {"email_id": "msg_123"}
    DEADLINE: 4 hours
    ESCALATION: If no response in 1 hour, notify me

`parse` reads a block into the fields of an offer, `render` writes one. What a block cannot say is
refused with its line and never skipped. Shapes only: whether the recipient exists, or a payload
fits, is for the relay to tell.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Never

from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.model.handoff import Priority, When
from nodrop.model.limits import DAY, DEFAULT, HOUR, MINUTE, SECOND
from nodrop.model.names import AGENT_ID, is_agent_id
from nodrop.protocol.times import parse_due, parse_duration, parse_time

_ARROW: Final = r"\s*(?:→|->)\s*"

_KEY: Final = re.compile(r"([A-Z][A-Z_]*):\s*(.*)")
_PARTIES: Final = re.compile(rf"({AGENT_ID}){_ARROW}({AGENT_ID}|\*)")
_BETWEEN_LEGS: Final = re.compile(rf"{_ARROW}(?![^()]*\))")
_LEG: Final = re.compile(rf"({AGENT_ID}|\*)(?:/({AGENT_ID}))?(?:\s*\((.+)\))?")
_INSTEAD: Final = re.compile(r"else\s+")
"""Before a leg that takes the place of the one before it, if that fails."""
_ESCALATION: Final = re.compile(
    rf"If\s+([a-z ]{{1,40}}?)(?:\s+(?:in|within|after|for)\s+(\d[\w. ]{{0,62}}?))?"
    rf"\s*,?\s*notify\s+({AGENT_ID})(.*)",
    re.IGNORECASE,
)
_NO_STEPS: Final = "none"
"""`ESCALATION: none` opts out of the team's steps too."""
_LOST_BREAK: Final = re.compile(r"me(?=[A-Z])")
"""`notify meThe coding agent …`: the next sentence is glued on where a line break was lost."""

_OUTSIDE_STRINGS: Final = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|(?P<list>\[\s*(?:\.\.\.|…)\s*\])|(?P<object>\{\s*(?:\.\.\.|…)\s*\})'
)
"""`[...]` stands for a list that was left out, unless it is part of a string."""

_EPISODES: Final[Mapping[str, When]] = {
    "no response": When.UNACKNOWLEDGED,
    "unacknowledged": When.UNACKNOWLEDGED,
    "no update": When.SILENT,
    "silent": When.SILENT,
    "no answer": When.BLOCKED,
    "blocked": When.BLOCKED,
    "overdue": When.OVERDUE,
    "dead": When.DEAD,
}
_SPOKEN: Final[Mapping[str, str]] = {
    When.UNACKNOWLEDGED: "no response in",
    When.SILENT: "no update in",
    When.BLOCKED: "no answer in",
    When.OVERDUE: "overdue for",
    When.DEAD: "dead for",
}


# --- reading ------------------------------------------------------------------------------------


def parse(text: str) -> dict[str, Any]:
    """Return the fields of the offer that a block spells out, durations as written.

    Text before the HANDOFF line is not part of the block. The block ends with the text, at a
    closing fence, or where prose runs on from the ESCALATION line.

    Raises:
        InvalidRequestError: `errors` names each line that cannot be read.
    """
    return _Reader(text).fields()


def notice_sentence(what: str, since: str, *, reason: str | None, why: str | None) -> str:
    """Return a notice in words: the event, the agent's reason, since when, and the step that sent it."""
    quoted = f', "{reason}",' if reason else ""
    step = f" ({why})" if why else ""
    return f"{what}{quoted} {since}{step}"


def left_out(text: str) -> tuple[Problem, ...]:
    """Return where a block says `[...]` or `{...}`, which `parse` reads as an empty list or object.

    Raises:
        InvalidRequestError: as `parse` does.
    """
    reader = _Reader(text)
    reader.fields()
    return tuple(reader.left_out)


class _Reader:
    """One pass over the lines; problems are gathered, so that all of them are told at once."""

    def __init__(self, text: str) -> None:
        self._lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
        self._problems: list[Problem] = []
        self.left_out: list[Problem] = []
        self._fields: dict[str, Any] = {}
        self._seen: dict[str, int] = {}
        self._ended = False

    def fields(self) -> dict[str, Any]:
        """Read the block."""
        at = self._first()
        while at < len(self._lines) and not self._ended:
            at = self._line(at)
        for rest in range(at, len(self._lines)):
            if self._lines[rest].startswith("HANDOFF:"):
                self._problem(rest, "HANDOFF", "another block begins here: send one at a time")
        if self._problems:
            raise InvalidRequestError(
                "the text block cannot be read",
                next_step="Correct the lines that are named and send it again.",
                errors=tuple(self._problems),
            )
        return self._fields

    def _first(self) -> int:
        for at, line in enumerate(self._lines):
            key = _KEY.match(line.strip())
            if key is None or key[1] not in _KEYS:
                continue
            if key[1] == "HANDOFF":
                return at
            self._problem(at, key[1], "comes before the HANDOFF line")
        raise InvalidRequestError(
            "there is no HANDOFF line",
            next_step="Begin with `HANDOFF: sender → recipient`, or send the offer as JSON.",
            errors=(*self._problems, Problem(path="line 1", message="expected `HANDOFF: a → b`")),
        )

    def _line(self, at: int) -> int:
        """Read the line at `at`; return where the next one is."""
        line = self._lines[at].strip()
        if line.startswith("```"):
            self._ended = True
            return at
        if not line:
            return at + 1
        found = _KEY.fullmatch(line)
        key, value = (found[1], found[2]) if found else (None, line)
        if key is None:
            self._problem(at, None, "expected `KEY: value`")
        elif key not in _KEYS:
            self._problem(at, key, f"no such key: a block has {', '.join(_KEYS)}")
        elif key in self._seen and key != "ESCALATION":
            self._problem(at, key, f"is on line {self._seen[key] + 1} already")
        elif key == "PAYLOAD":
            self._seen[key] = at
            return self._payload(at)
        else:
            self._seen[key] = at
            self._value(at, key, value)
        return at + 1

    def _value(self, at: int, key: str, value: str) -> None:
        try:
            if not value:
                raise ValueError("says nothing")  # noqa: TRY301  # told like any other bad value
            if key == "ESCALATION":
                self._ended = self._escalation(value)
            else:
                self._fields |= _KEYS[key](value)
        except ValueError as error:
            self._problem(at, key, str(error))

    def _escalation(self, value: str) -> bool:
        """Add a step, or opt out of all steps; return whether prose ran on after it."""
        steps: list[dict[str, Any]] | None = self._fields.get("escalation")
        opts_out = value.lower() == _NO_STEPS
        if steps is not None and opts_out != (not steps):
            raise ValueError(f"`{_NO_STEPS}` stands alone")
        if opts_out:
            self._fields["escalation"] = []
            return False
        step, ended = _read_escalation(value)
        self._fields.setdefault("escalation", []).append(step)
        return ended

    def _payload(self, at: int) -> int:
        """Read JSON that begins on this line and may go on over the next ones."""
        rest = "\n".join(self._lines[at:])
        begin = rest.index(":") + 1
        begin += len(rest[begin:]) - len(rest[begin:].lstrip())
        try:
            value, end = _JSON.raw_decode(_OUTSIDE_STRINGS.sub(_left_out, rest), begin)
        except json.JSONDecodeError as error:
            self._problem(at + error.lineno - 1, "PAYLOAD", f"is not JSON: {error.msg}")
            return self._next_key(at)
        except ValueError as error:
            self._problem(at, "PAYLOAD", str(error))
            return self._next_key(at)
        except RecursionError:
            self._problem(at, "PAYLOAD", "is nested too deep")
            return self._next_key(at)
        last = at + rest.count("\n", 0, end)
        if rest[end:].split("\n", 1)[0].strip():
            self._problem(last, "PAYLOAD", "something follows the JSON on its last line")
        self._fields["payload"] = value
        for found in _OUTSIDE_STRINGS.finditer(rest, begin, end):
            if kind := found.lastgroup:
                where = _place(at + rest.count("\n", 0, found.start()), "PAYLOAD")
                message = f"`{' '.join(found[0].split())}` is sent as an empty {kind}"
                self.left_out.append(Problem(path=where, message=message))
        return last + 1

    def _next_key(self, at: int) -> int:
        for later in range(at + 1, len(self._lines)):
            found = _KEY.match(self._lines[later].strip())
            if found and found[1] in _KEYS:
                return later
        return len(self._lines)

    def _problem(self, at: int, key: str | None, message: str) -> None:
        self._problems.append(Problem(path=_place(at, key), message=message))


def _place(at: int, key: str | None) -> str:
    return f"line {at + 1} ({key})" if key else f"line {at + 1}"


def _no_constant(word: str) -> Never:
    raise ValueError(f"{word} is not JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_no_constant)


def _left_out(found: re.Match[str]) -> str:
    # Of the same length, so that places in error messages stay true.
    if found["list"]:
        return "[" + re.sub(r"[^\n]", " ", found[0][1:-1]) + "]"
    if found["object"]:
        return "{" + re.sub(r"[^\n]", " ", found[0][1:-1]) + "}"
    return found[0]


def _read_parties(value: str) -> dict[str, Any]:
    found = _PARTIES.fullmatch(value)
    if found is None:
        raise ValueError("expected `sender → recipient` (`->` works too)")
    to = {} if found[2] == "*" else {"to": found[2]}
    return {"from": found[1], **to}


def _read_priority(value: str) -> dict[str, Any]:
    if value.lower() not in tuple(Priority):
        raise ValueError(f"expected one of {', '.join(Priority)}")
    return {"priority": value.lower()}


def _read_deadline(value: str) -> dict[str, Any]:
    parse_due(value, now=0)
    return {"deadline": value}


def _read_legs(value: str) -> dict[str, Any]:
    legs: list[dict[str, Any]] = []
    for written in _BETWEEN_LEGS.split(value):
        instead = _INSTEAD.match(written)
        found = _LEG.fullmatch(written, instead.end() if instead else 0)
        if found is None or (found[1] == "*" and not found[2]):
            raise ValueError("expected `agent → agent`; a leg is agent, agent/capability or */…")
        leg = {"to": found[1], "capability": found[2], "title": found[3]}
        leg["on"] = "failed" if instead else None
        if found[1] == "*":
            del leg["to"]
        legs.append({name: said for name, said in leg.items() if said})
    return {"then": legs}


def _read_escalation(value: str) -> tuple[dict[str, Any], bool]:
    """Return the step, and whether prose ran on after it."""
    found = _ESCALATION.fullmatch(value)
    episode = _EPISODES.get(found[1].lower()) if found else None
    if found is None or episode is None:
        spoken = ", ".join(f"`{words}`" for words in _EPISODES)
        expected = "expected `If no response in 1 hour, notify me`"
        raise ValueError(f"{expected}; also {spoken}; or `{_NO_STEPS}` for no steps at all")
    notify, rest = found[3], found[4]
    glued = bool(rest) and _LOST_BREAK.match(notify) is not None
    if glued:
        notify = "me"
    elif rest.strip(" ."):
        raise ValueError(f"cannot read {rest.strip()!r} after `notify {notify}`")
    step: dict[str, Any] = {"when": episode.value, "notify": notify.rstrip(".")}
    if found[2]:
        parse_duration(found[2])
        step["after"] = found[2]
    return step, glued


def _text(field: str) -> Callable[[str], dict[str, Any]]:
    return lambda value: {field: value}


def _name(field: str) -> Callable[[str], dict[str, Any]]:
    def read(value: str) -> dict[str, Any]:
        if not is_agent_id(value):
            raise ValueError("expected a name of letters, digits, `_`, `.` and `-`")
        return {field: value}

    return read


def _length(field: str) -> Callable[[str], dict[str, Any]]:
    def read(value: str) -> dict[str, Any]:
        parse_duration(value)
        return {field: value}

    return read


_KEYS: Final[Mapping[str, Callable[[str], dict[str, Any]]]] = {
    "HANDOFF": _read_parties,
    "TITLE": _text("title"),
    "TRIGGER": _text("trigger"),
    "PRIORITY": _read_priority,
    "CAPABILITY": _name("capability"),
    "PAYLOAD": _text("payload"),  # JSON over several lines: read by `_Reader._payload`
    "EXPECTED_OUTCOME": _text("expected_outcome"),
    "DEADLINE": _read_deadline,
    "ACCEPT_WITHIN": _length("accept_within"),
    "UPDATE_EVERY": _length("update_every"),
    "ESCALATION": _text("escalation"),  # may be there several times: read by `_read_escalation`
    "THEN": _read_legs,
    "KEY": _text("idempotency_key"),
}
"""Every key of a block, in the order they are written."""


# --- writing ------------------------------------------------------------------------------------


def render(handoff: Mapping[str, Any]) -> str:
    """Return the block of a handoff as a relay shows it; `parse` reads it back."""
    said = {
        "HANDOFF": f"{handoff['from']} → {handoff.get('to') or '*'}",
        "TITLE": handoff.get("title"),
        "TRIGGER": handoff.get("trigger"),
        "PRIORITY": handoff.get("priority"),
        "CAPABILITY": handoff.get("capability"),
        "PAYLOAD": _write_payload(handoff.get("payload")),
        "EXPECTED_OUTCOME": handoff.get("expected_outcome"),
        "DEADLINE": _write_deadline(handoff),
        "ACCEPT_WITHIN": _write_length(handoff.get("accept_within"), DEFAULT.accept_within_ms),
        "UPDATE_EVERY": _write_length(handoff.get("update_every"), DEFAULT.update_every_ms),
        "ESCALATION": _write_escalations(handoff.get("escalation")),
        "THEN": _write_legs(handoff.get("then") or ()),
        "KEY": handoff.get("idempotency_key"),
    }
    folded = {"PAYLOAD", "ESCALATION"}
    return "\n".join(
        f"{key}: {value if key in folded else ' '.join(value.split())}"
        for key, value in said.items()
        if value
    )


def render_ack(handoff: Mapping[str, Any]) -> str | None:
    """Return the recipient's side of the block; None while it has not acknowledged."""
    ack: Mapping[str, Any] | None = handoff.get("ack")
    if ack is None:
        return None
    status = " ".join((ack.get("status") or "Acknowledged").split())
    if ack.get("position"):
        status += f" (position {ack['position']})"
    said_at = next(
        (r["at"] for r in reversed(handoff["receipts"]) if r["rung"] in _RUNGS_OF_AN_ACK), None
    )
    lines = [f"HANDOFF_ACK: {handoff['to']} received {handoff['ref']}", f"STATUS: {status}"]
    for key, field in (("ETA", "eta"), ("NEXT_UPDATE", "next_update")):
        if ack.get(field):
            lines.append(f"{key}: {_write_due(ack[field], since=said_at)}")
    return "\n".join(lines)


_PLURAL: Final = re.compile(r"(?:ies|(?<!s)s)\b")
_RUNGS_OF_AN_ACK: Final = ("acknowledged", "updated")


def spell_duration(ms: int) -> str:
    """Return a length of time in words: `"1 hour 30 minutes"`. Rounded to the second."""
    if ms < SECOND:
        return f"{ms} ms"
    left = round(ms / SECOND) * SECOND
    words: list[str] = []
    for unit, length in (("day", DAY), ("hour", HOUR), ("minute", MINUTE), ("second", SECOND)):
        count, left = divmod(left, length)
        if count:
            words.append(f"{count} {unit}" if count == 1 else f"{count} {unit}s")
    return " ".join(words)


def nouns(count: int, words: str) -> str:
    """Return what there are `count` of, named in the plural: of 1 `"dead letters"`, `"dead letter"`."""
    if count != 1:
        return words
    named = _PLURAL.sub(lambda found: "y" if found[0] == "ies" else "", words, count=1)
    return named.replace(" are ", " is ")


def _write_payload(payload: Any) -> str | None:
    return None if payload is None else json.dumps(payload, indent=2, ensure_ascii=False)


def _write_deadline(handoff: Mapping[str, Any]) -> str | None:
    deadline: str | None = handoff.get("deadline")
    return deadline and _write_due(deadline, since=handoff.get("stored_at"))


def _write_due(due: str, *, since: str | None) -> str:
    """Return an absolute time as the length that was asked for, where that is known."""
    if since is None:
        return due
    length = parse_time(due) - parse_time(since)
    return spell_duration(length) if length > 0 else due


def _write_length(length: str | None, default: int) -> str | None:
    if length is None or parse_duration(length) == default:
        return None
    return spell_duration(parse_duration(length))


def _write_escalations(steps: Sequence[Mapping[str, Any]] | None) -> str | None:
    if steps is None:
        return None
    return "\nESCALATION: ".join(map(_write_escalation, steps)) or _NO_STEPS


def _write_escalation(step: Mapping[str, Any]) -> str:
    spoken = _SPOKEN[step["when"]]
    after = parse_duration(step.get("after") or 0)
    length = f" {spell_duration(after)}" if after else ""
    condition = spoken if after else spoken.rsplit(" ", 1)[0]
    return f"If {condition}{length}, {' and '.join(_actions(step))}"


def _actions(step: Mapping[str, Any]) -> Iterator[str]:
    if step.get("notify"):
        yield f"notify {step['notify']}"
    if step.get("reassign"):
        to = step["reassign"].get("to") or f"whoever can do {step['reassign'].get('capability')}"
        yield f"reassign to {to}"
    if step.get("raise_priority"):
        yield f"raise to {step['raise_priority']}"


def _write_legs(legs: Sequence[Mapping[str, Any]]) -> str:
    written: list[str] = []
    for leg in legs:
        capability = f"/{leg['capability']}" if leg.get("capability") else ""
        title = f" ({leg['title']})" if leg.get("title") else ""
        instead = "else " if leg.get("on") == "failed" else ""
        written.append(f"{instead}{leg.get('to') or '*'}{capability}{title}")
    return " → ".join(written)
