"""A handoff on the screen: its block, its ladder, its place in the chain, who owes what by when."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from nodrop.cli import screen
from nodrop.cli.screen import line, styled
from nodrop.protocol import text

Handoff = Mapping[str, Any]

_LADDER: Final[tuple[str, ...]] = (
    "stored",
    "delivered",
    "acknowledged",
    "finished",
    "outcome_delivered",
    "settled",
)
"""What every handoff is expected to climb; `updated` is there once it happened."""

_RESULT_CHARS_MAX: Final = 200


def track(handoff: Handoff, *, now: int, contract: bool = True) -> None:
    """Print everything there is to know about a handoff, or all but its contract."""
    out = screen.console()
    shown = parts(handoff, now=now)
    for part in (shown.heading, *(shown.contract if contract else ()), shown.ladder, shown.facts):
        out.print(part)
    _warnings(out, handoff)


class Parts(NamedTuple):
    """The parts of a picture of a handoff."""

    heading: RenderableType
    contract: tuple[RenderableType, ...]
    """What was asked for, the payload within it, and what the recipient said to it."""
    ladder: RenderableType
    facts: RenderableType


def parts(handoff: Handoff, *, now: int, chars_max: int | None = None) -> Parts:
    """Return a picture of a handoff; the contract cut to `chars_max` characters."""
    blocks = (text.render(handoff), text.render_ack(handoff))
    return Parts(
        heading=Group(_heading(handoff), Text()),
        contract=tuple(
            Padding(_block(_cut(block, chars_max)), (0, 0, 1, 2), expand=False)
            for block in filter(None, blocks)
        ),
        ladder=Padding(_ladder(handoff), (0, 0, 1, 2), expand=False),
        facts=Padding(_facts(handoff, now), (0, 0, 0, 2), expand=False),
    )


def _cut(block: str, chars_max: int | None) -> str:
    if chars_max is None or len(block) <= chars_max:
        return block
    return f"{block[:chars_max]}\n… {len(block) - chars_max:,} characters more"


def moved(handoff: Handoff, did: str, *, now: int) -> None:
    """Print on stderr that a command was carried out, and what comes next."""
    screen.success(f"{did} ", (handoff["ref"], "bold"), *_whose(handoff))
    out = screen.console(stderr=True)
    owed = _owed(handoff, now)
    if owed is not None:
        out.print(Text("  ").append_text(owed), soft_wrap=True)
    _warnings(out, handoff)


def outcome(handoff: Handoff) -> None:
    """Print how it ended: the result on stdout for a shell to use, the rest on stderr."""
    ended: Handoff = handoff["outcome"]
    completed = ended["state"] == "completed"
    mark = ("✓ ", "green") if completed else ("✗ ", "red")
    told = line(
        mark, (handoff["ref"], "bold"), " ", (ended["state"], screen.STATE_STYLES[ended["state"]])
    )
    told.append_text(line(f" by {ended['by']}", *_why(ended)))
    screen.console(stderr=True).print(told, soft_wrap=True)
    if completed:
        screen.value(ended.get("result"))


def brief(value: Any) -> str:
    """Return a value in one short line."""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    folded = " ".join(shown.split())
    return folded if len(folded) <= _RESULT_CHARS_MAX else f"{folded[: _RESULT_CHARS_MAX - 1]}…"


def chain(handoff: Handoff) -> Text:
    """Return the chain as a line, this leg in the middle."""
    place: Handoff = handoff["chain"]
    made = line((place["origin"], "bold"))
    for leg in place["done"]:
        style = screen.STATE_STYLES.get(leg["state"], "")
        made.append_text(
            line((" → ", "bright_black"), (f"{leg['agent']} ", style), (_tick(leg), style))
        )
    made.append_text(line((" → ", "bright_black"), (f"[{handoff['to']}]", "bold reverse")))
    for agent in place["next"]:
        made.append_text(line((" → ", "bright_black"), (agent, "bright_black")))
    return made


def _tick(leg: Handoff) -> str:
    return "✓" if leg["state"] == "completed" else f"✗ {leg['state']}"


def _heading(handoff: Handoff) -> Text:
    heading = line((handoff["ref"], "bold"), "  ").append_text(screen.standing(handoff))
    if handoff["title"]:
        heading.append_text(line("  ", brief(handoff["title"])))
    if handoff["ref"] != handoff["id"]:
        heading.append("\n").append_text(line((handoff["id"], "bright_black")))
    return heading


def _block(written: str) -> Text:
    """Return a text block with its keys in colour."""
    made = Text()
    for row in screen.clean(written).split("\n"):
        key, colon, rest = row.partition(":")
        is_key = bool(colon) and key.replace("_", "").isalpha() and key.isupper()
        made.append(key + colon if is_key else row, "cyan" if is_key else "")
        made.append(f"{rest}\n" if is_key else "\n")
    made.right_crop(1)
    return made


def _ladder(handoff: Handoff) -> Table:
    reached = {receipt["rung"]: receipt for receipt in handoff["receipts"]}
    ladder = Table.grid(padding=(0, 2))
    for _ in ("rung", "when", "by", "attempt"):
        ladder.add_column(no_wrap=True)
    rungs: list[str] = list(_LADDER)
    if "updated" in reached:
        rungs.insert(rungs.index("finished"), "updated")
    for rung in rungs:
        receipt: Handoff | None = reached.get(rung)
        if receipt is None:
            # A chain's next leg, or the requester's own withdrawal, takes a rung for granted.
            passed = handoff["settled_at"] is not None
            ladder.add_row(line(("─" if passed else "○", "bright_black"), f" {rung}"), style="dim")
            continue
        attempt = receipt.get("attempt")
        ladder.add_row(
            line(("●", "green"), f" {rung}"),
            styled(screen.moment(receipt["at"])),
            styled(receipt["by"], "bold"),
            styled(f"attempt {attempt}" if attempt else ""),
        )
    return ladder


def _facts(handoff: Handoff, now: int) -> RenderableType:
    facts = Table.grid(padding=(0, 2))

    def add(name: str, fact: Text | None) -> None:
        if fact is not None:
            facts.add_row(styled(name, "bright_black"), fact)

    place: Handoff = handoff["chain"]
    add("chain", chain(handoff) if place["done"] or place["next"] else None)
    add("holder", _owed(handoff, now))
    add("deadline", _deadline(handoff, now))
    add(
        "tries",
        line(f"{handoff['tries']} of {handoff['attempts_max']}") if handoff["tries"] else None,
    )
    for name in ("timeout", "contract_digest"):
        add(name.removesuffix("_digest"), styled(handoff[name]) if handoff[name] else None)
    add("question", _question(handoff))
    add("outcome", _outcome(handoff))
    for name, field in (
        ("next leg", "next_leg"),
        ("successor", "successor"),
        ("decision", "decision"),
    ):
        add(name, styled(handoff[field]) if handoff[field] else None)
    if handoff["late_result"]:
        add("late", line("a result came after the end: `nodrop dlq accept` takes it"))
    return facts if facts.row_count else Group()


def _whose(handoff: Handoff) -> tuple[tuple[object, str] | str, ...]:
    if screen.is_queued(handoff):
        return (" ", (screen.queued(handoff), screen.STATE_STYLES["accepted"]))
    held = handoff["state"] in {"delivered", "accepted", "blocked"} and handoff["attempt"]
    return (" ", (f"attempt {handoff['attempt']}", "bright_black")) if held else ()


OWED: Final = {
    "offered": "an acknowledgement",
    "delivered": "an acknowledgement",
    "accepted": "the next update or the result",
    "blocked": "an answer",
}
"""The next move of the holder, by state."""


def _owed(handoff: Handoff, now: int) -> Text | None:
    if handoff["holder"] is None:
        return None
    what = OWED.get(handoff["state"], "taking the outcome")
    if screen.is_queued(handoff):
        what = "the next update"
    owed = line((handoff["holder"], "bold"), f" owes {what}")
    due: str | None = handoff["owed_at"] or handoff["due_at"]
    if due is not None:
        late = "red" if screen.is_past(due, now) else ""
        owed.append_text(line(f" by {screen.moment(due)} ", (f"({screen.ago(due, now)})", late)))
    return owed


def _deadline(handoff: Handoff, now: int) -> Text | None:
    """Return when it ends in any case; nothing once it has."""
    if handoff["outcome"] is not None:
        return None
    due: str = handoff["deadline"]
    late = "red" if screen.is_past(due, now) else ""
    return line(f"{screen.moment(due)} ", (f"({screen.ago(due, now)})", late))


def _question(handoff: Handoff) -> Text | None:
    question: Handoff | None = handoff["question"]
    if question is None:
        return None
    if question["kind"] == "terms":
        proposed: Handoff = question.get("terms") or {}
        terms = ", ".join(f"{name} {value}" for name, value in proposed.items())
        why = f": {question['reason']}" if question.get("reason") else ""
        return line(
            (handoff["to"], "bold"), f" proposes {terms}{why}  ", ("agree or decline?", "magenta")
        )
    return line(
        (handoff["to"], "bold"),
        " asks ",
        (question["asked"], "bold"),
        f": {question.get('question')}",
    )


def _outcome(handoff: Handoff) -> Text | None:
    ended: Handoff | None = handoff["outcome"]
    if ended is None:
        return None
    told = screen.state(ended["state"]).append_text(line(f" by {ended['by']}", *_why(ended)))
    if ended["state"] == "completed":
        result = "(erased)" if handoff["erased"] else brief(ended.get("result"))
        told.append_text(line(": ", result))
    return told


def _why(ended: Handoff) -> tuple[tuple[object, str] | str, ...]:
    why = [str(said) for said in (ended.get("code"), ended.get("reason")) if said]
    return (f" ({': '.join(why)})",) if why else ()


def _warnings(out: Console, handoff: Handoff) -> None:
    for warning in handoff["warnings"]:
        told = line(("! ", "yellow"), (warning["code"], "yellow"), f": {warning['detail']}")
        out.print(told, soft_wrap=True)
