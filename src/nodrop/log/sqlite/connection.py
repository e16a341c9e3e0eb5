"""Opening a database file, and what its errors mean.

Here are the settings that the store's guarantees rest on. Not here: any table; `migrations` makes
them and `database` uses them.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import apsw

from nodrop.log.sqlite.driver import Connection
from nodrop.log.sqlite.migrations import check, migrate
from nodrop.model.errors import (
    NodropError,
    RelayFaultError,
    StoreCorruptError,
    StoreFullError,
    StoreInUseError,
    StoreUnavailableError,
)

PAGE_BYTES: Final = 4_096
"""The disk's own unit: a change of one row rewrites no more than it must."""
CACHE_KIB: Final = 65_536
"""Holds the pages that a busy relay changes between two checkpoints, and its indexes."""
WAL_BYTES_KEPT: Final = 64 * 1024 * 1024
"""What a burst left of the write-ahead log beyond this is given back to the disk."""


def connect(path: Path, *, vfs: str | None, synchronous: str) -> Connection:
    """Open `path`, made if missing, for this process alone, with its schema up to date.

    Raises:
        StoreInUseError: another relay has it open.
        StoreFullError: there is no room to make it.
        StoreCorruptError: it is damaged, or is no database.
        StoreUnavailableError: it cannot be opened, or is not a file for this Nodrop.
    """
    connection = None
    try:
        _make(path)
        connection = cast("Connection", apsw.Connection(str(path), vfs=vfs))
        _take(connection)
        _configure(connection, synchronous=synchronous)
        migrate(connection)
    except (apsw.BusyError, apsw.LockedError) as error:
        _close(connection)
        raise StoreInUseError(f"{path} is served by another relay") from error
    except apsw.FullError as error:
        _close(connection)
        raise StoreFullError from error
    except (apsw.CorruptError, apsw.NotADBError) as error:
        _close(connection)
        raise StoreCorruptError(f"{path} is damaged: {error}") from error
    except (apsw.Error, OSError) as error:
        _close(connection)
        raise StoreUnavailableError(f"{path} cannot be opened: {error}") from error
    except BaseException:
        _close(connection)
        raise
    return connection


def translated(error: apsw.Error) -> NodropError:
    """Return what `error`, of a statement on an open database, means to a caller."""
    match error:
        case apsw.FullError():
            return StoreFullError()
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreCorruptError(f"the database is damaged: {error}")
        case apsw.ConstraintError():
            # Callers are checked long before: what gets here is a contradiction of our own.
            return RelayFaultError(f"the store refused a contradiction: {error}")
        case _:
            return StoreUnavailableError(f"{type(error).__name__}: {error}")


def _make(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only ever a file of our own: closing any descriptor of a database that this process has open
    # already would drop its locks (POSIX).
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _take(connection: Connection) -> None:
    """Lock the file for as long as it is open, and look whether it is ours."""
    connection.set_busy_timeout(0)
    # Kept from the first access on, and before WAL: then its index is in our memory, and there is
    # no shared file through which a second process could get in.
    connection.pragma("locking_mode", "exclusive")
    connection.execute("begin exclusive")
    try:
        check(connection)
    finally:
        connection.execute("rollback")


def _configure(connection: Connection, *, synchronous: str) -> None:
    connection.pragma("page_size", PAGE_BYTES)
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreUnavailableError("the file system does not carry a write-ahead log")
    # FULL: a commit is on disk before it is answered. The two after it make macOS mean it.
    connection.pragma("synchronous", synchronous)
    connection.pragma("fullfsync", 1)
    connection.pragma("checkpoint_fullfsync", 1)
    connection.pragma("journal_size_limit", WAL_BYTES_KEPT)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("temp_store", "memory")
    # What is erased is overwritten, not merely unlinked.
    connection.pragma("secure_delete", 1)
    connection.pragma("trusted_schema", 0)
    # A plan is made once per statement. Otherwise SQLite makes it anew whenever a bound value might
    # change it, and that takes several times as long as the lookups themselves.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def _close(connection: Connection | None) -> None:
    if connection is not None:
        with suppress(apsw.Error):  # a disk that fails fails at closing too; why is being told
            connection.close(True)  # noqa: FBT003  # apsw's signature
