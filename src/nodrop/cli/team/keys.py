"""`nodrop keys`: the keys of the team, a new one for an agent, the end of one."""

import re
from typing import Annotated, Any, Final

import typer
from rich.table import Table
from typer.core import TyperCommand

from nodrop.cli import screen
from nodrop.cli.screen import styled
from nodrop.cli.session import Session
from nodrop.cli.values import given
from nodrop.model.errors import InvalidRequestError, Problem

_DASHED_ID: Final = re.compile(r"-[A-Za-z0-9_-]{42}")


class KeyIdCommand(TyperCommand):
    """A verb that is given a key's id: one in 64 begins as an option does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put such an id behind the options, where it cannot be taken for one."""
        ids = [argument for argument in args if _DASHED_ID.fullmatch(argument)]
        if ids and "--" not in args:
            args = [*(argument for argument in args if argument not in ids), "--", *ids]
        return super().parse_args(ctx, args)


async def keys_list(
    session: Session,
    of: Annotated[str | None, typer.Option(metavar="NAME", help="Only of this agent.")] = None,
) -> None:
    """List the public keys of the team: whose they are, and how long they are good."""
    answer = await session.call("keys", given(agent=of))
    session.show(answer, lambda: _show(answer["keys"], now=session.now()))


async def keys_rotate(
    session: Session,
    overlap: Annotated[str, typer.Option(help="How long older keys are good.")] = "24h",
) -> None:
    """Give the agent a new key, or its first: made here, kept in NODROP_HOME/keys."""
    from nodrop.client.auth import joining  # noqa: PLC0415  # cryptography is loaded by who needs it

    client = await session.open()
    if client.agent is None:
        problem = Problem(path="--agent", message="say whose key it is")
        raise InvalidRequestError(problem.message, errors=(problem,))
    answer = await joining.rotate(client, session.settings, agent=client.agent, overlap=overlap)
    key = answer["key"]
    session.show(
        answer, lambda: screen.success("the key of ", (key["agent"], "bold"), f": {key['key_id']}")
    )


async def keys_revoke(
    session: Session,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its id, as `keys list` shows it.")],
) -> None:
    """End a key at once: one's own, or as an operator anybody's."""
    answer = await session.call("revoke_key", name=key)
    session.show(answer, lambda: screen.success("revoked ", (key, "bold")))


def _show(listed: list[dict[str, Any]], *, now: int) -> None:
    table = Table(box=None, pad_edge=False, header_style="bright_black")
    for column in ("key", "agent", "role", "added", ""):
        table.add_column(column, no_wrap=True)
    for key in listed:
        table.add_row(
            styled(key["key_id"]),
            styled(key["agent"], "bold"),
            styled(key["role"]),
            styled(screen.ago(key["added_at"], now), "bright_black"),
            _good(key, now),
        )
    screen.console().print(table)


def _good(key: dict[str, Any], now: int) -> Any:
    if key["revoked_at"] is not None:
        return styled("revoked", "red")
    if key["expires_at"] is None:
        return styled("good", "green")
    past = screen.is_past(key["expires_at"], now)
    words = f"{'expired' if past else 'expires'} {screen.ago(key['expires_at'], now)}"
    return styled(words, "red" if past else "yellow")
