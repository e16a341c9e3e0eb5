"""PostgreSQL: the store of many relay nodes. One database, replicated by the tools that exist for it."""

from nodrop.stores.postgres.fleet import PostgresFleet
from nodrop.stores.postgres.store import PostgresStore

__all__ = ["PostgresFleet", "PostgresStore"]
