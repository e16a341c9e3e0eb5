"""The verb: decide what to write, show it or write it, say what comes next."""

import difflib
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from nodrop.cli import screen
from nodrop.cli.mcp import check_name, folder_name
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.cli.setup import start
from nodrop.cli.setup.clients import CLIENTS, Place
from nodrop.cli.setup.files import Change, Files
from nodrop.client.settings import find_home
from nodrop.protocol.errors import EXIT_FAILED


class Client(StrEnum):
    """The coding agents there is something to write for."""

    CLAUDE = "claude"
    CODEX = "codex"
    CURSOR = "cursor"
    OPENCLAW = "openclaw"


_HEADLESS: Final = {
    "claude": 'claude -p "Do the handoff on stdin"',
    "codex": 'codex exec "Do the handoff on stdin"',
    "cursor": 'cursor-agent -p "Do the handoff on stdin"',
    "openclaw": "openclaw agent exec --message-file -",
}
"""What does one handoff and ends; each reads it from its standard input."""


async def setup(
    session: Session,
    client: Annotated[Client, typer.Argument(help="Which coding agent.")],
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")
    ] = False,
    remove: Annotated[
        bool, typer.Option("--remove", help="Take it out again; the rest stays as it was.")
    ] = False,
) -> None:
    """Connect a coding agent: its MCP server, what it should know, a bell for waiting work."""
    place = _place(session, client.value)
    files = Files(session.settings.home)
    edits = CLIENTS[client.value](place)
    changes = files.removing(edits) if remove else files.adding(edits)
    if not dry_run:
        files.apply(changes)
    started = None if dry_run or remove else await start.why_not(place.server(client.value)) or ""
    if session.as_json:
        screen.document(
            {
                "client": client.value,
                "agent": place.agent,
                "command": place.mcp,
                "files": [{"path": str(c.path), "did": c.did} for c in changes],
                "written": not dry_run,
                "starts": None if started is None else not started,
                "why_not": started or None,
            }
        )
    elif dry_run:
        _show_difference(changes)
    else:
        _tell(changes)
        if started:
            _tell_broken(place.server(client.value), started)
        elif not remove:
            screen.success("started it once: it answers")
            _tell_next(client.value, place, token=session.settings.token is not None)
    if started:
        raise typer.Exit(EXIT_FAILED)


def _place(session: Session, client: str) -> Place:
    settings = session.settings
    options: list[str] = []
    if settings.home.resolve() != find_home(environment={}).resolve():
        options += ["--home", str(settings.home.resolve())]
    if session.url is not None:
        options += ["--url", session.url]
    if settings.ca is not None:
        options += ["--ca", str(settings.ca.resolve())]
    named = session.named
    agent = settings.agent if named and settings.agent else folder_name(client)
    check_name(agent)
    return Place(
        agent=agent,
        named=named,
        command=_command(),
        options=options,
        folder=Path.cwd(),
        user_home=Path.home(),
    )


def _command() -> Sequence[str]:
    """Return what runs `nodrop` from anywhere, also where nobody has activated an environment."""
    script = shutil.which("nodrop", path=str(Path(sys.executable).parent))
    return [script] if script else [sys.executable, "-m", "nodrop.cli"]


def _show_difference(changes: Sequence[Change]) -> None:
    if all(change.before == change.after for change in changes):
        screen.console(stderr=True).print("Nothing would change.")
    for change in changes:
        before, after = change.before or "", change.after or ""
        name = str(change.path)
        sides = (before.splitlines(keepends=True), after.splitlines(keepends=True))
        for shown in difflib.unified_diff(*sides, fromfile=name, tofile=name):
            print(screen.clean(shown.rstrip("\n")))


def _tell(changes: Sequence[Change]) -> None:
    out = screen.console(stderr=True)
    for change in changes:
        mark = ("- ", "bright_black") if change.did in {"unchanged", "kept"} else ("✓ ", "green")
        out.print(line(mark, f"{change.did} ", (_short(change.path), "bold")), soft_wrap=True)


def _tell_broken(command: Sequence[str], why: str) -> None:
    out = screen.console(stderr=True)
    out.print(line(("✗ ", "red"), f"it is written, and does not start: {why}"), soft_wrap=True)
    screen.hint(f"{shlex.join(command)}    # shows it again; once it starts, nothing else is to do")


def _tell_next(client: str, place: Place, *, token: bool) -> None:
    out = screen.console(stderr=True)
    name = place.agent if place.named or client != "codex" else "codex-<folder>, wherever it works"
    out.print(line(f"{client} is ", (name, "bold"), " from its next start on."))
    if client == "codex":
        out.print(
            line(("! ", "yellow"), "It asks whether to trust the hooks: they run this program.")
        )
    if token:
        out.print(line(("! ", "yellow"), "The token is not written down: give it NODROP_TOKEN."))
    screen.hint("nodrop up              # unless a relay is running")
    screen.hint(
        f"nodrop work {place.agent} --exec '{_HEADLESS[client]}'"
        "   # to act while nobody types, under this or a name of its own"
    )


def _short(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)
