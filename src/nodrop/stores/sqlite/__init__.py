"""SQLite: the default store. One file, one relay, no server."""

from nodrop.stores.sqlite.store import SQLiteStore
from nodrop.stores.sqlite.tables import SQLiteTables

__all__ = ["SQLiteStore", "SQLiteTables"]
