"""The verb `nodrop top`."""

import sys

import msgspec

from nodrop.cli import screen
from nodrop.cli.session import Session
from nodrop.cli.top.board import SECTIONS, Board
from nodrop.cli.top.feed import Feed
from nodrop.protocol import extras


async def top(session: Session) -> None:
    """Watch who owes the next move, and by when: live, keyboard only.

    Where stdout is no terminal, and with --json, the screen is printed once.
    """
    session.act_as("me")
    await session.open()
    board = Board(session.identity)
    feed = Feed(session.call, board)
    if session.as_json or not _is_terminal():
        await feed.follow()
        _print_once(session, board)
        return
    try:
        from nodrop.cli.top.app import Top  # noqa: PLC0415  # needs the extra
    except ModuleNotFoundError as error:
        raise extras.missing_here("Textual", "top") from error
    team = session.settings.team or (await session.call("checkpoints"))["team"]
    ended = await Top(board, feed, place=f"· {team}", now=session.now).run_async()
    if ended is not None:
        raise ended


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _print_once(session: Session, board: Board) -> None:
    now = session.now()
    counts, rows = board.counts(now=now), board.rows(now=now)
    if session.as_json:
        told = [msgspec.to_builtins(row) | {"due": row.due(now)} for row in rows]
        screen.document({"counts": msgspec.to_builtins(counts), "rows": told})
        return
    out = screen.console()
    out.print(counts.text())
    for section in SECTIONS:
        mine = [row for row in rows if row.section == section]
        if mine:
            out.print(screen.styled(f"\n{section}", "bold"))
        for row in mine:
            out.print(row.text(width=out.width, now=now), no_wrap=True)
