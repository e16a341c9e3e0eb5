"""Messages that wait to be sent on one connection.

Messages of one turn of the event loop leave together; a client that agreed to it gets them as one
frame. What a slow reader lets pile up is bounded. Answers that find no room are held back, and
refused when there are too many; pushes that find none end the connection, and the client comes back.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from nodrop.protocol.asgi import Channel
from nodrop.relay.relay import Flushes

_BRACKETS_BYTES: Final = 2
_ROOMY: Final = 8
"""There is room for more while at most this part of the bound is in use."""
TURNS_MAX: Final = 256
"""Messages not yet written that may wait for room; with more, the reader is too slow."""


class Outbox:
    """Messages on their way to one client."""

    def __init__(
        self,
        channel: Channel,
        *,
        flushes: Flushes,
        bytes_max: int,
        frame_bytes_max: int,
    ) -> None:
        """Send to `channel` at the end of a turn of the event loop, or when `flushes` are called for."""
        self.batch = False
        """Whether several messages may share a frame."""
        self.overflowed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the reader turns out to be too slow."""
        self._channel = channel
        self._flushes = flushes
        self._count: Callable[[int], None] = lambda _: None
        self._counted_bytes = 0
        """As many as `_count` was told of."""
        self._fits: Callable[[int], bool] = lambda _: True
        self._bytes_max = bytes_max
        self._roomy_bytes = bytes_max // _ROOMY
        self._frame_bytes_max = frame_bytes_max
        self._waiting: list[bytes] = []
        self._bytes = 0
        """Of what waits, and of what was sent and not read."""
        self._unread = 0
        """Of what was sent and not read."""
        self._held: deque[bytes] = deque()
        """Answers held back until there is room."""
        self._held_bytes = 0
        self._roomy = asyncio.Event()
        self._line = asyncio.Lock()
        self._in_line = 0
        self._blocked = False
        """The client has yet to read what it was sent, or nothing is sent to it any more."""
        self._overflows = False
        self._closed = False

    @property
    def has_room(self) -> bool:
        """Whether something can be put without waiting for a turn."""
        return not self._in_line and not self._held and self._bytes <= self._roomy_bytes

    def count(self, count: Callable[[int], None], fits: Callable[[int], bool]) -> None:
        """Tell `count` how many more bytes wait, and ask `fits` before a large answer is held.

        What is sent at the end of the turn in which it was put is not counted: it waits for nobody.
        """
        self._count, self._fits = count, fits

    async def turn(self) -> bool:
        """Return when there is room, first come, first served; False: it is closed.

        What is known to be asked for but need not be there yet comes this way, so that much of it
        at once is not taken for a slow reader.
        """
        if self._in_line >= TURNS_MAX:
            self._overflow()
        if self.has_room:
            return not self._closed
        self._in_line += 1
        try:
            async with self._line:
                while not self._closed and self._bytes > self._roomy_bytes:
                    self._roomy.clear()
                    await self._roomy.wait()
        finally:
            self._in_line -= 1
        return not self._closed

    def close(self) -> None:
        """Let nobody wait any more."""
        self._closed = self._blocked = True
        self._roomy.set()
        self._count(-self._counted_bytes)
        self._count = lambda _: None
        self._held.clear()
        self._waiting.clear()

    def answer(self, message: bytes) -> bool:
        """Have an answer sent, now or when there is room; False: too many are held back."""
        size = len(message)
        waiting, after = self._waiting, self._bytes + size
        if after <= self._roomy_bytes and not (self._in_line or self._held or self._blocked):
            if not waiting:
                if due := self._flushes.due:
                    due.append(self.flush)
                else:
                    self._flushes.soon(self.flush)
            waiting.append(message)
            self._bytes = after
            return True
        if self.has_room:
            self.put(message)
            return True
        if self._closed:
            return True
        if self._held_bytes + size > self._bytes_max or not self._fits(size):
            return False
        self._held.append(message)
        self._held_bytes += size
        self._tell()
        return True

    def put(self, message: bytes) -> None:
        """Have `message` sent. Never blocks; what comes after an overflow is dropped."""
        if self._overflows:
            return
        before, waiting = self._bytes, self._waiting
        after = self._bytes = before + len(message)
        if after > self._bytes_max and before:
            self._overflow()
            return
        if not waiting:
            self._flushes.soon(self.flush)  # not now: the messages of one turn gather
        waiting.append(message)
        if self._blocked:
            self._tell()

    def flush(self) -> None:
        """Send what there is, unless the client has yet to read what it was sent before."""
        messages, channel = self._waiting, self._channel
        if not messages:
            return
        if channel.can_write:
            self._waiting = []
            self._unread = self._bytes
            channel.write(self._gather(messages) if self.batch and len(messages) > 1 else messages)
        if not channel.can_write:
            self._blocked = True
            self._tell()
        elif self._held or self._counted_bytes or self._in_line:
            self._make_room()
        else:
            self._bytes -= self._unread
            self._unread = 0

    def drained(self) -> None:
        """Go on sending: the client has read what it was sent."""
        self._blocked = self._closed
        self._make_room()
        self.flush()

    def _make_room(self) -> None:
        self._bytes -= self._unread
        self._unread = 0
        while self._held and self._bytes <= self._roomy_bytes:
            held = self._held.popleft()
            self._held_bytes -= len(held)
            self.put(held)
        if self._counted_bytes:
            self._tell()
        if self._in_line:
            self._roomy.set()

    def _tell(self) -> None:
        """Have counted what waits now."""
        waiting = self._bytes + self._held_bytes
        self._count(waiting - self._counted_bytes)
        self._counted_bytes = waiting

    def _overflow(self) -> None:
        self.close()
        self._overflows = True
        if not self.overflowed.done():
            self.overflowed.set_result(None)

    def _gather(self, messages: list[bytes]) -> list[bytes]:
        """Return frames of several messages, none longer than a client must accept."""
        if sum(map(len, messages)) + len(messages) < self._frame_bytes_max:
            return [b"[%b]" % b",".join(messages)]
        frames: list[bytes] = []
        together: list[bytes] = []
        size = _BRACKETS_BYTES
        for message in messages:
            if together and size + len(message) + 1 > self._frame_bytes_max:
                frames.append(b"[%b]" % b",".join(together))
                together, size = [], _BRACKETS_BYTES
            together.append(message)
            size += len(message) + 1
        frames.append(b"[%b]" % b",".join(together))
        return frames
