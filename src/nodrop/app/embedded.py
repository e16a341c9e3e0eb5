"""A relay inside the caller's own process, for as long as somebody there uses it."""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

from nodrop.app.database import MEMORY
from nodrop.app.relay import PERSON, TEAM, open_relay
from nodrop.client.settings import find_home
from nodrop.model.errors import StoreInUseError
from nodrop.relay.relay import Caller, Relay
from nodrop.servers.inprocess import InProcessTransport


async def open_embedded(
    path: str | os.PathLike[str], *, agent: str = PERSON, team: str = TEAM, home: Path | None = None
) -> InProcessTransport:
    """Return the way of `agent` to a relay on `path` that runs in this process.

    Connections of one event loop to the same file, or to `:memory:`, share a relay; it stops when
    the last of them is closed.

    Raises:
        StoreInUseError: another process serves the file; `address` says where, if it can be known.
    """
    database = _full_path(path)
    here = asyncio.get_running_loop()
    if database != MEMORY and any(
        database in relays and relays[database].used
        for loop, relays in list(_EMBEDDED.items())
        if loop is not here
    ):
        raise StoreInUseError(
            f"{database} is open in another event loop of this process; "
            "share one, or run `nodrop up` and connect to that"
        )
    relays = _EMBEDDED.setdefault(here, {})
    shared = relays.setdefault(database, _Shared(database, home or find_home()))
    relay = await shared.join(team)
    caller = Caller(team=team, agent=agent, operator=agent == PERSON)
    return InProcessTransport(relay, caller, on_close=shared.leave)


def _full_path(path: str | os.PathLike[str]) -> str:
    place = os.fspath(path)
    return place if place == MEMORY else str(Path(place).expanduser().resolve())


class _Shared:
    """A relay that runs as long as somebody uses it."""

    def __init__(self, database: str, home: Path) -> None:
        self._database = database
        self._home = home
        self._users = 0
        self._stack = AsyncExitStack()
        self._relay: Relay | None = None
        self._changing = asyncio.Lock()

    @property
    def used(self) -> bool:
        return self._users > 0

    async def join(self, team: str) -> Relay:
        async with self._changing:
            if self._relay is None:
                opened = open_relay(self._database, home=self._home, team=team)
                self._relay = await self._stack.enter_async_context(opened)
            else:
                await self._relay.ensure_team(team)
            self._users += 1
            return self._relay

    async def leave(self) -> None:
        async with self._changing:
            self._users -= 1
            if self._users == 0:
                self._relay = None
                await self._stack.aclose()


_EMBEDDED: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Shared]]] = (
    WeakKeyDictionary()
)
