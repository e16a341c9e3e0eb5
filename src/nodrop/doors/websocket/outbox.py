"""What waits to be sent on one connection.

Messages of one turn of the event loop leave together; a client that agreed to it gets them as one
frame. What a slow reader lets pile up is bounded: then it is cut off, and comes back for the rest.
"""

import asyncio
from typing import Final

from starlette.types import Send

_BRACKETS_BYTES: Final = 2
_ROOMY: Final = 8
"""There is room for more while at most this part of the bound is in use."""
TURNS_MAX: Final = 256
"""Messages not yet written that may wait for room; with more, the reader is too slow."""


class Outbox:
    """Messages on their way to one client."""

    def __init__(self, send: Send, *, bytes_max: int, frame_bytes_max: int) -> None:
        self.batch = False
        """Whether several messages may share a frame."""
        self.overflowed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the reader turns out to be too slow."""
        self._send = send
        self._bytes_max = bytes_max
        self._frame_bytes_max = frame_bytes_max
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._filled = asyncio.Event()
        self._roomy = asyncio.Event()
        self._line = asyncio.Lock()
        self._in_line = 0
        self._closed = False

    @property
    def has_room(self) -> bool:
        """Whether something can be put without waiting for a turn."""
        return not self._in_line and self._bytes <= self._bytes_max // _ROOMY

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
                while not self._closed and self._bytes > self._bytes_max // _ROOMY:
                    self._roomy.clear()
                    await self._roomy.wait()
        finally:
            self._in_line -= 1
        return not self._closed

    def close(self) -> None:
        """Let nobody wait any more."""
        self._closed = True
        self._roomy.set()

    def put(self, message: bytes) -> None:
        """Have `message` sent. Never blocks; what comes after an overflow is dropped."""
        if self.overflowed.done():
            return
        self._bytes += len(message)
        if self._bytes > self._bytes_max:
            self._overflow()
            return
        self._waiting.append(message)
        self._filled.set()

    async def run(self) -> None:
        """Send what there is, until cancelled."""
        while True:
            # Being woken takes one turn of the loop, in which the messages of this turn gather.
            await self._filled.wait()
            await self.flush()

    async def flush(self) -> None:
        """Send what there is now."""
        self._filled.clear()
        messages, self._waiting = self._waiting, []
        frames = self._gather(messages) if self.batch and len(messages) > 1 else messages
        for frame in frames:
            await self._send({"type": "websocket.send", "text": frame.decode()})
        self._bytes -= sum(map(len, messages))
        self._roomy.set()

    def _overflow(self) -> None:
        self._waiting.clear()
        self.close()
        if not self.overflowed.done():
            self.overflowed.set_result(None)

    def _gather(self, messages: list[bytes]) -> list[bytes]:
        """Return frames of several messages, none longer than a client must accept."""
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
