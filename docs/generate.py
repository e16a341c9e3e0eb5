"""Writes the pages that follow from the code: `make docs`. With --check, says which are stale."""

import sys
from pathlib import Path

from nodrop import app
from nodrop.core import events
from nodrop.core.errors import ALL
from nodrop.core.machine import TRANSITIONS
from nodrop.core.model import FINAL
from nodrop.wire.errors import TABLE
from nodrop.wire.events import NAMES, TEAM_NAMES

ROOT = Path(__file__).parents[1]
MADE_BY = "<!-- Made by `make docs` from the code. Do not edit. -->\n\n"


def states() -> str:
    """The state diagram, and everything that may happen in each state."""
    lines = ["stateDiagram-v2", "    [*] --> offered: Offered"]
    for state, moves in TRANSITIONS.items():
        ways: dict[str, list[str]] = {}
        for event, to in moves.items():
            if to is not state:
                ways.setdefault(to.value, []).append(event.__name__)
        lines += [f"    {state.value} --> {to}: {', '.join(names)}" for to, names in ways.items()]
    lines += [f"    {state.value} --> [*]: Settled" for state in sorted(FINAL)]
    diagram = "\n".join(lines)
    rows = [
        f"| `{state.value}` | {_names(moves, stay=False)} | {_names(moves, stay=True)} |"
        for state, moves in TRANSITIONS.items()
    ]
    return (
        f"# States\n\n{MADE_BY}"
        "Every move a handoff can make. A pair that is not here cannot happen; the table is\n"
        "`TRANSITIONS` in `src/nodrop/core/machine.py`.\n\n"
        f"```mermaid\n{diagram}\n```\n\n"
        "| state | leaves by | may happen without leaving |\n|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _names(moves: object, *, stay: bool) -> str:
    assert isinstance(moves, dict)
    state = next(s for s, m in TRANSITIONS.items() if m is moves)
    names = [e.__name__ for e, to in TRANSITIONS[state].items() if (to is state) is stay]
    return ", ".join(sorted(names)) or "nothing"


def log_entries() -> str:
    """Every kind of log entry."""
    rows = [f"| `{name}` | {_first_line(kind.__doc__)} |" for kind, name in NAMES.items()]
    team = [f"| `{name}` |" for name in TEAM_NAMES]
    assert set(NAMES) == set(events.Event.__args__), "every event has a name"
    return (
        f"# Log entries\n\n{MADE_BY}"
        "What is written to a team's log, by name. A released name never changes its meaning.\n\n"
        "| entry | what happened |\n|---|---|\n" + "\n".join(rows) + "\n\n"
        "About the team and not one handoff:\n\n| entry |\n|---|\n" + "\n".join(team) + "\n"
    )


def errors() -> str:
    """Every error code, and how it shows at each door."""
    rows = [
        f"| `{e.code}` | {TABLE[e].http} | {TABLE[e].exit} | {'yes' if e.retryable else 'no'} "
        f"| {e.title}. {e.next} |"
        for e in ALL
    ]
    return (
        f"# Errors\n\n{MADE_BY}"
        "`code` is part of the API and never changes; the sentence may. Over WebSocket the same\n"
        "problem document comes as `error`. Retryable ones may be repeated as they are, with the\n"
        "same `command_id`.\n\n"
        "| code | HTTP | exit | retryable | what it means, what to do |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def _first_line(doc: str | None) -> str:
    return (doc or "").strip().splitlines()[0]


def files() -> dict[Path, bytes]:
    """Everything that is made from the code, by where it belongs."""
    pages = {"states.md": states, "log-entries.md": log_entries, "errors.md": errors}
    made = {ROOT / "docs" / name: make().encode() for name, make in pages.items()}
    return made | {ROOT / "schema" / name: data for name, data in app.schemas().items()}


def main() -> int:
    """Write the files, or say which are stale."""
    made = files()
    stale = [p for p, data in made.items() if not p.exists() or p.read_bytes() != data]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale) or "nothing"
    if "--check" in sys.argv:
        print(f"stale: {names}")
        return 1 if stale else 0
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(made[path])
    print(f"wrote: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
