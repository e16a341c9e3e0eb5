"""`nodrop backup` and `nodrop restore`: a verified copy of a relay's database, and its way back."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from nodrop.cli import screen
from nodrop.cli.screen import line
from nodrop.cli.session import Session
from nodrop.cli.verb import path
from nodrop.cli.verify import read_checkpoints
from nodrop.client.auth import private_file
from nodrop.client.transports.address import Embedded, parse
from nodrop.model.errors import InvalidRequestError, NotFoundError, Problem, UnreachableError
from nodrop.protocol.times import format_time


async def backup(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(parser=path, help="A new file; by default one in `backups` of the home."),
    ] = None,
) -> None:
    """Copy the relay's database while it is served, verify the copy, and write its checkpoint."""
    from nodrop.app import restoring  # noqa: PLC0415  # the relay itself: other verbs need not load it

    if file is not None:
        for taken in (file, _checkpoint_of(file)):
            if taken.exists():
                problem = Problem(path="FILE", message=f"{taken} exists")
                raise InvalidRequestError(
                    f"{taken} exists, and is not overwritten",
                    errors=(problem,),
                    next_step="Name a new file.",
                )
        if not file.resolve().parent.is_dir():
            raise restoring.cannot_be_made(file, NotADirectoryError(20, "no such directory"))
    session.act_as("me")
    answer = await _made(session)
    # Only the name is taken from the answer: a relay elsewhere must not choose files of ours.
    made = _backups_of(session) / Path(answer["path"]).name
    if not made.is_file():
        if file is not None:
            raise NotFoundError(
                f"the backup is on the relay's machine: {answer['path']}",
                next_step="Fetch it from there, or run `nodrop backup FILE` there.",
            )
        session.show(answer, lambda: _show(answer))
        return
    if file is not None:
        restoring.move(made, file)
        made = file
    written = json.dumps(answer["checkpoint"]) + "\n"
    private_file.write(_checkpoint_of(made), written.encode())
    answer = answer | {"path": str(made.resolve())}
    session.show(answer, lambda: _show(answer))


async def restore(
    session: Session,
    file: Annotated[Path, typer.Argument(parser=path, help="A backup.")],
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(help="Checkpoints that were kept elsewhere; repeatable."),
    ] = None,
) -> None:
    """Put a backup in the place of the database, once it is verified; stop the relay first.

    It is held to FILE.checkpoint, if there is one. The database that was there is kept aside.
    """
    from nodrop.app import restoring  # noqa: PLC0415  # the relay itself: other verbs need not load it

    beside = _checkpoint_of(file)
    kept = [*(checkpoint or ()), *([beside] if beside.exists() else [])]
    at = format_time(session.now())
    stamp = at.replace(":", "").replace(".", "")
    old, heads = restoring.restore(
        session.settings.home,
        file,
        checkpoints=[found for each in kept for found in read_checkpoints(each)],
        aside=f"replaced-{stamp}",
        at=at,
    )
    answer = {
        "restored": str(file),
        "replaced": None if old is None else str(old),
        "logs": {team: {"size": head.seq, "head": head.hash} for team, head in heads.items()},
        "checkpoints": len(kept),
    }
    session.show(answer, lambda: _show_restored(answer))


async def _made(session: Session) -> dict[str, Any]:
    """Ask the relay for a backup; where none serves the home, open its database."""
    from nodrop.app import DATABASE  # noqa: PLC0415  # the same

    try:
        return await session.call("backup")
    except UnreachableError:
        database = session.settings.home / DATABASE
        if session.url is not None or not database.exists():
            raise
    from nodrop.client.transports.connecting import open_client  # noqa: PLC0415  # the same

    client = await open_client(str(database), agent="me")
    try:
        return await client.call("backup", {})
    finally:
        await client.close()


def _backups_of(session: Session) -> Path:
    place = parse(session.settings.address)
    home = Path(place.path).parent if isinstance(place, Embedded) else session.settings.home
    return home / "backups"


def _checkpoint_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.checkpoint")


def _show(answer: dict[str, Any]) -> None:
    point = answer["checkpoint"]
    told = f"{answer['path']}, {answer['size_bytes']} bytes, verified to entry {point['size']}"
    out = screen.console()
    out.print(line(("✓ ", "green"), told), soft_wrap=True)
    out.print(line(("→ ", "cyan"), "Keep it on another disk, with `keys` and `credentials`."))


def _show_restored(answer: dict[str, Any]) -> None:
    out = screen.console()
    ends = ", ".join(f"{team} to entry {log['size']}" for team, log in answer["logs"].items())
    out.print(line(("✓ ", "green"), f"restored {answer['restored']}: {ends}"), soft_wrap=True)
    if answer["replaced"]:
        out.print(line("  the database that was there is ", answer["replaced"]), soft_wrap=True)
    if not answer["checkpoints"]:
        out.print(line(("! ", "yellow"), "held to no checkpoint: there was none beside it"))
    out.print(line(("→ ", "cyan"), "nodrop up, then nodrop verify"))
