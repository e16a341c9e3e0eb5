"""CONTROL: a relay in this process whose connections wait for each other.

What must then go wrong is that one slow reader keeps everybody else from being served.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from unittest import mock

from nodrop.servers.websocket.outbox import Outbox


@contextmanager
def one_line() -> Generator[None]:
    """Have whoever is sent to stand in one line for a while."""
    flush, turn = Outbox.flush, asyncio.Lock()

    async def in_turn(self: Outbox) -> None:
        async with turn:
            await flush(self)

    with mock.patch.object(Outbox, "flush", in_turn):
        yield
