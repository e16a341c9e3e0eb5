"""The schema's versions: numbered SQL files, each applied once, in one transaction.

A file that was released is never edited; a change is a new file.
"""

from importlib.resources import files
from typing import Final

from nodrop.log.sqlite.driver import Connection
from nodrop.model.errors import StoreUnavailableError

APPLICATION_ID: Final = int.from_bytes(b"Ndrp")
"""Marks a SQLite file as Nodrop's."""

_STEPS: Final = sorted(
    (file for file in files("nodrop.log.sqlite").joinpath("schema").iterdir()),
    key=lambda file: file.name,
)
_BEFORE: Final = 2
"""Versions that were never released and have no step that leads on from them."""
VERSION: Final = _BEFORE + len(_STEPS)
"""Of the schema this code reads and writes; `PRAGMA user_version` of a file is its own."""


def check(connection: Connection) -> None:
    """Refuse a file that this code cannot serve. Changes nothing.

    Raises:
        StoreUnavailableError: the file is another program's, or a later Nodrop's.
    """
    empty = connection.execute("select 1 from sqlite_schema").fetchone() is None
    if not empty and connection.pragma("application_id") != APPLICATION_ID:
        raise StoreUnavailableError(
            "the file is a SQLite database of another program",
            next_step="Name another file; Nodrop makes its own.",
        )
    version: int = connection.pragma("user_version")
    if 0 < version <= _BEFORE:
        raise StoreUnavailableError(
            f"the database has schema {version}, from before the first release",
            next_step="Name another file, or move this one away: a new one is made in its place. "
            "The Nodrop that wrote it can still export it (nodrop export).",
        )
    if version > VERSION:
        raise StoreUnavailableError(
            f"the database has schema {version}, this Nodrop knows {VERSION}",
            next_step="Serve it with the version of Nodrop that wrote it, or a later one.",
        )


def migrate(connection: Connection) -> None:
    """Bring the schema up to `VERSION`, step by step. Closing undoes a step that failed."""
    version: int = max(connection.pragma("user_version"), _BEFORE)
    for number, step in enumerate(_STEPS[version - _BEFORE :], start=version + 1):
        connection.execute("begin immediate")
        connection.execute(step.read_text(encoding="utf-8"))
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", number)
        connection.execute("commit")
