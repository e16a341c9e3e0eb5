"""SQLite: the default store. One file, one relay, no server."""

from nodrop.log.sqlite.store import SQLiteStore
from nodrop.log.sqlite.tables import SQLiteTables

__all__ = ["SQLiteStore", "SQLiteTables"]
