"""Two honest agents in a process of their own: one hands off, the other answers, one at a time.

First they work as much as they can, until the relay's caches are as full as they get. Then writes a line of
JSON per second with how long each handoff took, from the offer to the result.
"""

import asyncio
import sys
import time
from typing import Any, Final

import msgspec

from nodrop.client.transports.connecting import Process, connect, open_client
from nodrop.client.working.loop import fastest_loop
from nodrop.model.limits import DEFAULT

REQUESTER: Final = "alice"
WORKER: Final = "bob"
AT_ONCE: Final = 64
"""Handoffs at a time, at first."""
PAUSE_SECONDS: Final = 0.02
"""Between two handoffs: this is a bystander, not a load."""


class Second(msgspec.Struct, frozen=True, kw_only=True):
    """The handoffs that were answered in about a second, in milliseconds each."""

    took_ms: list[float]


async def _work(url: str, token: str, ready: asyncio.Event) -> None:
    process = Process(id=WORKER, heartbeat_seconds=DEFAULT.heartbeat_seconds)
    worker = await open_client(url, agent=WORKER, token=token, process=process)
    stream = await worker.transport.deliveries(
        process=process.id, heartbeat_seconds=process.heartbeat_seconds, credit=AT_ONCE
    )

    async def answer(delivery: Any) -> None:
        told = {"attempt": delivery["attempt"]}
        await worker.call("ack", told, handoff=delivery["handoff"]["id"])
        await worker.call("complete", {**told, "result": 1}, handoff=delivery["handoff"]["id"])
        stream.grant(1)

    ready.set()
    async with asyncio.TaskGroup() as answering:
        async for delivery in stream:
            answering.create_task(answer(delivery))


async def run(url: str, requester: str, worker: str, warm: int) -> None:
    """Hand off so often at full speed, and then one at a time until the process is ended."""
    ready = asyncio.Event()
    working = asyncio.create_task(_work(url, worker, ready))
    await ready.wait()
    took: list[float] = []
    async with connect(url, agent=REQUESTER, token=requester) as me:

        async def hand_off() -> None:
            handoff = await me.hand_off(to=WORKER, payload={"n": 1})
            await handoff.result(wait="60s")

        for _ in range(0, warm, AT_ONCE):
            await asyncio.gather(*(hand_off() for _ in range(AT_ONCE)))
        told_at = time.monotonic()
        while not working.done():
            began = time.monotonic()
            await hand_off()
            took.append((time.monotonic() - began) * 1_000)
            if time.monotonic() - told_at >= 1:
                sys.stdout.write(msgspec.json.encode(Second(took_ms=took)).decode() + "\n")
                sys.stdout.flush()
                took, told_at = [], time.monotonic()
            await asyncio.sleep(PAUSE_SECONDS)
    working.result()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        address, secret, answerer, count = sys.argv[1:]
        runner.run(run(address, secret, answerer, int(count)))
