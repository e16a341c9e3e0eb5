"""The agent that stands behind a relay while the A2A TCK tests it.

The TCK says by the beginning of a message's id what it expects. A relay with gRPC, an agent on the
SDK, and the agent's address on standard output; ends when standard input does.
"""

import asyncio
import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any

from front import Front

import nodrop
from nodrop import app
from nodrop.protocol.requests import SetReach
from nodrop.relay.relay import operator_of
from nodrop.servers.listener.server import listen

NAME = "tck"
TOKEN = "nd_tck"
LONG_SECONDS = 4.0
"""Twice what the TCK waits for the first event of a stream."""
V03 = "--v03" in sys.argv
"""For the TCK of A2A 0.3, which expects to be asked for more, whatever it says."""
FILE = {"filename": "output.txt", "mediaType": "text/plain"}

ARTIFACTS: dict[str, list[dict[str, Any]]] = {
    "tck-artifact-text": [{"text": "Generated text content"}],
    "tck-artifact-file-url": [{"url": "https://example.com/output.txt", **FILE}],
    "tck-artifact-file": [{"raw": "VENLIGZpbGU=", **FILE}],
    "tck-artifact-data": [{"data": {"key": "value", "count": 42}}],
    "tck-stream-001": [{"text": "Stream hello from TCK"}],
    "tck-stream-003": [{"text": "Stream task lifecycle"}],
    "tck-stream-ordering-001": [{"text": "Ordered output"}],
    "tck-stream-artifact-text": [{"text": "Streamed text content"}],
    "tck-stream-artifact-file": [{"raw": "VENLIGZpbGU=", **FILE}],
    "tck-stream-artifact-chunked": [{"text": "chunk-1 "}, {"text": "chunk-2"}],
}

agent = nodrop.Agent(
    NAME,
    description="Does what the A2A TCK expects",
    concurrency=1_000,  # the TCK leaves many questions without an answer
)


@agent.handler
async def behave(task: nodrop.Task) -> Any:
    message_id: str = task.view["metadata"].get("a2a", {}).get("message_id", "")
    for prefix, parts in ARTIFACTS.items():
        if message_id.startswith(prefix):
            return {"artifacts": [{"artifactId": "output", "name": "output", "parts": parts}]}
    if message_id.startswith("tck-message-response"):
        return {"message": {"parts": [{"text": "Direct message response"}]}}
    if message_id.startswith("tck-reject-task"):
        raise nodrop.Reject("rejected")
    if message_id.startswith("test-resubscribe-message-id"):
        await asyncio.sleep(LONG_SECONDS)
    elif message_id.startswith("tck-input-required") or V03:
        for number in itertools.count(1):
            said = await task.ask(f"More, please ({number})")
            if not V03 and not str(said).startswith("TCK history message"):
                break
    return "Hello from TCK"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        outside = app.A2A(
            home=home,
            allowed={"localhost", "127.0.0.1"},  # where the TCK listens for pushes
            strict=not V03,
            grpc_port=None if V03 else 0,
            grpc_agent=NAME,
        )
        async with (
            app.open_relay(home / "tck.db", home=home) as relay,
            app.listening(relay, a2a=outside) as url,
        ):
            await relay.ensure_token("default", agent=NAME, role="agent", secret=TOKEN)
            public = SetReach(agent=NAME, public=True)  # the TCK sends no token
            await relay.call(operator_of("default"), "set_reach", public, name=NAME)
            working = asyncio.create_task(agent.serve(url, token=TOKEN, grace=0))
            front = listen(Front(url, NAME), host=app.HOST, port=0, frame_bytes_max=2_000_000)
            async with front as root:
                sys.stdout.write(f"{root}\n" if V03 else f"{url}/agents/{NAME}\n")
                sys.stdout.flush()
                await asyncio.to_thread(sys.stdin.read)
            agent.stop()
            await working


if __name__ == "__main__":
    asyncio.run(main())
