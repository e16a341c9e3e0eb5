"""A relay on a database: its store, its key, its security log, and a team in it."""

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from nodrop.app.database import is_address, open_shared, open_store
from nodrop.app.machine import KeyFile, SystemClock, SystemIds
from nodrop.model.limits import DEFAULT, Limits
from nodrop.relay.identity.security_file import SecurityFile
from nodrop.relay.ports import Clock, Ids
from nodrop.relay.relay import Relay

TEAM: Final = "default"
PERSON: Final = "me"
"""The person a relay works for, and its operator."""


@asynccontextmanager
async def open_relay(
    database: str | os.PathLike[str],
    *,
    home: Path,
    team: str = TEAM,
    clock: Clock | None = None,
    ids: Ids | None = None,
    limits: Limits = DEFAULT,
) -> AsyncGenerator[Relay]:
    """Run a relay on `database`, with `team` and its person in it.

    `database` is a file, `:memory:`, or a `postgresql://` address, which other relays may serve at
    the same time.

    Raises:
        StoreInUseError: another relay serves the file; `address` says where, if it can be known.
    """
    async with AsyncExitStack() as stack:
        ids = ids or SystemIds()
        fleet = None
        if is_address(database):
            store, fleet, its_clock = await open_shared(str(database), node=ids.new())
            clock = clock or its_clock
        else:
            store = await open_store(database)
        stack.push_async_callback(store.close)
        security = SecurityFile(home / "security.log")
        stack.callback(security.close)
        relay = await Relay.start(
            store,
            clock=clock or SystemClock(),
            ids=ids,
            signer=KeyFile(home / "keys" / "relay.pem"),
            limits=limits,
            tell=security.write,
            fleet=fleet,
        )
        stack.push_async_callback(relay.stop)
        await relay.ensure_team(team)
        yield relay
