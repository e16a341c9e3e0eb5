"""What people see: consoles, colours, times in words, and problems. Knows no verb.

Stdout is for what was asked for, so that a shell can use it; that something was done, or went
wrong, is told on stderr.

Words of agents are data. They are printed as they are, without control characters, so that they
can neither move the cursor nor pass for markup.
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.style import Style
from rich.text import Text

from nodrop.model.errors import NodropError
from nodrop.model.limits import SECOND
from nodrop.protocol import errors, visible
from nodrop.protocol.text import spell_duration
from nodrop.protocol.times import parse_time

_PIPED_WIDTH: Final = 160
"""Columns where nobody's terminal says otherwise: wide enough that no table is cut."""

STATE_STYLES: Final[Mapping[str, str]] = {
    "offered": "yellow",
    "delivered": "cyan",
    "accepted": "blue",
    "blocked": "magenta",
    "completed": "green",
    "failed": "red",
    "rejected": "red",
    "expired": "red",
    "cancelled": "bright_black",
}


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the verb, which has a connection to close, that nobody reads on."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Return a console for this moment's stdout or stderr."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return _Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def clean(text: object) -> str:
    """Return somebody's words without what a terminal would obey."""
    return visible.replaced(str(text))


def styled(text: object, style: str | Style = "") -> Text:
    """Return somebody's words in a style."""
    return Text(clean(text), style=style)


def line(*parts: tuple[object, str] | str) -> Text:
    """Return one line made of words and (words, style)."""
    made = Text()
    for part in parts:
        words, style = part if isinstance(part, tuple) else (part, "")
        made.append(clean(words).replace("\n", " "), style)
    return made


def state(name: str) -> Text:
    """Return a state in its colour."""
    return line((name, STATE_STYLES.get(name, "")))


def is_queued(handoff: Mapping[str, Any]) -> bool:
    """Whether a handoff waits in its recipient's queue, which said so."""
    ack: Mapping[str, Any] | None = handoff.get("ack")
    return ack is not None and bool(ack.get("queued"))


def standing(handoff: Mapping[str, Any]) -> Text:
    """Return the state of a handoff; of one that waits in its recipient's queue, its place there."""
    if is_queued(handoff):
        return line((queued(handoff), STATE_STYLES["accepted"]))
    return state(handoff["state"])


def queued(handoff: Mapping[str, Any]) -> str:
    """Return the place of a handoff that waits in its recipient's queue: `queued 2 of 5`."""
    ack: Mapping[str, Any] = handoff["ack"]
    of = f" of {ack['of']}" if ack.get("of") else ""
    return f"queued {ack['position']}{of}"


def document(value: Any) -> None:
    """Print one JSON document, exactly; what a terminal would obey or hide is escaped."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    print(visible.escaped(written), flush=True)


def value(result: Any) -> None:
    """Print a result so that a shell can use it: text as it is, anything else as JSON."""
    if isinstance(result, str):
        print(clean(result) if sys.stdout.isatty() else result)
    else:
        print(visible.escaped(json.dumps(result, ensure_ascii=False, indent=2)))


def problem(error: NodropError, *, as_json: bool) -> None:
    """Tell what went wrong, where, and what to do: as JSON on stdout, else in words on stderr."""
    if as_json:
        document(msgspec.to_builtins(errors.document(error)))
        return
    out = console(stderr=True)
    out.print(line(("✗ ", "red"), (error.title, "bold red"), (f"  {error.code}", "bright_black")))
    told = {error.title, *(f"{found.path}: {found.message}" for found in error.errors)}
    if error.detail not in told:
        out.print(styled(f"  {error.detail}"))
    for found in error.errors:
        out.print(line("  ", (found.path, "bold"), f": {found.message}"))
    out.print(line(("→ ", "cyan"), error.next_step))


def success(words: str, *more: tuple[object, str] | str) -> None:
    """Tell that something was done. On stderr: stdout is for what a shell could use."""
    console(stderr=True).print(line(("✓ ", "green"), words, *more), soft_wrap=True)


def warning(words: str) -> None:
    """Tell what is not as one would expect, and what is done about it."""
    console(stderr=True).print(line(("! ", "yellow"), words), soft_wrap=True)


def hint(command: str) -> None:
    """Tell what one could type next."""
    console(stderr=True).print(line(("→ ", "cyan"), command), soft_wrap=True)


# --- times --------------------------------------------------------------------------------------


def clock(at: str) -> str:
    """Return the time of day of a point in time, to the tenth of a second, in UTC."""
    return at[11:21]


def moment(at: str) -> str:
    """Return a point in time as a person writes it."""
    return f"{at[:10]} {at[11:19]}Z"


def is_past(at: str, now: int) -> bool:
    """Whether a point in time is over."""
    return parse_time(at) < now


def ago(at: str, now: int) -> str:
    """Return how far a point in time is from `now`: `"in 2 hours"`, `"3 minutes ago"`."""
    distance = parse_time(at) - now
    if abs(distance) < SECOND:
        return "now"
    words = " ".join(spell_duration(abs(distance)).split()[:4])
    return f"in {words}" if distance > 0 else f"{words} ago"
