"""What waits to be sent on one connection.

Messages of one turn of the event loop leave together; a client that agreed to it gets them as one
frame. What a slow reader lets pile up is bounded: then it is cut off, and comes back for the rest.
"""

import asyncio
from typing import Final

from starlette.types import Send

_BRACKETS_BYTES: Final = 2


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

    def put(self, message: bytes) -> None:
        """Have `message` sent. Never blocks; what comes after an overflow is dropped."""
        if self.overflowed.done():
            return
        self._bytes += len(message)
        if self._bytes > self._bytes_max:
            self._waiting.clear()
            self.overflowed.set_result(None)
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
