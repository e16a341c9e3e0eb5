"""CONTROL: a door that reads a whole body before it looks at its size.

A proof that large bodies are refused before they are read must find this one out.
Run as a script, it listens on a free port and prints where, as `nodrop up` does.
"""

import asyncio
import sys
from typing import Final

import msgspec
from starlette.types import Receive, Scope, Send

from nodrop.model.errors import TooLargeError
from nodrop.protocol.asgi import refuse
from nodrop.servers.listener.server import listen

BODY_BYTES_MAX: Final = 1_000_000


async def buffer_first(_scope: Scope, receive: Receive, send: Send) -> None:
    """Answer one request, whatever it asks for."""
    pieces: list[bytes] = []
    more = True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    if len(b"".join(pieces)) > BODY_BYTES_MAX:
        await refuse(send, TooLargeError())
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def _serve() -> None:
    async with listen(buffer_first, host="127.0.0.1", port=0, frame_bytes_max=1_000) as url:
        sys.stdout.write(msgspec.json.encode({"url": url}).decode() + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve())
