"""Online backup: a copy of an open database, made in steps between commits and then verified.

SQLite's backup reads through the connection that writes. A page that changes after it was copied is
copied again by the commit that changes it, so the copy is the database as it was at the last step.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import apsw
import msgspec

from nodrop.log.sqlite.connection import translated
from nodrop.log.sqlite.database import Database
from nodrop.log.sqlite.driver import Backup, Connection
from nodrop.model.errors import StoreCorruptError, StoreUnavailableError
from nodrop.protocol.entries import Head

DIRECTORY: Final = "backups"
"""Beside the database."""
STEP_PAGES: Final = 256
"""1 MiB: commits wait a few milliseconds for a step at most."""
_UNFINISHED: Final = ".unfinished"


class Copying:
    """A copy under way. `begin`, `step` and `abandon` are visits to the database that is copied."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
        self._target: Connection | None = None
        self._backup: Backup | None = None

    def begin(self, database: Database) -> None:
        """Make an empty file that only its owner can read."""
        directory = self._path.parent
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            for left in directory.glob(f"*{_UNFINISHED}*"):  # by a relay that was killed
                left.unlink()
            os.close(os.open(self._unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except OSError as error:
            raise StoreUnavailableError(f"{directory} cannot be written to: {error}") from error
        self._target = cast("Connection", apsw.Connection(str(self._unfinished)))
        # The copy is synced once, when it is whole; until then it is worth nothing.
        self._target.pragma("journal_mode", "off")
        self._target.pragma("synchronous", "off")
        self._backup = database.backup_into(self._target)

    def step(self) -> bool:
        """Copy some pages; return whether there are more."""
        assert self._backup is not None, "begun"
        self._backup.step(STEP_PAGES)
        if not self._backup.done:
            return True
        self._close()
        return False

    def abandon(self) -> None:
        """Remove what there is of the copy."""
        with suppress(apsw.Error):
            self._close()
        with suppress(OSError):
            self._unfinished.unlink(missing_ok=True)

    def keep(self, began: Iterable[tuple[str, int]]) -> tuple[int, dict[str, Head]]:
        """Verify the copy and give it its name; return its size and where each log in it ends.

        No visit: it may take as long as it must.

        Raises:
            StoreCorruptError: it does not hold, or ends before `began`, which was durable before.
        """
        heads = verify(self._unfinished)
        for team, seq in began:
            if team not in heads or heads[team].seq < seq:
                raise StoreCorruptError(f"the copy of {team}'s log ends before {seq}")
        try:
            sync(self._unfinished)
            self._unfinished.rename(self._path)
            sync(self._path.parent)
            return self._path.stat().st_size, heads
        except OSError as error:
            raise StoreUnavailableError(f"{self._path} cannot be written: {error}") from error

    def _close(self) -> None:
        if self._backup is not None:
            self._backup.close(True)  # noqa: FBT003  # apsw's signature
        if self._target is not None:
            self._target.close(True)  # noqa: FBT003  # the same


def verify(path: Path, held_to: Iterable[tuple[str, Head]] = ()) -> dict[str, Head]:
    """Open the database at `path`, recover it and check all of it; return where each log ends.

    `held_to` are (team, head) that its logs must have gone through.

    Raises:
        StoreInUseError: a relay serves it.
        StoreUnavailableError: it cannot be opened, or is not a file for this Nodrop.
        StoreCorruptError: it is damaged, or its log does not hold.
    """
    database = Database(path, vfs=None, synchronous="FULL")
    try:
        return database.verify(held_to)
    except apsw.Error as error:
        raise translated(error) from error
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreCorruptError(f"{path} has a row that cannot be read: {error}") from error
    finally:
        with suppress(apsw.Error):  # a damaged file fails at closing too
            database.close()


def sync(path: Path) -> None:
    """Have a file or a directory on disk."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
