"""`nodrop verify`: whether the log holds, without taking the relay's word for it."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from nodrop.audit.verify.chain import Checkpoint
from nodrop.audit.verify.finding import Verdict
from nodrop.audit.verify.verifier import Verifier
from nodrop.cli import screen
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.cli.values import decode, file_text
from nodrop.model.errors import InvalidRequestError, Problem
from nodrop.protocol.errors import EXIT_FAILED
from nodrop.protocol.text import nouns

PAGE: Final = 500


async def verify(
    session: Session,
    log: Annotated[
        Path | None, typer.Option(help="A saved log (`nodrop log --json`) instead of the relay's.")
    ] = None,
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(help="A file of checkpoints that were kept elsewhere; repeatable."),
    ] = None,
    relay_key: Annotated[
        str | None, typer.Option(help="The relay's public key, as you know it.")
    ] = None,
    save_checkpoint: Annotated[
        Path | None, typer.Option(help="Write the relay's checkpoint here, to be kept elsewhere.")
    ] = None,
) -> None:
    """Check the log: hashes, bodies, signatures, the relay's statements, and every state.

    Names the first entry that does not hold, and exits with 1.
    """
    kept = [found for path in checkpoint or () for found in read_checkpoints(path)]
    if log is not None:
        verdict = _saved(session, log, kept, relay_key)
    else:
        verdict = await _from_relay(session, kept, relay_key, save_checkpoint)
    session.show(msgspec.to_builtins(verdict), lambda: _show(verdict))
    if not verdict.holds:
        raise typer.Exit(EXIT_FAILED)


def _saved(session: Session, log: Path, kept: list[Checkpoint], relay_key: str | None) -> Verdict:
    team = kept[0].team if kept else session.settings.team or "default"
    known = relay_key or (kept[0].public_key if kept else None)
    verifier = Verifier(team, relay_key=known)
    for found in kept:
        verifier.expect(found)
    with log.open("rb") as file:
        for number, written in enumerate(file, 1):
            verifier.read(decode(written.decode(), path=f"{log} line {number}"))
    return verifier.verdict()


async def _from_relay(
    session: Session,
    kept: list[Checkpoint],
    relay_key: str | None,
    save: Path | None,
) -> Verdict:
    session.act_as("me")
    answer = await session.call("checkpoints")
    now = msgspec.convert(answer, Checkpoint)
    if save is not None:
        _save(save, answer)
    # A key that came with what somebody kept is worth more than the one the relay gives now.
    known = relay_key or (kept[0].public_key if kept else now.public_key)
    verifier = Verifier(now.team, relay_key=known)
    for found in (*kept, now):
        verifier.expect(found)
    async for entry in _entries(session, now.size):
        verifier.read(entry)
    verdict = verifier.verdict()
    if verdict.holds:
        async for view in _handoffs(session, now.size):
            verifier.shown(view)
        verdict = verifier.verdict()
    return verdict


def _save(path: Path, checkpoint: dict[str, Any]) -> None:
    path.write_text(json.dumps(checkpoint) + "\n", encoding="utf-8")


async def _entries(session: Session, size: int) -> AsyncGenerator[dict[str, Any]]:
    """Yield the log up to where the checkpoint was made."""
    after = 0
    while after < size:
        page = await session.call("log", {"after": after, "limit": min(PAGE, size - after)})
        if not page["entries"]:
            return
        for entry in page["entries"]:
            yield entry
        after = page["after"]


async def _handoffs(session: Session, size: int) -> AsyncGenerator[dict[str, Any]]:
    """Yield the handoffs as they are, unless something happened since the checkpoint."""
    before: str | None = None
    while True:
        fields = {"limit": PAGE} | ({"before": before} if before else {})
        page = (await session.call("list_handoffs", fields))["handoffs"]
        moved = (await session.call("log", {"after": size, "limit": 1}))["entries"]
        if not page or moved:
            return
        for view in page:
            yield view
        before = page[-1]["id"]


def read_checkpoints(path: Path) -> list[Checkpoint]:
    """Return every checkpoint in a file: one, or one in each line."""
    written = file_text(str(path)).strip()
    lines = written.splitlines() if written.startswith("{") and "}\n{" in written else [written]
    return [_checkpoint(each, f"{path} line {n}") for n, each in enumerate(lines, 1)]


def _checkpoint(written: str, path: str) -> Checkpoint:
    try:
        return msgspec.convert(decode(written, path=path), Checkpoint)
    except msgspec.ValidationError as error:
        problem = Problem(path=path, message=str(error))
        raise InvalidRequestError("it is no checkpoint", errors=(problem,)) from error


def _show(verdict: Verdict) -> None:
    out = screen.console()
    for what, count in verdict.checked.items():
        out.print(line(("✓ ", "green"), f"{count} {nouns(count, what)}"))
    for what, count in verdict.unchecked.items():
        out.print(line(("· ", "bright_black"), f"{count} {nouns(count, what)}, not checked"))
    if verdict.finding is None:
        out.print(line(("✓ ", "green"), ("the log holds", "bold"), f", head {verdict.head}"))
        return
    found = verdict.finding
    out.print(
        line(("✗ ", "red"), (f"entry {found.seq} does not hold", "bold red"), f" ({found.type})")
    )
    out.print(line("  ", found.why))
