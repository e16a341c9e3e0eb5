"""`nodrop prove`: verbs that the distribution nodrop-proof adds. Looked up only when one is asked for."""

from functools import cache
from importlib.metadata import entry_points
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from nodrop.cli import screen
from nodrop.model.errors import NotInstalledError
from nodrop.protocol.errors import TABLE

ENTRY_POINTS: Final = "nodrop.commands"
NAME: Final = "prove"
DISTRIBUTION: Final = "nodrop-proof"


class Added(TyperGroup):
    """A group whose verbs come from another distribution."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a verb of it, or None."""
        return added().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of its verbs, in their order."""
        return added().list_commands(ctx)


@cache
def added() -> TyperGroup:
    """Return the verbs that are installed; without any, say which package brings them and exit."""
    for entry in entry_points(group=ENTRY_POINTS, name=NAME):
        return get_group(entry.load())
    error = NotInstalledError(
        f"`nodrop {NAME}` comes with the package {DISTRIBUTION}",
        next_step=f"Install it: pip install {DISTRIBUTION}",
    )
    screen.problem(error, as_json=False)
    raise typer.Exit(TABLE[NotInstalledError].exit)


app: Final = typer.Typer(
    cls=Added,
    no_args_is_help=True,
    help=f"Break, simulate, fuzz and measure a relay yourself (with {DISTRIBUTION}).",
)
