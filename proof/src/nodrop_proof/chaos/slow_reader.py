"""A worker that reads its connection a hundred times too slowly. Speaks the channel by itself.

The SDK reads as fast as it can, so it cannot play this part.
"""

import asyncio
import json
import socket
from contextlib import suppress
from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from nodrop_proof.chaos.relay_process import ServedRelay

CREDIT: Final = 10_000
"""As much as a relay lets it have: it takes on far more than it can read."""
RECEIVE_BYTES: Final = 4_096
"""What the kernel buffers for it: little, so that the relay feels the slowness."""
HEARTBEAT_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 0.5
"""When nothing came for so long, nothing is left to read."""


class SlowReader:
    """A connection of `agent` that is read at `bytes_per_second`."""

    def __init__(self, relay: ServedRelay, *, agent: str, bytes_per_second: float) -> None:
        self.cut_off = 0
        """How often the relay had enough of it."""
        self._relay = relay
        self._agent = agent
        self._seconds_per_byte = 1 / bytes_per_second
        self._process: str | None = None
        self._ending = asyncio.Event()

    async def run(self) -> None:
        """Read until told to end, and come back whenever cut off."""
        async with self._relay.operator() as me:
            token = (await me.call("create_token", {"agent": self._agent}))["token"]
        while not self._ending.is_set():
            async with await self._dial() as channel:
                living = asyncio.create_task(self._live(channel))
                try:
                    await self._read(channel, token)
                except ConnectionClosed:
                    self.cut_off += 1
                finally:
                    living.cancel()
                    await asyncio.gather(living, return_exceptions=True)

    def end(self) -> None:
        """Read the rest at once, and stop."""
        self._ending.set()

    async def _dial(self) -> connect:
        host, _, port = self._relay.url.removeprefix("http://").rpartition(":")
        own = socket.socket()
        own.setblocking(False)  # noqa: FBT003  # the socket's own word for it
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        await asyncio.get_running_loop().sock_connect(own, (host, int(port)))
        url = self._relay.url.replace("http", "ws", 1) + "/v1/channel"
        return connect(
            url, sock=own, compression=None, max_size=None, max_queue=1, ping_interval=None
        )

    async def _read(self, channel: ClientConnection, token: str) -> None:
        hello = {"token": token, "resume": self._process, "heartbeat_seconds": HEARTBEAT_SECONDS}
        await _say(channel, id=0, op="hello", **hello)
        self._process = json.loads(await channel.recv())["ok"]["process"]
        await _say(channel, op="credit", n=CREDIT)
        while not self._ending.is_set():
            message = await channel.recv()
            await self._pause(len(message) * self._seconds_per_byte)
        with suppress(TimeoutError):
            while True:  # the end of the connection, if it has one, is behind everything unread
                async with asyncio.timeout(QUIET_SECONDS):
                    await channel.recv()

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ending.wait()

    async def _live(self, channel: ClientConnection) -> None:
        """Give signs of life: it is slow, not dead."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            await _say(channel, op="heartbeat")


async def _say(channel: ClientConnection, **message: Any) -> None:
    await channel.send(json.dumps(message))
