"""A bad network: a TCP proxy on loopback whose connections can be made to fail in known ways.

It knows bytes and directions, nothing of what is said. What is wrong with a connection is switched
while it runs: cut (closed at both ends), reset (the same without a goodbye), half open (open, and
nothing comes through), slow, or far away. Connections made later are sound again, as after a
network that came back, unless `on_accept` sees to it that they are not.
"""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from random import Random
from typing import Final, Self

_CHUNK_BYTES_MAX: Final = 65_536
_HELD_CHUNKS_MAX: Final = 64
"""What is on its way in one direction; more waits with whoever sends it."""
_CLOSE_SECONDS_MAX: Final = 5.0
_NO_GOODBYE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for no time at all: closing throws away what is unsent and says so with a RST."""


class Trouble(StrEnum):
    """What can be wrong with a connection."""

    CUT = "cut"
    RESET = "reset"
    HALF_OPEN = "half_open"
    """Open at both ends; nothing comes through in either direction, not even the end."""
    HALF_OPEN_UP = "half_open_up"
    """What the client sends does not arrive."""
    HALF_OPEN_DOWN = "half_open_down"
    """What the relay sends does not arrive."""
    SLOW = "slow"
    LATENCY = "latency"


class Lane:
    """One direction of a connection. Bytes are taken in, travel for a while, and are passed on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.latency_seconds = 0.0
        self.bytes_per_second: int | None = None
        self.passing = asyncio.Event()
        """Cleared, nothing comes through, and what is sent waits."""
        self.passing.set()
        self.left = False
        """Whether the sending side ended the connection."""
        self._reader = reader
        self._writer = writer
        self._held: deque[tuple[float, bytes]] = deque()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Carry bytes, and then the end of them, from one side to the other."""
        taking = asyncio.create_task(self._take_in())
        try:
            await self._pass_on()
        except OSError:
            pass  # the receiving side is gone, and the other lane says so to the sender
        finally:
            taking.cancel()

    async def _take_in(self) -> None:
        loop = asyncio.get_running_loop()
        data = b"-"
        while data:
            while len(self._held) >= _HELD_CHUNKS_MAX:
                self._changed.clear()
                await self._changed.wait()
            try:
                data = await self._reader.read(_CHUNK_BYTES_MAX)
            except OSError:
                data = b""
            self.left = not data
            self._held.append((loop.time(), data))
            self._changed.set()

    async def _pass_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._held:
                self._changed.clear()
                await self._changed.wait()
            since, data = self._held[0]
            await asyncio.sleep(max(0.0, since + self.latency_seconds - loop.time()))
            if not data:
                await self.passing.wait()
                self._writer.write_eof()
                return
            await self._write(data)
            self._held.popleft()
            self._changed.set()

    async def _write(self, data: bytes) -> None:
        while data:
            rate = self.bytes_per_second
            piece = data if rate is None else data[: max(1, rate // 20)]
            if rate is not None:
                await asyncio.sleep(len(piece) / rate)
            await self.passing.wait()
            self._writer.write(piece)
            await self._writer.drain()
            data = data[len(piece) :]


class Link:
    """One connection through the proxy: a lane to the relay, and one back."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        relay: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.up = Lane(client[0], relay[1])
        self.down = Lane(relay[0], client[1])
        self._writers = (client[1], relay[1])
        self._ended = asyncio.Event()

    @property
    def in_use(self) -> bool:
        """Whether both sides still take it for a connection."""
        return not (self.up.left or self.down.left or self._ended.is_set())

    async def run(self) -> None:
        """Carry both directions until both ended, or the link is cut."""
        lanes = asyncio.gather(self.up.run(), self.down.run())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({lanes, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            ended.cancel()
            lanes.cancel()
            await asyncio.gather(lanes, return_exceptions=True)

    def strike(
        self, trouble: Trouble, *, latency_seconds: float = 0.5, bytes_per_second: int = 2_000
    ) -> None:
        """Make something go wrong, for good.

        Args:
            trouble: what.
            latency_seconds: how much longer everything takes, for `LATENCY`.
            bytes_per_second: how much still comes through, for `SLOW`.
        """
        match trouble:
            case Trouble.CUT:
                self.cut()
            case Trouble.RESET:
                self.reset()
            case Trouble.HALF_OPEN:
                self.up.passing.clear()
                self.down.passing.clear()
            case Trouble.HALF_OPEN_UP:
                self.up.passing.clear()
            case Trouble.HALF_OPEN_DOWN:
                self.down.passing.clear()
            case Trouble.SLOW:
                self.up.bytes_per_second = self.down.bytes_per_second = bytes_per_second
            case Trouble.LATENCY:
                self.up.latency_seconds = self.down.latency_seconds = latency_seconds

    def heal(self) -> None:
        """Let everything through again, what waited included."""
        for lane in (self.up, self.down):
            lane.latency_seconds = 0.0
            lane.bytes_per_second = None
            lane.passing.set()

    def cut(self) -> None:
        """Close both ends."""
        self._ended.set()
        for writer in self._writers:
            writer.close()

    def reset(self) -> None:
        """Close both ends with a RST: what is still on its way does not arrive."""
        self._ended.set()
        for writer in self._writers:
            own: socket.socket | None = writer.get_extra_info("socket")
            if own is not None and own.fileno() >= 0:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_GOODBYE)
            writer.transport.abort()


class Proxy:
    """Forwards every connection to a free port of loopback to one address; `Proxy.open` makes it."""

    def __init__(self, host: str, port: int) -> None:
        self.targets = deque([(host, port)])
        """Where it forwards to. Of several, to one after the other; who does not answer is passed
        over, as by a load balancer."""
        self._links: dict[Link, asyncio.Task[None]] = {}
        self.port = 0
        self.accepted = 0
        """Connections so far."""
        self.on_accept: Callable[[Link], None] = lambda _: None
        """Called with every new connection, before anything passes."""

    @classmethod
    @asynccontextmanager
    async def open(cls, host: str, port: int) -> AsyncGenerator[Self]:
        """Listen before `host` and `port`; at the end every connection is cut."""
        proxy = cls(host, port)
        server = await asyncio.start_server(proxy._accept, "127.0.0.1", 0)
        proxy.port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()
            await proxy._cut_everything()

    @property
    def links(self) -> list[Link]:
        """The connections in use, oldest first."""
        return [link for link in self._links if link.in_use]

    def strike(self, trouble: Trouble, links: Iterable[Link] | None = None) -> int:
        """Make something go wrong with `links`, or with all there are; return how many."""
        struck = self.links if links is None else list(links)
        for link in struck:
            link.strike(trouble)
        return len(struck)

    def strike_at_random(self, chance: Random, troubles: Iterable[Trouble] = Trouble) -> Trouble:
        """Make something go wrong with some of the connections, or with all; return what.

        How often `chance` is asked does not depend on the connections, so that what comes next
        does not either.
        """
        trouble = chance.choice(list(troubles))
        share = chance.choice((0.25, 0.5, 1.0))
        lots = Random(chance.getrandbits(64))  # noqa: S311  # to be repeated, not to be secret
        self.strike(trouble, [link for link in self.links if lots.random() < share])
        return trouble

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay = None
        for _ in range(len(self.targets)):
            self.targets.rotate(-1)
            with suppress(OSError):
                relay = await asyncio.open_connection(*self.targets[0])
                break
        if relay is None:
            writer.close()  # nobody is there: the client finds out as it would without a proxy
            return
        link = Link((reader, writer), relay)
        task = asyncio.current_task()
        assert task is not None, "a server serves each connection in a task"
        self._links[link] = task
        self.accepted += 1
        self.on_accept(link)
        try:
            await link.run()
        finally:
            del self._links[link]

    async def _cut_everything(self) -> None:
        tasks = list(self._links.values())
        for link in list(self._links):
            link.reset()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS_MAX)
