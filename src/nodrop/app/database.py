"""The database a relay runs on: a file, memory, or a PostgreSQL that others may serve too."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from nodrop.app.machine import SteeredClock
from nodrop.client.auth import private_file
from nodrop.log.memory import MemoryStore
from nodrop.log.port import Store
from nodrop.log.sqlite import SQLiteStore, SQLiteTables
from nodrop.model.errors import StoreInUseError
from nodrop.protocol import extras
from nodrop.relay.ports import Clock

if TYPE_CHECKING:  # an extra: loaded when an address asks for it
    from nodrop.log.postgres import PostgresFleet, PostgresStore

MEMORY: Final = ":memory:"
DATABASE: Final = "nodrop.db"
"""The file's name in a relay's home."""


def is_address(database: str | os.PathLike[str]) -> bool:
    """Whether `database` is not a file but the address of a server."""
    return os.fspath(database).startswith(("postgresql://", "postgres://"))


async def open_store(database: str | os.PathLike[str]) -> Store:
    """Open a database that one relay serves.

    Raises:
        StoreInUseError: another does; `address` says where, if it can be known.
    """
    if os.fspath(database) == MEMORY:
        return MemoryStore()
    path = Path(database)
    try:
        store = await SQLiteStore.open(path)
    except StoreInUseError as error:
        raise StoreInUseError(error.detail, address=AddressFile(path).read()) from None
    AddressFile(path).remove()  # whoever wrote it is gone: the file is ours now
    return store


async def open_shared(address: str, *, node: str) -> "tuple[PostgresStore, PostgresFleet, Clock]":
    """Open a database that others may serve too, with the others, and a clock that all go by."""
    try:
        from nodrop.log.postgres import PostgresFleet, PostgresStore  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as error:
        raise extras.missing_here("the PostgreSQL driver (asyncpg)", extras.RELAY) from error
    store = await PostgresStore.open(address)
    database_ns = await store.now_ns()
    clock = SteeredClock(wall_ns=lambda: database_ns)
    return store, PostgresFleet(store, node=node, clock=clock), clock


async def migrate(home: Path, address: str) -> dict[str, int]:
    """Copy the relay in `home` to a PostgreSQL database; return how many rows of each table there were.

    The file stays as it is. No relay may serve either of the two meanwhile.

    Raises:
        StoreInUseError: a relay serves the file.
        StoreUnavailableError: the database cannot be reached, or is not empty.
        RelayFaultError: the log of the file does not hold; nothing was copied.
    """
    with SQLiteTables(home / DATABASE) as tables:
        store, _, _ = await open_shared(address, node="")
        async with store:
            return await store.take_in(tables)


def without_password(database: str) -> str:
    """Return where a database is, fit to be shown."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", database)


class AddressFile:
    """Where the relay that serves a database listens, for those who find it locked."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}.address")

    def read(self) -> str | None:
        """Return the address, if there is one."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Address).url
        except (OSError, msgspec.MsgspecError):
            return None

    def write(self, url: str) -> None:
        """Tell the address.

        Raises:
            StoreFullError: there is no room to.
        """
        address = _Address(url=url, pid=os.getpid())
        private_file.write(self._path, msgspec.json.encode(address))

    def remove(self) -> None:
        """Tell nothing any more."""
        self._path.unlink(missing_ok=True)


class _Address(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    pid: int
