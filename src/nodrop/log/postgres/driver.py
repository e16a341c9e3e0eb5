"""asyncpg as far as this store uses it, with types.

The driver has no types of its own; these protocols are all that the other modules know of it.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

Ask: TypeAlias = Callable[..., Awaitable[Sequence[Sequence[Any]]]]
"""Returns the rows of a statement, on whichever connection is free."""


class Connection(Protocol):
    """One connection. `$1` and so on are bound; a list is bound as an array."""

    async def execute(self, query: str, *args: Any) -> str:
        """Run a statement, or several where nothing is bound; return what it did."""
        ...

    async def fetch(self, query: str, *args: Any) -> Sequence[Sequence[Any]]:
        """Return the rows of a statement."""
        ...

    async def fetchrow(self, query: str, *args: Any) -> Sequence[Any] | None:
        """Return the first row of a statement."""
        ...

    async def fetchval(self, query: str, *args: Any) -> Any:
        """Return the first value of the first row of a statement; None if there is none."""
        ...

    async def executemany(self, command: str, args: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of `args`."""
        ...

    async def copy_records_to_table(
        self,
        table_name: str,
        *,
        records: Iterable[Sequence[Any]],
        columns: Sequence[str],
    ) -> str:
        """Copy rows into a table; return what that did."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Run what is in the block as one transaction."""
        ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None:
        """Call `callback` with every notification on `channel`."""
        ...

    def get_server_pid(self) -> int:
        """Return the process of the server that serves this connection, or a pooler's word for it."""
        ...

    def is_closed(self) -> bool:
        """Whether the connection has ended."""
        ...

    def terminate(self) -> None:
        """End the connection without a word."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class Pool(Protocol):
    """A bounded number of connections."""

    async def acquire(self, *, timeout: float) -> Connection:  # noqa: ASYNC109  # the driver's own
        """Return a connection that nobody else uses."""
        ...

    async def release(self, connection: Connection, *, timeout: float) -> None:  # noqa: ASYNC109  # the driver's own
        """Give a connection back."""
        ...

    async def expire_connections(self) -> None:
        """Replace every connection before it is used again."""
        ...

    async def close(self) -> None:
        """End all of them, once they are given back."""
        ...

    def terminate(self) -> None:
        """End all of them at once."""
        ...
