"""PostgreSQL: the store of many relay nodes. One database, replicated by the tools that exist for it."""

from nodrop.log.postgres.fleet import PostgresFleet
from nodrop.log.postgres.store import PostgresStore

__all__ = ["PostgresFleet", "PostgresStore"]
