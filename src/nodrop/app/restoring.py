"""Putting a backup in the place of a relay's database."""

import os
import shutil
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import cast

import apsw

from nodrop.app.checkpointed import Restored, mark
from nodrop.app.database import DATABASE, AddressFile
from nodrop.audit.verify.chain import Checkpoint
from nodrop.log.sqlite.backup import sync, verify
from nodrop.log.sqlite.driver import Connection
from nodrop.model.errors import (
    InvalidRequestError,
    NotFoundError,
    Problem,
    StoreFullError,
    StoreInUseError,
    StoreUnavailableError,
)
from nodrop.protocol.entries import Head


def restore(
    home: Path, backup: Path, *, checkpoints: Iterable[Checkpoint], aside: str, at: str
) -> tuple[Path | None, dict[str, Head]]:
    """Make `backup` the database of the relay in `home`, once it is verified.

    That it was done on purpose, and when (`at`), is kept in the home: the relay's own checkpoints may
    be of a longer log.

    Returns:
        Where the database that was there is now (its name ends in `aside`), and where each team's
        log ends.

    Raises:
        NotFoundError: there is no such backup.
        InvalidRequestError: a checkpoint is not genuine.
        StoreInUseError: a relay serves the home.
        StoreCorruptError: the backup is damaged, or is not what a checkpoint says it was.
    """
    path = home / DATABASE
    for checkpoint in checkpoints:
        if not checkpoint.genuine():
            problem = Problem(path="checkpoint", message="not signed by the key in it")
            raise InvalidRequestError("the checkpoint does not hold", errors=(problem,))
    held_to = [(each.team, Head(seq=each.size, hash=each.head)) for each in checkpoints]
    with ExitStack() as stack:
        _lock(path, stack)
        # A copy is verified, so that the backup itself is only ever read.
        made = path.with_name(f"{path.name}.restoring")
        stack.callback(made.unlink, missing_ok=True)
        try:
            _copy(backup, made)
            heads = verify(made, held_to)
            if not heads:
                problem = Problem(path="FILE", message="it holds no team")
                raise InvalidRequestError(
                    f"{backup} is no backup of a relay",
                    errors=(problem,),
                    next_step="Name a file that `nodrop backup` made.",
                )
            sync(made)
            # Before the database: without it, this mark says nothing.
            mark(home, Restored(at=at, aside=aside, logs=heads))
            old = _move_aside(path, aside)
            made.rename(path)
            sync(home)
        except OSError as error:
            raise StoreUnavailableError(f"{path} cannot be replaced: {error}") from error
    return old, heads


def move(source: Path, target: Path) -> None:
    """Give `source` another place, never that of another file.

    Raises:
        InvalidRequestError: there is a file, or no directory to put one into.
    """
    try:
        try:
            target.hardlink_to(source)
        except FileExistsError:
            raise
        except OSError:  # another file system
            _copy(source, target)
            sync(target)
        source.unlink()
        sync(target.parent)
    except OSError as error:
        raise cannot_be_made(target, error) from error


def cannot_be_made(target: Path, error: OSError) -> InvalidRequestError:
    """Return the refusal of a file that cannot be made."""
    problem = Problem(path="FILE", message=f"{target}: {error.strerror}")
    return InvalidRequestError(
        f"{target} cannot be made: {error.strerror}",
        errors=(problem,),
        next_step="Name a new file in a directory that is there.",
    )


def _lock(path: Path, stack: ExitStack) -> None:
    """Keep relays from the database for as long as `stack` is open."""
    if not path.exists():
        return
    try:
        flags = apsw.SQLITE_OPEN_READWRITE
        connection = cast("Connection", apsw.Connection(str(path), flags=flags))
        stack.callback(connection.close, True)  # noqa: FBT003  # apsw's signature
        connection.pragma("locking_mode", "exclusive")
        connection.execute("begin exclusive")
    except (apsw.BusyError, apsw.LockedError) as error:
        stack.close()
        address = AddressFile(path).read()
        where = f" at {address}" if address else ""
        raise StoreInUseError(f"a relay serves {path}{where}: stop it first") from error
    except apsw.Error:
        return  # damaged: no relay can serve it, and it is being replaced


def _copy(source: Path, target: Path) -> None:
    if not source.is_file():
        raise NotFoundError(f"there is no backup at {source}")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with source.open("rb") as read, os.fdopen(descriptor, "wb") as written:
            shutil.copyfileobj(read, written, 1 << 20)
    except OSError as error:
        with suppress(OSError):
            target.unlink()
        raise StoreFullError(f"{target} could not be written: {error}") from error


def _move_aside(path: Path, aside: str) -> Path | None:
    old = path.with_name(f"{path.name}.{aside}")
    for suffix in ("-wal", ""):
        file = path.with_name(f"{path.name}{suffix}")
        if file.exists():
            file.rename(old.with_name(f"{old.name}{suffix}"))
    return old if old.exists() else None
