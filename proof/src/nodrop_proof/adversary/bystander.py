"""Two honest agents in a process of their own: one hands off, the other answers, one at a time.

Writes a line of JSON per second with how long each handoff took, from the offer to the result.
"""

import asyncio
import sys
import time
from typing import Final

import msgspec

from nodrop.client.transports.connecting import Process, connect, open_client
from nodrop.client.working.loop import fastest_loop
from nodrop.model.limits import DEFAULT

REQUESTER: Final = "alice"
WORKER: Final = "bob"
PAUSE_SECONDS: Final = 0.02
"""Between two handoffs: this is a bystander, not a load."""


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """The handoffs that were answered in about a second, in milliseconds each."""

    took_ms: list[float]


async def _work(url: str, token: str, ready: asyncio.Event) -> None:
    process = Process(id=WORKER, heartbeat_seconds=DEFAULT.heartbeat_seconds)
    worker = await open_client(url, agent=WORKER, token=token, process=process)
    stream = await worker.transport.deliveries(
        process=process.id, heartbeat_seconds=process.heartbeat_seconds, credit=4
    )
    ready.set()
    async for delivery in stream:
        told = {"attempt": delivery["attempt"]}
        await worker.call("ack", told, handoff=delivery["handoff"]["id"])
        await worker.call("complete", {**told, "result": 1}, handoff=delivery["handoff"]["id"])
        stream.grant(1)


async def run(url: str, requester: str, worker: str) -> None:
    """Hand off until the process is ended."""
    ready = asyncio.Event()
    working = asyncio.create_task(_work(url, worker, ready))
    await ready.wait()
    took: list[float] = []
    told_at = time.monotonic()
    async with connect(url, agent=REQUESTER, token=requester) as me:
        while not working.done():
            began = time.monotonic()
            handoff = await me.hand_off(to=WORKER, payload={"n": 1})
            await handoff.result(wait="60s")
            took.append((time.monotonic() - began) * 1_000)
            if time.monotonic() - told_at >= 1:
                sys.stdout.write(msgspec.json.encode(Second(took_ms=took)).decode() + "\n")
                sys.stdout.flush()
                took, told_at = [], time.monotonic()
            await asyncio.sleep(PAUSE_SECONDS)
    working.result()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        runner.run(run(*sys.argv[1:4]))
