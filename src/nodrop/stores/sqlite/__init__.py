"""SQLite: the default store. One file, one relay, no server."""

from nodrop.stores.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore"]
