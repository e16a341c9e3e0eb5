"""`nodrop trace`: a chain as a tree, who holds what, and where it broke."""

from collections import defaultdict
from typing import Annotated, Any, Final

import typer
from rich.text import Text
from rich.tree import Tree

from nodrop.cli import picture, screen
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.model.errors import NotFoundError

Step = dict[str, Any]

_ARROWS: Final = {"fallback": "⤷ instead ", "redrive": "↻ again ", "group": "⑃ ", "member": "⑂ "}
_GOES_ON: Final = frozenset({"leg", "fallback", "redrive"})
"""Links to a handoff that takes the place of the one before it; any other is drawn below it."""
_MERMAID_CLASSES: Final = (
    "classDef completed fill:#d6f5d6,stroke:#2a7",
    "classDef ended fill:#f9d6d5,stroke:#c33",
    "classDef open fill:#fff6d5,stroke:#b80",
    "classDef cancelled fill:#eee,stroke:#999",
)


async def trace(
    session: Session,
    ref: Annotated[str, typer.Argument(metavar="REF", help="A handoff, or a correlation id.")],
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="Print it as a Mermaid flowchart.")
    ] = False,
) -> None:
    """Show the chain that a handoff belongs to; for a broken one, where it broke and why."""
    try:
        correlation_id = (await session.handoff(ref))["correlation_id"]
    except NotFoundError:
        correlation_id = ref
    answer = await session.call("trace", name=correlation_id)
    if mermaid:
        print("\n".join(flowchart(answer["steps"])))
        return
    session.show(answer, lambda: _show(answer, session.now()))


def _show(answer: dict[str, Any], now: int) -> None:
    out = screen.console()
    steps: list[Step] = answer["steps"]
    first = steps[0]
    root = Tree(
        line(("chain ", "bright_black"), (first["from"], "bold"), "  ", (answer["state"], "bold"))
    )
    below: defaultdict[str | None, list[Step]] = defaultdict(list)
    known = {step["id"] for step in steps}
    for step in steps:
        below[step["under"] if step["under"] in known else None].append(step)
    _grow(root, None, below, _to_come(answer["handoffs"]), now)
    out.print(root)
    for broken in answer["breaks"]:
        out.print()
        _show_break(broken, now)
    if answer["truncated"]:
        out.print(line(("! ", "yellow"), "there is more of it than fits here"))


def _to_come(handoffs: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Return who is to go on, by the handoff that this waits for."""
    return {
        view["id"]: view["chain"]["next"]
        for view in handoffs
        if not (view["next_leg"] or view["successor"])
        and view["state"] not in {"completed", "cancelled"}
    }


def _grow(
    tree: Tree,
    under: str | None,
    below: defaultdict[str | None, list[Step]],
    to_come: dict[str, list[str]],
    now: int,
) -> None:
    for step in below[under]:
        # A straight line of legs is shown as one: only what branches off is indented.
        straight = step["kind"] in {"leg", "first"}
        branch = tree.add(_described(step, now))
        if later := to_come.get(step["id"]):
            tree.add(line((f"then {', '.join(later)}", "bright_black")))
        children = below[step["id"]]
        goes_on = straight and len(children) == 1 and children[0]["kind"] in _GOES_ON
        onward = tree if goes_on else branch
        _grow(onward, step["id"], below, to_come, now)


def _described(step: Step, now: int) -> Text:
    label = f"{step['label']}: " if step["label"] else ""
    made = line(
        (_ARROWS.get(step["kind"], ""), "bright_black"),
        (label, "cyan"),
        (f"{step['to']} ", "bold"),
    ).append_text(screen.state(step["state"]))
    if step["title"]:
        made.append_text(line(f"  {picture.brief(step['title'])}"))
    made.append_text(line((f"  {step['ref']}", "bright_black")))
    if step["holder"] is not None:
        made.append_text(line(f"  {step['holder']} since {screen.moment(step['since'])}"))
        if step["owed_at"] is not None:
            late = "red" if screen.is_past(step["owed_at"], now) else "yellow"
            owed = f", owes {picture.OWED[step['state']]} {screen.ago(step['owed_at'], now)}"
            made.append_text(line((owed, late)))
        if step["due_at"] not in {None, step["owed_at"]}:
            next_ = f", {step['clock'] or 'due'} {screen.ago(step['due_at'], now)}"
            made.append_text(line((next_, "bright_black")))
    return made


def _show_break(broken: Step, now: int) -> None:
    out = screen.console()
    dead = broken["kind"] == "dead"
    out.print(
        line(
            ("✗ broke" if dead else "! late", "bold red" if dead else "bold yellow"),
            f" at leg {broken['leg']} of {broken['legs']}, ",
            (broken["agent"], "bold"),
            f": {broken['state']}",
            *(
                f" ({why})"
                for why in (broken["code"], broken["reason"])
                if why not in {None, "", broken["state"]}
            ),
        ),
        soft_wrap=True,
    )
    clock = broken["clock"]
    ran_out = f"the {clock} clock ran out" if clock else "no clock: it said so itself"
    out.print(line(f"  {ran_out}, {screen.moment(broken['at'])} ({screen.ago(broken['at'], now)})"))
    if broken["holder"] is not None:
        out.print(line("  ", (broken["holder"], "bold"), " owes the next move"))
    for done in broken["did"]:
        out.print(
            line((f"  {screen.moment(done['at'])} ", "bright_black"), f"the relay {done['what']}"),
            soft_wrap=True,
        )
    if dead:
        screen.hint(f"nodrop dlq redrive {broken['ref']}")


def flowchart(steps: list[Step]) -> list[str]:
    """Return a trace as lines of a Mermaid flowchart. Nobody's words are in it but agents' names."""
    numbers = {step["id"]: f"h{number}" for number, step in enumerate(steps)}
    made = ["flowchart TD", f'    origin(["{steps[0]["from"]}"])']
    for step in steps:
        here = numbers[step["id"]]
        above = numbers.get(step["under"], "origin")
        label = f"|{step['kind']}|" if step["kind"] not in {"leg", "first"} else ""
        kind = step["state"] if step["state"] in {"completed", "cancelled"} else "open"
        kind = "ended" if step["state"] in {"failed", "rejected", "expired"} else kind
        made.append(f'    {here}["{step["to"]}<br/>{step["state"]}"]:::{kind}')
        made.append(f"    {above} -->{label} {here}")
    return [*made, *(f"    {each}" for each in _MERMAID_CLASSES)]
