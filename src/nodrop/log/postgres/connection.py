"""Opening connections to a database, and what its errors mean.

Here are the settings that the store's guarantees rest on. Not here: any table.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg  # pyright: ignore[reportMissingTypeStubs]  # it has none
import msgspec

from nodrop.log.port import ConflictError
from nodrop.log.postgres.driver import Connection, Pool
from nodrop.model.errors import (
    NodropError,
    RelayFaultError,
    StoreFullError,
    StoreUnavailableError,
)

CONNECTIONS_MAX: Final = 8
"""Of one node: one commits, the others read. Many nodes share what the server allows."""
CONNECT_SECONDS_MAX: Final = 5.0
STATEMENT_SECONDS_MAX: Final = 10.0
"""The server's own bound. What takes longer is a lock that nobody will let go of."""
ANSWER_SECONDS_MAX: Final = STATEMENT_SECONDS_MAX + 2.0
"""Ours, where the server is not heard of at all."""
IDLE_SECONDS_MAX: Final = 10.0
"""What a node that vanished in the middle of a transaction may keep others waiting."""

SETTINGS: Final = {
    "application_name": "nodrop",
    "statement_timeout": f"{STATEMENT_SECONDS_MAX:.0f}s",
    "idle_in_transaction_session_timeout": f"{IDLE_SECONDS_MAX:.0f}s",
    # An answer is a promise: it may not be in the server's memory alone. A server whose own setting
    # is stricter (`remote_apply`) is asked by `options` in the address.
    "synchronous_commit": "on",
    # What is checked under locks is read when they are had, whatever the database's own default is.
    "default_transaction_isolation": "read committed",
    # One plan per statement, made once: what is bound decides nothing that a plan could depend on,
    # and making one for these takes longer than carrying it out.
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
    # A plan made while a table was empty serves when it is not: by the indexes, always.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # A connection whose other end is gone is noticed within seconds, on both ends.
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
_DRIVER: Final[Any] = asyncpg
_OURS: Final = ("pooled", "direct")
"""What an address may say besides what the driver knows."""

Broken = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InternalClientError,
)
"""What a connection fails with when it, or the server behind it, is no longer good."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a database is, read from what a person wrote."""

    dsn: str
    """For the driver."""
    pooled: bool = False
    """Whether a pooler stands there, which hands a server's connection to another client after each
    transaction: nothing that is prepared, set or listened for stays."""
    direct: str | None = None
    """For the driver, past the pooler."""

    @property
    def own(self) -> "Address":
        """Where a connection stays one's own; the pooler itself where nothing else is known."""
        return self if self.direct is None else Address(dsn=self.direct)

    def arguments(self) -> dict[str, Any]:
        """Return what the driver is told. What a pooler cannot keep is for the role to have."""
        if self.pooled:
            return {"dsn": self.dsn, "statement_cache_size": 0}
        return {"dsn": self.dsn, "server_settings": SETTINGS}


def address_of(dsn: str) -> Address:
    """Read an address: `pooled=1` says that a pooler is there, `direct=HOST:PORT` what it hides."""
    parts = urlsplit(dsn)
    said = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([(name, value) for name, value in said if name not in _OURS])
    ours = dict(said)
    hosts, direct = ours.get("direct"), None
    if hosts:
        user, at, _ = parts.netloc.rpartition("@")
        direct = urlunsplit(parts._replace(netloc=f"{user}{at}{hosts}", query=query))
    return Address(
        dsn=urlunsplit(parts._replace(query=query)),
        pooled=bool(direct) or ours.get("pooled", "") not in {"", "0", "false", "no"},
        direct=direct,
    )


async def open_pool(dsn: str, *, connections_max: int = CONNECTIONS_MAX) -> Pool:
    """Return connections to the primary at `dsn`; several hosts are tried in turn.

    Raises:
        StoreUnavailableError: there is none to be had.
    """

    async def as_it_is(_: object) -> None:
        """Nothing to clean up: a unit of work leaves nothing behind on its connection."""

    try:
        pool: Any = await _DRIVER.create_pool(
            **address_of(dsn).arguments(),
            min_size=0,  # what must always be there is sought in an outage too, with a trace each time
            max_size=connections_max,
            timeout=CONNECT_SECONDS_MAX,
            command_timeout=ANSWER_SECONDS_MAX,
            max_inactive_connection_lifetime=60.0,
            target_session_attrs=_target(dsn),
            reset=as_it_is,
        )
        await pool.release(await pool.acquire())  # there is one to be had
    except (*Broken, asyncpg.PostgresError, ValueError) as error:
        raise _unreachable(error) from error
    return cast("Pool", pool)


async def connect(dsn: str, *, answer_seconds_max: float | None = ANSWER_SECONDS_MAX) -> Connection:
    """Return a connection of its own, outside of any pool, and past a pooler if that is known.

    `answer_seconds_max` bounds each statement on this side; None is for those that copy a database.

    Raises:
        StoreUnavailableError: there is none to be had.
    """
    try:
        made = await _DRIVER.connect(
            **address_of(dsn).own.arguments(),
            timeout=CONNECT_SECONDS_MAX,
            command_timeout=answer_seconds_max,
            target_session_attrs=_target(dsn),
        )
    except (*Broken, asyncpg.PostgresError, ValueError) as error:
        raise _unreachable(error) from error
    return cast("Connection", made)


async def roll_back(connection: Connection) -> None:
    """Undo what was begun. A connection on which that fails is not used again."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS_MAX):
            await connection.execute("rollback")
    except (*Broken, asyncpg.PostgresError):
        drop(connection)
    except asyncio.CancelledError:
        drop(connection)
        raise


def is_open(connection: Connection) -> bool:
    """Whether a connection was not lost; one that was belongs to nobody."""
    try:
        return not connection.is_closed()
    except asyncpg.InterfaceError:
        return False


def drop(connection: Connection) -> None:
    """End a connection; one that has ended already belongs to nobody."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


def _unreachable(error: Exception) -> StoreUnavailableError:
    """Say why there is no connection to whoever can do something about it."""
    told = str(error)
    if isinstance(error, asyncpg.TargetServerAttributeNotMatched):
        told = "no server of the address takes writes: each is a standby, or read-only"
    return StoreUnavailableError(
        f"PostgreSQL cannot be reached: {told}",
        next_step="Check the address, that the server is up, and that it lets this user in.",
    )


def _target(dsn: str) -> str:
    """Return which of several hosts will do: the one that takes writes, unless told otherwise."""
    return dict(parse_qsl(urlsplit(dsn).query)).get("target_session_attrs", "read-write")


def translated(error: BaseException) -> Exception | None:
    """Return what an error of a statement means; None: it is not the database's."""
    match error:
        case NodropError() | ConflictError():
            return error
        case asyncpg.DiskFullError() | asyncpg.OutOfMemoryError():
            return StoreFullError()
        case (
            asyncpg.DeadlockDetectedError()
            | asyncpg.SerializationError()
            | asyncpg.LockNotAvailableError()
            | asyncpg.InvalidCachedStatementError()  # the schema has changed under a plan
        ):
            return ConflictError(str(error))
        case asyncpg.UniqueViolationError(
            constraint_name=("command_pkey" | "idempotency_key_pkey")
        ):
            return ConflictError(str(error))  # it was believed that nobody has used the name
        case asyncpg.IntegrityConstraintViolationError():
            # Callers are checked long before: what gets here is a contradiction of our own.
            return RelayFaultError(f"the store refused a contradiction: {error}")
        case asyncpg.PostgresError() | asyncpg.InterfaceError() | OSError() | TimeoutError():
            return StoreUnavailableError(f"{type(error).__name__}: {error}")
        case asyncpg.InternalClientError():
            return StoreUnavailableError(f"{type(error).__name__}: {error}")
        case _:
            return None
