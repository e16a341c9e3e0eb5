"""The board: open handoffs and dead letters, in sections by who owes the next move and by when.

Values only. `top.feed` fills it from the relay, `top.app` shows it.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from rich.text import Text

from nodrop.cli import screen
from nodrop.cli.screen import line
from nodrop.model.limits import DAY, HOUR, MINUTE, SECOND
from nodrop.protocol.times import parse_time

Handoff = Mapping[str, Any]

OPEN: Final = ("offered", "delivered", "accepted", "blocked")
SECTIONS: Final = ("LATE", "YOU", "NEXT")
_DEAD: Final = frozenset({"failed", "rejected", "expired"})
_OWED: Final = {
    "offered": "an ack",
    "delivered": "an ack",
    "accepted": "an update",
    "blocked": "an answer",
}
_MARKS: Final = {"LATE": ("●", "red"), "YOU": ("◆", "magenta"), "NEXT": ("○", "bright_black")}
_GONE: Final = "─"
_FIRST_OF_ID: Final = 13
"""Characters of an id that tell its millisecond: a reference that is unique in practice."""
_REF: Final = 18
_OWES: Final = 24
_DUE: Final = 12


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One handoff on the board."""

    id: str
    section: str
    ref: str
    owes: str
    """Who owes what."""
    due_at: int | None
    dead: bool
    title: str
    gone: str | None = None
    """How it ended while the reader was looking at the list; None: it is on the board."""

    def due(self, now: int) -> str:
        """Return when it is due, in few letters."""
        if self.gone:
            return self.gone
        if self.dead:
            return "dead"
        if self.due_at is None:
            return "not due"
        left = self.due_at - now
        return f"in {length(left)}" if left > 0 else f"{length(-left)} late"

    def says(self, text: str) -> bool:
        """Whether it holds what a reader looks for."""
        return text.casefold() in f"{self.ref} {self.owes} {self.title}".casefold()

    def text(self, *, width: int, now: int) -> Text:
        """Return the row as one line of `width` cells: the title gives way first, then who owes what."""
        mark, style = (_GONE, "bright_black") if self.gone else _MARKS[self.section]
        made = line((f"{mark} ", style))
        spare = width - 2 - (_REF + _OWES + _DUE + 3)
        for words, cells, look in (
            (self.ref, _REF, "bold"),
            (self.owes, max(_OWES + min(spare, 0), 0), ""),
            (self.due(now), _DUE, style if self.section == "LATE" else ""),
            (self.title, max(spare, 0), ""),
        ):
            part = line((words, "bright_black" if self.gone else look))
            part.truncate(cells, overflow="ellipsis", pad=True)
            made.append_text(part).append(" ")
        made.truncate(width)
        return made


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of what."""

    open: int = 0
    late: int = 0
    you: int = 0
    working: int = 0
    dead: int = 0

    def text(self) -> Text:
        """Return the counts in one line."""
        return line(
            (f"{self.open} open", "bold"),
            "   ",
            (f"{self.late} late", "bold red" if self.late else ""),
            "   ",
            (f"{self.you} waiting for you", "bold magenta" if self.you else ""),
            f"   {self.working} working   ",
            (f"{self.dead} dead", "bold red" if self.dead else ""),
        )


class Board:
    """What is open, and what is dead and undecided."""

    def __init__(self, me: str | None) -> None:
        self.me = me
        self.watched: str | None = None
        """A handoff that somebody looks at: kept up to date when it is over, too."""
        self._handoffs: dict[str, Handoff] = {}

    def get(self, handoff_id: str) -> Handoff | None:
        """Return a handoff as it was last seen."""
        return self._handoffs.get(handoff_id)

    def put(self, handoff: Handoff) -> None:
        """Know a handoff as it is now."""
        if _is_open(handoff) or _is_dead(handoff) or handoff["id"] == self.watched:
            self._handoffs[handoff["id"]] = handoff
        else:
            self._handoffs.pop(handoff["id"], None)

    def replace(self, handoffs: list[Handoff]) -> None:
        """Know these handoffs, and of the others only the one that is watched."""
        watched = self._handoffs.get(self.watched or "")
        self._handoffs = {} if watched is None else {watched["id"]: watched}
        for handoff in handoffs:
            self.put(handoff)

    def rows(self, *, now: int, text: str = "") -> list[Row]:
        """Return what is on the board and says `text`: by section, the first due first."""
        rows = [
            _row(handoff, self.me, now)
            for handoff in self._handoffs.values()
            if _is_open(handoff) or _is_dead(handoff)
        ]
        return sorted((row for row in rows if row.says(text)), key=_place)

    def counts(self, *, now: int) -> Counts:
        """Return how many there are of what."""
        found = [h for h in self._handoffs.values() if _is_open(h)]
        return Counts(
            open=len(found),
            late=sum(_is_late(h, now) for h in found),
            you=sum(h["holder"] == self.me for h in found),
            working=sum(h["state"] == "accepted" for h in found),
            dead=sum(map(_is_dead, self._handoffs.values())),
        )


def length(ms: int) -> str:
    """Return a length of time in few letters: `12 min`."""
    for unit, size in (("d", DAY), ("h", HOUR), ("min", MINUTE)):
        if ms >= size:
            return f"{ms // size} {unit}"
    return f"{ms // SECOND} s"


def _is_open(handoff: Handoff) -> bool:
    return handoff["state"] in OPEN


def _is_dead(handoff: Handoff) -> bool:
    undecided = handoff["decision"] is None and handoff["next_leg"] is None
    return handoff["state"] in _DEAD and undecided


def _is_late(handoff: Handoff, now: int) -> bool:
    return handoff["owed_at"] is not None and parse_time(handoff["owed_at"]) <= now


def _row(handoff: Handoff, me: str | None, now: int) -> Row:
    dead = _is_dead(handoff)
    late = dead or _is_late(handoff, now)
    mine = handoff["holder"] == me
    due: str | None = handoff["owed_at"]
    return Row(
        id=handoff["id"],
        section="LATE" if late else "YOU" if mine else "NEXT",
        ref=_ref(handoff),
        owes=_owes(handoff, me),
        due_at=None if due is None else parse_time(due),
        dead=dead,
        title=_title(handoff),
    )


def _owes(handoff: Handoff, me: str | None) -> str:
    if handoff["state"] in _DEAD:
        outcome: Handoff = handoff["outcome"] or {}
        return f"{handoff['to']}: {outcome.get('code') or handoff['state']}"
    mine = handoff["holder"] == me
    if screen.is_queued(handoff):
        return f"{'you' if mine else handoff['holder']}: {screen.queued(handoff)}"
    who = "you owe" if mine else f"{handoff['holder']} owes"
    return f"{who} {_OWED[handoff['state']]}"


def _title(handoff: Handoff) -> str:
    question: Handoff | None = handoff["question"]
    if question is not None and question.get("question"):
        return str(question["question"])
    if handoff["withheld"]:
        return "(not shown to you)"
    return handoff["title"] or handoff["trigger"] or handoff["capability"] or "(untitled)"


def _ref(handoff: Handoff) -> str:
    ref: str = handoff["ref"]
    return ref[:_FIRST_OF_ID] if ref == handoff["id"] else ref


def _place(row: Row) -> tuple[int, bool, int, str]:
    """Return where a row stands: dead letters behind what is late, what is never due at the end."""
    due = row.due_at is None
    return (SECTIONS.index(row.section), due, row.due_at or 0, row.id)
